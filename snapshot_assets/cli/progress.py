"""Progress on stderr, as it happens: a bar on a terminal, else a line every 30 s, or JSON lines every second."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from snapshot_assets.cli.output import messages_are_json, show_line, show_message
from snapshot_assets.cli.repeated import repeated
from snapshot_assets.engine.progress import LOG_SECONDS, Progress

_JSON_SECONDS = 1.0
_BAR_SECONDS = 0.5


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
    if mode == "none":
        yield watch
    elif mode == "json":
        with repeated(lambda: show_line(json.dumps(watch.totals())), _JSON_SECONDS, at_end=True):
            yield watch
    elif messages_are_json() or not Console(stderr=True).is_terminal:
        with repeated(lambda: show_message(watch.line()), LOG_SECONDS):
            yield watch
    else:
        with _bar(watch) as update, repeated(update, _BAR_SECONDS):
            yield watch


@contextmanager
def _bar(watch: Progress) -> Iterator[Callable[[], None]]:
    bar = Bar(
        TextColumn(watch.doing),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("chunks  {task.fields[rows]:,} rows  {task.fields[speed]:.1f} MB/s"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(watch.doing, total=watch.chunks, rows=0, speed=0.0)

        def update() -> None:
            found = watch.totals()
            speed = (found["bytes"] + found["bytes_running"]) / (1 << 20) / max(found["seconds"], 0.1)
            bar.update(task, completed=found["chunks_done"], rows=found["rows"], speed=speed)

        yield update
