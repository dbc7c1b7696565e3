"""What the command line's parsers share; importing it imports nothing heavy."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import Any

VERSIONS = "rev:12, tag:name, savepoint:3|latest|earliest or ts:2025-01-31T00:00:00Z"
"""What `--at` takes."""


def described(commands: Any, name: str, text: str) -> argparse.ArgumentParser:
    """Add a command; its own help says too what it does."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    return parser


def dry_run(parser: argparse.ArgumentParser, help_: str) -> None:
    """Add `--dry-run`, with a help of its own."""
    parser.add_argument("--dry-run", action="store_true", help=help_)


def single_writer(parser: argparse.ArgumentParser) -> None:
    """Add `--single-writer`, as every command that writes to a location has it."""
    parser.add_argument(
        "--single-writer",
        action="store_true",
        help="promise that nobody else writes here, as the plan's single_writer does: for stores without conditional"
        " creates",
    )


def yes(parser: argparse.ArgumentParser) -> None:
    """Add `--yes`, as every command that asks has it."""
    parser.add_argument("--yes", action="store_true", help="do not ask")


def snapshot(parser: argparse.ArgumentParser) -> None:
    """Add `--snapshot`."""
    parser.add_argument("--snapshot", required=True, metavar="URI", help="the snapshot's location")


def as_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="print one JSON document on stdout")


def count(text: str) -> int:
    """Return a whole number from 1 up.

    Raises:
        ArgumentTypeError: It is none.
    """
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 up")
    return int(text)


def command(module: str, function: str = "run") -> Callable[[argparse.Namespace], int]:
    """Return a command that imports its module only when it runs.

    Args:
        module: The module below `snapshot_assets.cli`.
        function: Its function that runs the command.
    """

    def run(options: argparse.Namespace) -> int:
        status: int = getattr(import_module(f"snapshot_assets.cli.{module}"), function)(options)
        return status

    return run
