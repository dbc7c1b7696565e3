"""What the comparison of pages with commands accepts, and what it does not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from snapshot_assets_tests.documents.blocks import Step, steps
from snapshot_assets_tests.documents.shell import Printed, Shell
from snapshot_assets_tests.documents.transcripts import appears, difference

_RUN = "sealed by run ef64109d-f54c-4546-8866-9f0efbd870f7"
_OTHER_RUN = "sealed by run 0ff096ce-8229-4ca2-ada5-42a3e0c3e998"
_PRINTED = Printed(
    0, (_OTHER_RUN, "  7 chunks, 8,690 rows, 14.9 KiB", "  revision 7, checksum a0b1c2d3e4"), ("WARNING: …",)
)


@pytest.mark.parametrize(
    "shown",
    [
        (_RUN, "  7 chunks, 8,690 rows, 15.0 KiB", "  revision 6, checksum ffeeddccbbaa99"),
        ("…", "  revision 6, checksum ffeeddccbbaa99"),
        ("sealed …", "  7 chunks, … rows, 15.0 KiB", "…"),
        (_RUN, "WARNING: …", "…"),
    ],
)
def test_ids_times_sizes_and_omitted_lines_may_differ(shown: tuple[str, ...]) -> None:
    assert difference(shown, _PRINTED) == ""


@pytest.mark.parametrize(
    "shown",
    [
        (),
        (_RUN,),
        (_RUN, "  7 chunks, 8,691 rows, 15.0 KiB", "…"),
        (_RUN, "…", "something else"),
        ("…", "  revision 6, checksum ffeeddccbbaa99", _RUN),
    ],
)
def test_other_numbers_and_lines_that_are_not_there_are_reported(shown: tuple[str, ...]) -> None:
    assert "printed:" in difference(shown, _PRINTED)


def test_a_server_is_ready_once_it_has_printed_what_is_shown() -> None:
    printed = Printed(0, ("10:00 - INFO - Serving on http://127.0.0.1:3000 in process 7",), ())
    assert appears(("… Serving on http://127.0.0.1:3000 …",), printed)
    assert not appears(("… Serving on http://127.0.0.1:3001 …",), printed)


def test_a_console_is_commands_with_what_they_print() -> None:
    found = steps("$ one \\\n  more\nfirst\n  second\n$ two\n")
    assert found == [Step("one \\\n  more", ("first", "  second")), Step("two", ())]


def test_a_command_leaves_folder_and_variables_to_the_next_and_a_server_ends(tmp_path: Path) -> None:
    with Shell(tmp_path, tmp_path / "files", {"PATH": os.environ["PATH"]}) as shell:
        assert shell.run("mkdir a && cd a; export NAME='x y'").status == 0
        assert shell.run('echo "$NAME"; echo oops >&2; false') == Printed(1, ("x y",), ("oops",))
        assert shell.pwd() == tmp_path / "a"
        served = shell.serve("(echo ready; sleep 300; echo late)", lambda printed: "ready" in printed.stdout)
        assert served.stdout == ("ready",)
        assert shell.run("jobs -r; echo done").stdout == ("done",)
