"""What a terminal would obey is not printed, wherever it comes from."""

from __future__ import annotations

import json

import pytest

from snapshot_assets.cli.output import show, show_json, show_message, show_table

EVIL = "a\x1b]0;title\x07\r\x9b2J\u202eb\tü\u00a0\n\x7f"
SHOWN = "a\ufffd]0;title\ufffd\ufffd\ufffd2J\ufffdb\tü\u00a0\n\ufffd"


def test_results_and_messages_contain_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    show(EVIL)
    show_message(EVIL)
    show_table([EVIL], [[EVIL]])
    out, err = capsys.readouterr()
    in_cell = SHOWN.replace("\n", " ").expandtabs()
    assert out == f"{SHOWN}\n{in_cell}\n{in_cell}\n"
    assert err == f"{SHOWN}\n"


def test_json_escapes_them_and_keeps_the_value(capsys: pytest.CaptureFixture[str]) -> None:
    show_json({EVIL: [EVIL]})
    out = capsys.readouterr().out
    assert json.loads(out) == {EVIL: [EVIL]}
    assert not any(each in out for each in "\x1b\x9b\x7f\u202e")
