"""Shared parts of the command line's parsers; imports nothing heavy."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import Any

VERSIONS = "rev:12, tag:name, savepoint:3|latest|earliest or ts:2025-01-31T00:00:00Z"
"""Values of `--at`."""


def described(commands: Any, name: str, text: str) -> argparse.ArgumentParser:
    """Add a command with a description."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    return parser


def dry_run(parser: argparse.ArgumentParser, help_: str) -> None:
    """Add `--dry-run`."""
    parser.add_argument("--dry-run", action="store_true", help=help_)


def single_writer(parser: argparse.ArgumentParser) -> None:
    """Add `--single-writer`, for a command that writes to a location."""
    parser.add_argument(
        "--single-writer",
        action="store_true",
        help="promise that no other writer uses the location, for stores without conditional creates",
    )


def yes(parser: argparse.ArgumentParser) -> None:
    """Add `--yes`, for a command that asks for confirmation."""
    parser.add_argument("--yes", action="store_true", help="do not ask")


def snapshot(parser: argparse.ArgumentParser) -> None:
    """Add `--snapshot`."""
    parser.add_argument("--snapshot", required=True, metavar="URI", help="the snapshot's location")


def as_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="print one JSON document on stdout")


def count(text: str) -> int:
    """Parse a whole number from 1 up.

    Raises:
        ArgumentTypeError: The text is invalid.
    """
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 up")
    return int(text)


def command(module: str, function: str = "run") -> Callable[[argparse.Namespace], int]:
    """Return a command that imports its module only when it runs.

    Args:
        module: The module below `snapshot_assets.cli`.
        function: The function that runs the command.
    """

    def run(options: argparse.Namespace) -> int:
        status: int = getattr(import_module(f"snapshot_assets.cli.{module}"), function)(options)
        return status

    return run
