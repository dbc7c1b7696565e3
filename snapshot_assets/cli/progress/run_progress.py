"""Progress of commands that work on chunks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

from snapshot_assets.cli.progress.display import Update, displayed
from snapshot_assets.engine.progress import Progress
from snapshot_assets.format.units import human_seconds


@contextmanager
def progress(doing: str, chunks: int, outcomes: list[Any], mode: str = "auto") -> Iterator[Progress]:
    """Show progress until the context ends.

    Args:
        doing: The activity, such as `exporting`.
        chunks: The number of chunks.
        outcomes: The outcomes are added to it.
        mode: See `displayed`.
    """
    watch = Progress(doing, chunks, outcomes)
    with displayed(watch, mode, partial(_bar, watch)):
        yield watch


@contextmanager
def _bar(watch: Progress) -> Iterator[Update]:
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
