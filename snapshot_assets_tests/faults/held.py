"""Commands that stop in the middle of their work and wait for ever, so that a test kills them there.

A test that watches a command, and kills it when it sees something, finds it ended where the machine is busy.
"""

from __future__ import annotations

import glob
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from snapshot_assets.databases.duckdb.target import DuckDBTarget
from snapshot_assets.storage.local import LocalStore
from snapshot_assets_tests.waiting import until

_FILES, _BYTES, _REACHED = "TEST_HELD_FILES", "TEST_HELD_BYTES", "TEST_HELD_REACHED"
_SITE = Path(__file__).with_name("held_site")
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class HeldCommand:
    """A command that stops.

    Attributes:
        process: It leads a group of processes.
        reached: The file that one of them makes when it stops.
    """

    process: subprocess.Popen[str]
    reached: Path

    def kill(self) -> None:
        """Wait until it stops, and kill it and all that it started."""
        until(self.reached.exists, explain=lambda: self.process.communicate()[1], process=self.process)
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


def start_held(folder: Path, files: Path, *arguments: str, least: int = 1) -> HeldCommand:
    """Start `snapshots`: it commits and inserts nothing more once there are certain files.

    Each of its processes stops before it commits a transaction of a location on the disk, and before it commits rows
    that it inserted into DuckDB.

    Args:
        folder: Its working folder.
        files: The pattern of the files, one of which is enough.
        arguments: Those of the command.
        least: The bytes that a file must have.
    """
    held = {_FILES: str(files), _BYTES: str(least), _REACHED: str(folder / "reached")}
    process = subprocess.Popen(
        [sys.executable, "-m", "snapshot_assets.cli", *arguments],
        cwd=folder,
        env=os.environ | held | {"PYTHONPATH": f"{_SITE}{os.pathsep}{_ROOT}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    return HeldCommand(process, folder / "reached")


def hold() -> None:
    """Let this process stop as its environment says."""
    _patch(LocalStore, "create", before=lambda _, path, *__: path.startswith("transactions/") and _stop())
    _patch(DuckDBTarget, "_insert", after=_stop)


def _patch(
    owner: type, name: str, before: Callable[..., Any] = lambda *_: None, after: Callable[[], Any] = lambda: None
) -> None:
    function = getattr(owner, name)

    def patched(*arguments: Any) -> Any:
        before(*arguments)
        result = function(*arguments)
        after()
        return result

    setattr(owner, name, patched)


def _stop() -> None:
    """Wait for ever, if the files are there."""
    least = int(os.environ[_BYTES])
    if any(Path(path).stat().st_size >= least for path in glob.iglob(os.environ[_FILES])):
        Path(os.environ[_REACHED]).touch()
        threading.Event().wait()
