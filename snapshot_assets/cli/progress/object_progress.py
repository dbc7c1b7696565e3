"""Progress of commands that work on objects: verification, replication and deletion."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from snapshot_assets.cli.progress.display import Update, displayed
from snapshot_assets.format.units import counted, human_bytes


@dataclass
class ObjectProgress:
    """Counts the objects that a command has finished.

    Attributes:
        doing: The activity, such as `replicating`.
        objects: How many objects there are; None if that is unknown.
        bytes: Their size; None if that is unknown.
    """

    doing: str
    objects: int | None = None
    bytes: int | None = None
    objects_done: int = 0
    bytes_done: int = 0
    _started: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def finish(self, size: int = 0) -> None:
        """Count a finished object; called from other threads."""
        with self._lock:
            self.objects_done += 1
            self.bytes_done += size

    def totals(self) -> dict[str, Any]:
        """Return the counts, as JSON has them."""
        return {
            "doing": self.doing,
            "seconds": round(time.monotonic() - self._started, 1),
            "objects": self.objects,
            "objects_done": self.objects_done,
            "bytes": self.bytes,
            "bytes_done": self.bytes_done,
        }

    def counts(self) -> str:
        """Return the counts as text."""
        objects, size = counted(self.objects_done, "object"), human_bytes(self.bytes_done)
        if self.objects is not None:
            objects = f"{self.objects_done:,} of {counted(self.objects, 'object')}"
        if self.bytes is not None:
            size += f" of {human_bytes(self.bytes)}"
        return f"{objects}, {size}" if self.bytes_done or self.bytes else objects

    def line(self) -> str:
        """Return the counts as a sentence."""
        return f"{self.doing}: {self.counts()} after {time.monotonic() - self._started:.0f} s"


@contextmanager
def object_progress(
    doing: str, mode: str, objects: int | None = None, size: int | None = None
) -> Iterator[ObjectProgress]:
    """Show progress on stderr until the context ends; see `displayed` for the modes, `ObjectProgress` for the rest."""
    watch = ObjectProgress(doing, objects, size)
    with displayed(watch, mode, partial(_bar, watch)):
        yield watch


@contextmanager
def _bar(watch: ObjectProgress) -> Iterator[Update]:
    from rich.console import Console  # here, because commands without a terminal need no bar
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn(watch.doing), BarColumn(), TextColumn("{task.fields[counts]}"), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(watch.doing, total=watch.bytes or watch.objects, counts="")

        def update() -> None:
            done = watch.bytes_done if watch.bytes else watch.objects_done
            bar.update(task, completed=done, counts=watch.counts())

        yield update
