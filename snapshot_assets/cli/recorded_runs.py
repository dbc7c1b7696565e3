"""Says where Dagster records runs, when that is another place than the last time."""

from __future__ import annotations

import argparse
from contextlib import suppress
from pathlib import Path

import dagster as dg

from snapshot_assets.cli.output import show_message
from snapshot_assets.pipeline.execute import open_instance
from snapshot_assets.pipeline.user_folders import state_folder

_LAST = "last-dagster-home"


def open_recording_instance(options: argparse.Namespace) -> dg.DagsterInstance:
    """Return the Dagster instance of a command's run, and print its folder if it changed, or if the call is verbose.

    Args:
        options: The call.
    """
    instance = open_instance()
    place, last = instance.root_directory, state_folder() / _LAST
    if options.verbose or _content(last) != place:
        show_message(f"Runs are recorded in {place}")
    with suppress(OSError):  # a home that cannot be written, as in a container: the next command prints it again
        last.parent.mkdir(parents=True, exist_ok=True)
        last.write_text(place, encoding="utf-8")
    return instance


def _content(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
