"""Which part of a time range a snapshot does not have."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.engine.restore.settings import Filters
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.units import time_text
from snapshot_assets.format.windows import TimeRange


def outside(state: State, filters: Filters) -> tuple[str, ...]:
    """Return warnings about the part of a time range of which a snapshot has no window; none without a range."""
    if filters.start is None and filters.end is None:
        return ()
    windows = sorted((state.window(chunk) for chunk in state.chunks if chunk != UNTIMED_CHUNK), key=lambda w: w.start)
    if not windows:
        return ("The snapshot has no windows: the time range selects no row of it, and tables without a time whole.",)
    start, end = filters.start or windows[0].start, filters.end or windows[-1].end
    gaps = list(_gaps(start, end, [TimeRange(window.start, window.end) for window in windows]))
    if not gaps:
        return ()
    has = f"it has rows from {time_text(windows[0].start)} to {time_text(windows[-1].end)}"
    if gaps == [TimeRange(start, end)]:
        return (f"The time range {_text(gaps[0])} lies outside the snapshot, so it selects no row with a time: {has}.",)
    parts = ", ".join(map(_text, gaps[:3])) + (f" and {len(gaps) - 3} more" if len(gaps) > 3 else "")
    return (f"The snapshot has no window for a part of the time range, {parts}: {has}.",)


def _gaps(start: datetime, end: datetime, covered: list[TimeRange]) -> Iterator[TimeRange]:
    """Yield the parts of a range that are not covered, which are in order."""
    for each in covered:
        if each.start >= end:
            break
        if each.start > start:
            yield TimeRange(start, each.start)
        start = max(start, each.end)
    if start < end:
        yield TimeRange(start, end)


def _text(span: TimeRange) -> str:
    return f"{time_text(span.start)}/{time_text(span.end)}"
