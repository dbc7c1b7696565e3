"""A progress bar with chunks, rows, MB/s and time left; hidden if stderr is not a terminal."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def progress(doing: str, chunks: int, outcomes: list[Any]) -> Iterator[Callable[[Any], None]]:
    """Show progress on stderr; yield a function to call with the outcome of each finished chunk.

    Args:
        doing: The activity, such as `exporting`.
        chunks: The number of chunks.
        outcomes: The outcomes are added to it.
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

        def note(outcome: Any) -> None:
            with lock:
                outcomes.append(outcome)
                totals["rows"] += outcome.rows
                totals["bytes"] += outcome.bytes
                speed = totals["bytes"] / (1 << 20) / max(time.monotonic() - started, 0.001)
                bar.update(task, advance=1, rows=totals["rows"], speed=speed)

        yield note
