"""Divides a time range into windows, in UTC.

Windows are half-open intervals without gaps or overlap, numbered from 1 at the plan's start. They align to nothing
else. The last window of a bounded range is clipped to the range's end. Windows of an unbounded range are never clipped,
so an id always means the same interval. An empty or negative range or length, more than `MAX_WINDOWS` windows, and an
id or instant without a window are a PlanError.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from snapshot_assets.errors import PlanError
from snapshot_assets.format.units import duration_text, time_text, to_utc

MAX_WINDOWS = 100_000
"""Most windows of one plan: Dagster's limit of partitions per asset."""

_DAY = timedelta(days=1)
_ROUND_LENGTHS = tuple(
    timedelta(seconds=seconds)
    for seconds in (1, 5, 10, 30, 60, 300, 600, 1_800, 3_600, 7_200, 10_800, 14_400, 21_600, 43_200, 86_400)
)


class TimeRange(NamedTuple):
    """A half-open interval `[start, end)` of UTC instants."""

    start: datetime
    end: datetime


@dataclass(frozen=True, order=True)
class Window:
    """One window; its id is its 1-based index from the plan's start, and the id of its chunk."""

    id: int
    start: datetime
    end: datetime

    @property
    def range(self) -> TimeRange:
        """The window's interval."""
        return TimeRange(self.start, self.end)

    def __str__(self) -> str:
        return f"window {self.id} [{time_text(self.start)}, {time_text(self.end)})"


def partition_key(window: Window) -> str:
    """Return a window's partition key: its start in UTC, with seconds only where needed."""
    text = time_text(window.start).removesuffix("Z")
    return text if window.start.second or window.start.microsecond else text.removesuffix(":00")


def count_windows(start: datetime, end: datetime, length: timedelta) -> int:
    """Return how many windows cover `[start, end)`, given by aware instants."""
    _require_length(length)
    start, end = to_utc(start), to_utc(end)
    if end <= start:
        raise PlanError(
            f"end_time {time_text(end)} is not after start_time {time_text(start)}; "
            "give a range that holds at least one instant"
        )
    return _check_count(-((start - end) // length), end - start, length)


def plan_windows(start: datetime, end: datetime, length: timedelta) -> tuple[Window, ...]:
    """Return the windows that cover `[start, end)`, the last one clipped to `end`; see `count_windows`."""
    return tuple(window_at(start, length, index, end=end) for index in range(1, count_windows(start, end, length) + 1))


def closed_count(start: datetime, length: timedelta, now: datetime, lag: timedelta) -> int:
    """Return how many windows of an unbounded range ended at least `lag` before `now`; also the id of the last one."""
    _require_length(length)
    if lag < timedelta(0):
        raise PlanError(f"lag {lag} is negative; give 0s or more")
    elapsed = to_utc(now) - to_utc(start) - lag
    return _check_count(max(0, elapsed // length), elapsed, length)


def window_at(start: datetime, length: timedelta, index: int, *, end: datetime | None = None) -> Window:
    """Return the window with an id, of windows from `start` on; `end` clips the last one, None for no end."""
    _require_length(length)
    start = to_utc(start)
    with suppress(OverflowError):  # after the year 9999
        first = start + (index - 1) * length
        last = first + (length if end is None else min(length, to_utc(end) - first))
        if index >= 1 and first < last:
            return Window(index, first, last)
    raise PlanError(
        f"there is no window {index}: windows of {duration_text(length)} are numbered from 1 at {time_text(start)}"
        + ("" if end is None else f" and the range ends at {time_text(end)}")
    )


def window_holding(start: datetime, length: timedelta, instant: datetime, *, end: datetime | None = None) -> Window:
    """Return the window that contains an aware instant; see `window_at`."""
    _require_length(length)
    instant, start = to_utc(instant), to_utc(start)
    if instant < start or (end is not None and instant >= to_utc(end)):
        raise PlanError(
            f"{time_text(instant)} lies in no window: the range is [{time_text(start)}, "
            f"{'open' if end is None else time_text(end)})"
        )
    return window_at(start, length, (instant - start) // length + 1, end=end)


def merge_ranges(windows: Iterable[Window]) -> tuple[TimeRange, ...]:
    """Return the intervals of windows in order, with adjacent ones joined."""
    merged: list[TimeRange] = []
    for window in sorted(windows):
        if merged and window.start <= merged[-1].end:
            merged[-1] = TimeRange(merged[-1].start, max(merged[-1].end, window.end))
        else:
            merged.append(window.range)
    return tuple(merged)


def _require_length(length: timedelta) -> None:
    if length <= timedelta(0) or length.microseconds:
        raise PlanError(f"window length {length} is not a positive number of whole seconds; give one such as 6h or 1d")


def _check_count(count: int, span: timedelta, length: timedelta) -> int:
    """Return the count if a plan may have that many windows."""
    if count > MAX_WINDOWS:
        least = -(-span // MAX_WINDOWS)
        whole_days = -(-least // _DAY) * _DAY
        shortest = next((each for each in _ROUND_LENGTHS if each >= least), whole_days)
        raise PlanError(
            f"chunk_time_window {duration_text(length)} cuts the range into {count:,} windows; the most is "
            f"{MAX_WINDOWS:,}; use {duration_text(shortest)} or longer",
            windows=count,
        )
    return count
