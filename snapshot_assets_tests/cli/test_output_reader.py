"""A command whose output nobody reads any more ends quietly, with the status that shells report for SIGPIPE."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from snapshot_assets.cli.output import READER_GONE


def without_reader(*arguments: str, errors_too: bool = False) -> tuple[int, str]:
    """Run `snapshots` into a pipe that nobody reads; returns the exit status, and what is on stderr."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "snapshot_assets", *arguments]
    stderr = writer if errors_too else subprocess.PIPE
    ended = subprocess.run(command, stdout=writer, stderr=stderr, text=True, check=False)
    os.close(writer)
    return ended.returncode, ended.stderr or ""


@pytest.mark.parametrize(
    "call",
    [("--help",), ("export", "list", "--help"), ("--print-completion", "bash"), ("--version",)],
)
def test_calls_that_only_print_end_quietly(call: tuple[str, ...]) -> None:
    status, errors = without_reader(*call)
    assert (status in {0, READER_GONE}, errors) == (True, "")  # argparse itself passes over a closed pipe


@pytest.mark.slow
@pytest.mark.parametrize(
    "call",
    [
        ("export", "list"),
        ("catalog", "log"),
        ("catalog", "show", "--json"),
    ],
    ids=["a table", "lines", "a document"],
)
def test_commands_end_quietly(exported: Path, call: tuple[str, ...]) -> None:
    assert without_reader(*call, "--snapshot", exported.as_uri()) == (READER_GONE, "")


def test_a_failure_that_nobody_reads_ends_quietly_too() -> None:
    assert without_reader("export", "verify", "--snapshot", "file:///nowhere", errors_too=True)[0] == READER_GONE
