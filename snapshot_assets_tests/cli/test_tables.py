"""Tables keep every word whole: in pipes a row is a line, on narrow terminals texts continue in the next line."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest

from snapshot_assets.cli import output
from snapshot_assets.cli.output import show_table
from snapshot_assets.format.units import counted, noun

PATH = "data/7/0f8fad5bd9cb469fa16570867728950e-readings.parquet"
HEADERS, ROWS = ("File", "Revision", "Rows", "Why"), [(PATH, 1234, 5678, "not needed any more since"), ("表", 5, 6, "")]
_CODE = f"from snapshot_assets.cli.output import show_table; show_table({HEADERS!r}, {ROWS!r})"


def _on_terminal(columns: int) -> str:
    """Return what a terminal of that many columns gets."""
    master, slave = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm", "NO_COLOR": ""}
    subprocess.run([sys.executable, "-c", _CODE], stdout=slave, env=environment, check=True)
    os.close(slave)
    shown = os.read(master, 1 << 16).decode()
    os.close(master)
    return shown


def test_a_row_is_a_line_in_a_pipe_and_only_counts_have_separators(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(HEADERS, ROWS)
    width = len(PATH) + 2
    assert capsys.readouterr().out.splitlines() == [
        f"{'File':<{width}}Revision   Rows  Why",
        f"{PATH}      1234  5,678  not needed any more since",
        f"{'表':<{width - 1}}       5      6",
    ]


def test_a_large_table_looks_the_same(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    show_table(HEADERS, ROWS)
    small = capsys.readouterr().out
    monkeypatch.setattr(output, "_MOST_CELLS", 1)
    show_table(HEADERS, ROWS)
    assert capsys.readouterr().out == small


def test_cells_are_text_and_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(["[bold]"], [["[red]:smile:[/red]"], ["two\nlines"], [""]])
    assert capsys.readouterr().out == "[bold]\n[red]:smile:[/red]\ntwo lines\n\n"


@pytest.mark.parametrize("columns", [20, 60, 90])
def test_a_narrow_terminal_cuts_no_word(columns: int) -> None:
    shown = re.sub(r"\x1b\[[0-9;]*m", "", _on_terminal(columns))
    words = set(shown.split())
    assert {PATH, "1234", "5,678", "not", "needed", "any", "more", "since", "Revision"} <= words
    assert len(shown.splitlines()) > 3  # the text continues


def test_only_a_terminal_gets_styles() -> None:
    shown = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, text=True, check=True).stdout
    assert "\x1b" not in shown
    assert "\x1b[1m" in _on_terminal(200)


def test_counts_are_singular_at_one_only() -> None:
    assert [counted(number, "row") for number in (0, 1, 2, 2770)] == ["0 rows", "1 row", "2 rows", "2,770 rows"]
    assert counted(2, "entry", "entries") == "2 entries"
    assert (noun(1, "is", "are"), noun(0, "is", "are")) == ("is", "are")
