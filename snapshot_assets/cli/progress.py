"""Shows progress on stderr: a bar on a terminal, else a line every 30 s, or JSON lines every second.

Commands that work on chunks and commands that work on objects (verification, replication, deletion) share it.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from snapshot_assets.cli.output import messages_are_json, show_line, show_message
from snapshot_assets.engine.progress import Progress
from snapshot_assets.format.units import counted, human_bytes, human_seconds

_LINE_SECONDS, _JSON_SECONDS, _BAR_SECONDS = 30.0, 1.0, 0.5

Update = Callable[[], None]
"""Brings a bar up to date."""


@contextmanager
def _displayed(
    watch: Progress | ObjectProgress, mode: str, bar: Callable[[], AbstractContextManager[Update]]
) -> Iterator[None]:
    """Show progress, or a bar on a terminal, until the context ends."""
    if mode == "none":
        yield
    elif mode == "json":
        with _repeated(lambda: show_line(json.dumps(watch.totals())), _JSON_SECONDS, at_end=True):
            yield
    elif messages_are_json() or not sys.stderr.isatty():
        with _repeated(lambda: show_message(watch.line()), _LINE_SECONDS):
            yield
    else:
        with bar() as update, _repeated(update, _BAR_SECONDS):
            yield


@contextmanager
def _repeated(act: Callable[[], None], seconds: float, *, at_end: bool = False) -> Iterator[None]:
    """Do something again and again in a thread while the context is open."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(seconds):
            act()

    thread = threading.Thread(target=run, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        if at_end:
            act()


@contextmanager
def progress(doing: str, chunks: int, outcomes: list[Any], mode: str = "auto") -> Iterator[Progress]:
    """Show progress until the context ends.

    Args:
        doing: The activity, such as `exporting`.
        chunks: The number of chunks.
        outcomes: The outcomes are added to it.
        mode: `auto`: a bar on a terminal, else a line every 30 s; `json`: a JSON object a second; `none`.
    """
    watch = Progress(doing, chunks, outcomes)
    with _displayed(watch, mode, partial(_bar, watch)):
        yield watch


@contextmanager
def _bar(watch: Progress) -> Iterator[Update]:
    from rich.console import Console  # here, because commands without a terminal need no bar
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    bar = Bar(
        TextColumn(watch.doing),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("chunks  {task.fields[rows]:,} rows  {task.fields[speed]:.1f} MiB/s"),
        TextColumn("{task.fields[left]}"),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(watch.doing, total=watch.chunks, rows=0, speed=0.0, left="")

        def update() -> None:
            found = watch.totals()
            rate, seconds = watch.pace()
            left = watch.stage_text or (f"{human_seconds(seconds)} left" if seconds is not None else "")
            shown = {"rows": found["rows"], "speed": rate / (1 << 20), "left": left}
            bar.update(task, total=found["chunks"], completed=found["chunks_done"], **shown)

        yield update


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
    """Show progress on stderr until the context ends; see `progress` for the modes, `ObjectProgress` for the rest."""
    watch = ObjectProgress(doing, objects, size)
    with _displayed(watch, mode, partial(_object_bar, watch)):
        yield watch


@contextmanager
def _object_bar(watch: ObjectProgress) -> Iterator[Update]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn(watch.doing), BarColumn(), TextColumn("{task.fields[counts]}"), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(watch.doing, total=watch.bytes or watch.objects, counts="")

        def update() -> None:
            done = watch.bytes_done if watch.bytes else watch.objects_done
            bar.update(task, completed=done, counts=watch.counts())

        yield update
