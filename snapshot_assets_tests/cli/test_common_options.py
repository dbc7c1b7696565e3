"""Options and examples of every command: logging, progress, and what each `--help` shows."""

from __future__ import annotations

import json
import logging
import shlex
from pathlib import Path

import pytest

from snapshot_assets.cli.logs import log_on_stderr
from snapshot_assets.cli.options.commands import COMMANDS
from snapshot_assets.cli.options.common import _LONG, EXAMPLES
from snapshot_assets.cli.options.parser import build_parser
from snapshot_assets.cli.output import show_message
from snapshot_assets.cli.progress import progress
from snapshot_assets.errors import UsageError
from snapshot_assets_tests.cli.helpers import Snapshots, in_own_process


def test_every_command_has_examples_which_are_valid_calls() -> None:
    assert EXAMPLES.keys() == COMMANDS.keys()
    for command, examples in EXAMPLES.items():
        for example in examples:
            assert example.startswith(command), example
            options = build_parser().parse_args(shlex.split(example))
            assert options.run is COMMANDS[command], example


def test_help_shows_examples_as_they_are_typed_and_the_exit_statuses() -> None:
    shown = in_own_process("export", "verify", "--help")
    assert shown.status == 0
    assert f"\nexamples:\n  snapshots {EXAMPLES['export verify'][0]}\n" in shown.out
    assert "130 interrupted" in " ".join(shown.out.split())


@pytest.mark.slow
@pytest.mark.parametrize("command", list(EXAMPLES))
def test_every_command_takes_the_common_options_before_and_after_its_name(command: str) -> None:
    call = shlex.split(EXAMPLES[command][0])
    none = build_parser().parse_args(call)
    assert (none.verbose, none.log_format, none.progress) == (0, "text", "auto")
    for arguments in (["-vv", "--log-format", "json", "--no-progress", *call], [*call, "-vv", "--log-format=json"]):
        options = build_parser().parse_args(arguments)
        assert (options.verbose, options.log_format) == (2, "json")
    assert build_parser().parse_args(["--progress", "json", *call]).progress == "json"


@pytest.mark.parametrize("command", list(EXAMPLES))
def test_only_commands_that_show_progress_take_its_options_after_their_name(command: str) -> None:
    call = [*shlex.split(EXAMPLES[command][0]), "--no-progress"]
    if command in _LONG:
        assert build_parser().parse_args(call).progress == "none"
    else:
        with pytest.raises(UsageError, match="--no-progress"):
            build_parser().parse_args(call)


@pytest.mark.parametrize(
    ("call", "doing"),
    [
        (("export", "verify"), "verifying"),
        (("export", "delete", "--yes"), "deleting"),
    ],
)
def test_commands_on_objects_show_progress(
    snapshots: Snapshots, exported: Path, call: tuple[str, ...], doing: str
) -> None:
    done = snapshots(*call, "--snapshot", exported.as_uri(), "--progress", "json")
    shown = json.loads(done.err.splitlines()[-1])
    assert (shown["doing"], shown["objects_done"] > 0) == (doing, True)


def test_with_log_format_json_each_line_on_stderr_is_an_object(snapshots: Snapshots, exported: Path) -> None:
    listed = snapshots("export", "list", "--location", exported.parent.as_uri() + "/none", "--log-format", "json")
    failed = snapshots("export", "verify", "--snapshot", exported.as_uri(), "--at", "rev:99", "--log-format=json")
    wrong = snapshots("--log-format", "json", "export", "verify", "--depth", "none")
    records = [[json.loads(line) for line in each.err.splitlines()] for each in (listed, failed, wrong)]
    assert [[record["level"] for record in each] for each in records] == [["info"], ["error"], ["error"]]
    assert all(each[0]["time"].endswith("Z") for each in records)
    assert "--depth" in records[2][0]["message"]
    assert failed.status != 0
    assert wrong.status == 2


def test_the_log_has_warnings_by_default_and_everything_with_vv(capfd: pytest.CaptureFixture[str]) -> None:
    def logged(*arguments: str) -> list[str]:
        options = build_parser().parse_args(["doctor", *arguments])
        with log_on_stderr(options):
            for level in (logging.DEBUG, logging.INFO, logging.WARNING):
                logging.getLogger("snapshot_assets.engine").log(level, "password=%s", level)
        return capfd.readouterr().err.splitlines()

    assert logged() == ["password=***"]
    assert len(logged("-v")) == 2
    assert len(logged("-vv")) == 3
    [record] = map(json.loads, logged("--log-format", "json"))
    assert (record["level"], record["message"]) == ("warning", "password=***")
    assert logging.getLogger("snapshot_assets").level == logging.NOTSET


def test_progress_as_json_is_one_object_a_line_and_none_is_silent(capfd: pytest.CaptureFixture[str]) -> None:
    with progress("copying", 3, [], "json"):
        show_message("a message")
    *_, last = capfd.readouterr().err.splitlines()
    assert json.loads(last)["chunks"] == 3
    with progress("copying", 3, [], "none"):
        pass
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("error", "shown"), [(KeyboardInterrupt, False), (ValueError, True)])
def test_an_interrupt_that_a_library_logs_is_no_failure(
    capfd: pytest.CaptureFixture[str], error: type[BaseException], shown: bool
) -> None:
    with log_on_stderr(build_parser().parse_args(["doctor"])):
        try:
            raise error
        except BaseException:
            logging.getLogger("sqlalchemy.pool").exception("Exception closing connection")
    assert ("Exception closing connection" in capfd.readouterr().err) is shown
