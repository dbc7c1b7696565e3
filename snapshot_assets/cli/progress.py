"""A progress bar with chunks, rows, MB/s and time left; quiet where stderr is no terminal."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from snapshot_assets.engine.export import Outcome


@contextmanager
def export_progress(chunks: int) -> Iterator[Callable[[Outcome], None]]:
    """Show progress on stderr and yield the function to call for each chunk.

    Args:
        chunks: How many chunks there are to do.
    """
    progress = Progress(
        TextColumn("exporting"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("chunks  {task.fields[rows]:,} rows  {task.fields[speed]:.1f} MB/s"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not Console(stderr=True).is_terminal,
        transient=True,
    )
    started, lock = time.monotonic(), threading.Lock()
    totals = {"rows": 0, "bytes": 0}
    with progress:
        task = progress.add_task("export", total=chunks, rows=0, speed=0.0)

        def advance(outcome: Outcome) -> None:
            with lock:
                totals["rows"] += outcome.rows
                totals["bytes"] += outcome.bytes
                speed = totals["bytes"] / (1 << 20) / max(time.monotonic() - started, 0.001)
                progress.update(task, advance=1, rows=totals["rows"], speed=speed)

        yield advance
