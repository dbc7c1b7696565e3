"""Proposes a range and the length of its windows, so that chunks have a sensible size. Pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from snapshot_assets.format.windows import TimeRange

CHUNK_BYTES = 512 << 20
"""Bytes of a chunk in the source: some seconds of work, so that a retry or an interruption loses little."""
_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)
_LENGTHS = (
    *(hours * _HOUR for hours in (1, 2, 3, 6, 12)),
    *(days * _DAY for days in (1, 7, 30, 90, 365, 3650)),
)
_MOST_WINDOWS = 2000
_OUTLIERS = 0.01
_HALVINGS = 30

Estimate = Callable[[datetime, datetime], int]
"""Returns the estimated bytes of the rows of a range."""


class Windows(NamedTuple):
    """A range, its windows' length, and the estimated bytes of all rows in it."""

    start: datetime
    end: datetime
    length: timedelta
    bytes: int


def propose_windows(bounds: TimeRange | None, estimate: Estimate, now: datetime, *, continuous: bool) -> Windows:
    """Return windows of about `CHUNK_BYTES` each.

    Args:
        bounds: Earliest and latest time of the source's rows; None if there are none.
        estimate: Estimates the rows of a range.
        now: The current time.
        continuous: Whether new windows are exported as they close, which should happen each day.
    """
    if bounds is None:
        today = _floor(now, _DAY)
        return Windows(today, _later(today, _DAY), _DAY, 0)
    start, end = bounds.start, _later(bounds.end, timedelta(microseconds=1))
    size = estimate(start, end)
    low, high = _bulk(start, end, size, estimate)
    ideal = (high - low) / max(1, -(-size // CHUNK_BYTES))
    until = max(end, now) if continuous else end
    fitting = [each for each in _LENGTHS if (until - start) / each <= _MOST_WINDOWS]
    wanted = min(ideal, _DAY) if continuous else ideal
    length = max((each for each in fitting if each <= wanted), default=fitting[0])
    unit = min(length, _DAY)
    return Windows(_floor(start, unit), _ceiling(end, unit), length, size)


def _bulk(start: datetime, end: datetime, size: int, estimate: Estimate) -> tuple[datetime, datetime]:
    """Return the part of a range with nearly all rows: some rows may have times such as 1970 or 9999."""
    for _ in range(_HALVINGS if size > CHUNK_BYTES else 0):
        middle = start + (end - start) / 2
        if estimate(start, middle) < _OUTLIERS * size:
            start = middle
        elif estimate(middle, end) < _OUTLIERS * size:
            end = middle
        else:
            break
    return start, end


def _floor(moment: datetime, unit: timedelta) -> datetime:
    """Return the last multiple of a unit since midnight that is not after a moment."""
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight + (moment - midnight) // unit * unit


def _ceiling(moment: datetime, unit: timedelta) -> datetime:
    floor = _floor(moment, unit)
    return floor if floor == moment else _later(floor, unit)


def _later(moment: datetime, by: timedelta) -> datetime:
    try:
        return moment + by
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)
