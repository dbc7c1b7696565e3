"""Windows as ranges of the time index in its own type, so that an index on it serves them.

The server's time zones may be out of date or not loaded, and its conversion ends in 2038. So the ranges of local times
that a window's instants have in a zone are computed here. A local time that occurs twice is the first of its instants;
one that a change of clocks skips is read with the offset from before.

A date without a month or a day, such as `2024-00-00`, is no day, and Arrow and Python have no year 0: such rows are
timeless.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from snapshot_assets.databases.protocol.time_column import AFTER_ALL, TimeColumn, first_date, known_zone, moved

_FRACTIONS = ("", *(f"({digits})" for digits in range(1, 7)))
TIMESTAMPS = tuple(f"{name}{digits}" for name in ("datetime", "timestamp") for digits in _FRACTIONS)
"""Types of local times and of instants."""

_SAFE = datetime(1970, 1, 2)
"""From here on, comparisons of a TIMESTAMP leave out 0000-00-00.

MySQL takes one with an earlier time for true or false without looking at the row ("Constant-Folding Optimization").
"""

_NEAR = timedelta(days=2)  # more than any offset and change of clocks
_STEP, _LEAST = timedelta(hours=1), timedelta(seconds=1)

_Range = tuple[datetime, datetime | None]
"""Local times from one on, and before another or without an end."""


class MysqlTimeColumn(TimeColumn):
    """A table's time index in MySQL's SQL; see `TimeColumn`."""

    types = ("date", *TIMESTAMPS)

    @property
    def finite(self) -> str:
        """The predicate of rows whose time is a time."""
        return f"({' OR '.join(self.finite_parts)})"

    @property
    def finite_parts(self) -> tuple[str, ...]:
        """The predicates of disjoint rows whose time is a time; of each, an index gives the least and greatest time."""
        if self._zoned:
            later = f"{self.name} >= TIMESTAMP'{_SAFE}'"
            return later, f"{self.name} < TIMESTAMP'{_SAFE}' AND {self._whole}"
        return (f"({self.name} >= DATE'0001-01-01' AND {self._whole})",)

    @property
    def _zoned(self) -> bool:
        return self.type.startswith("timestamp")

    @property
    def _whole(self) -> str:
        return f"MONTH({self.name}) > 0 AND DAYOFMONTH({self.name}) > 0"

    def within(self, start: datetime, end: datetime) -> str:
        """Return the predicate of rows whose time lies in `[start, end)`."""
        if self.type == "date":
            first, last = (first_date(each, known_zone(self.zone)) for each in (start, end))
            ranges = f"{self.name} < DATE'{last}'" if last != AFTER_ALL else "true"
            ranges = f"{self.name} >= DATE'{first}' AND {ranges}" if first != AFTER_ALL else "false"
        else:
            zone = ZoneInfo("UTC") if self._zoned else known_zone(self.zone)
            found = list(_without(_from(start, zone), _from(end, zone)))
            ranges = " OR ".join(f"({self._between(*each)})" for each in found) or "false"
        safe = self._zoned and start.astimezone(UTC).replace(tzinfo=None) >= _SAFE
        return f"(({ranges}){'' if safe else f' AND {self._whole}'})"

    def _between(self, low: datetime, high: datetime | None) -> str:
        above = f"{self.name} >= TIMESTAMP'{low}'"
        return above if high is None else f"{above} AND {self.name} < TIMESTAMP'{high}'"

    def instant(self, text: str) -> datetime:
        """Return the instant of a finite time, given as the server's text."""
        local = datetime.fromisoformat(text)
        return local.replace(tzinfo=UTC if self._zoned else known_zone(self.zone)).astimezone(UTC)


def _from(instant: datetime, zone: ZoneInfo) -> list[_Range]:
    """Return the local times of a zone that are not before an instant, in order."""
    local = instant.astimezone(UTC).replace(tzinfo=None)
    last = moved(local, _NEAR)
    found: list[_Range] = []
    for low, high in pairwise([*_pieces(moved(local, -_NEAR), last, zone), last]):
        begin = max(low, moved(local, _offset(low, zone)))
        if begin < high:
            if found and found[-1][1] == begin:
                found[-1] = (found[-1][0], high)
            else:
                found.append((begin, high))
    return [*found[:-1], (found[-1][0], None)] if found else []


def _pieces(low: datetime, high: datetime, zone: ZoneInfo) -> Iterator[datetime]:
    """Yield a local time and all up to another one where the offset from UTC changes."""
    yield low
    while low < high:
        after = min(moved(low, _STEP), high)
        if _offset(low, zone) != _offset(after, zone):
            yield _change(low, after, zone)
        low = after


def _change(low: datetime, high: datetime, zone: ZoneInfo) -> datetime:
    """Return the first second, after `low` and up to `high`, from which on the offset is that of `high`."""
    before = _offset(low, zone)
    while high - low > _LEAST:
        middle = low + timedelta(seconds=(high - low) // _LEAST // 2)
        low, high = (middle, high) if _offset(middle, zone) == before else (low, middle)
    return high


def _offset(local: datetime, zone: ZoneInfo) -> timedelta:
    return local.replace(tzinfo=zone).utcoffset() or timedelta()


def _without(ranges: Sequence[_Range], later: Sequence[_Range]) -> Iterator[_Range]:
    """Yield the local times of some ranges that are in none of other ones."""
    for low, high in ranges:
        begin: datetime | None = low
        for start, end in later:
            if begin is None or (end is not None and end <= begin) or (high is not None and start >= high):
                continue
            if start > begin:
                yield begin, start
            begin = end
        if begin is not None and (high is None or begin < high):
            yield begin, high
