"""A progress bar with chunks, rows, MB/s and time left; hidden if stderr is not a terminal."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def progress(doing: str, chunks: int) -> Iterator[Callable[[int, int], None]]:
    """Show progress on stderr; yield a function to call for each finished chunk, with its rows and bytes.

    Args:
        doing: The activity, such as `exporting`.
        chunks: The number of chunks.
    """
    bar = Progress(
        TextColumn(doing),
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
    with bar:
        task = bar.add_task(doing, total=chunks, rows=0, speed=0.0)

        def advance(rows: int, size: int) -> None:
            with lock:
                totals["rows"] += rows
                totals["bytes"] += size
                speed = totals["bytes"] / (1 << 20) / max(time.monotonic() - started, 0.001)
                bar.update(task, advance=1, rows=totals["rows"], speed=speed)

        yield advance
