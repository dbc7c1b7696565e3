"""A half-open time range that selects chunks, and filters the rows of chunks at its edges."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from snapshot_assets.errors import PlanError
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import Table
from snapshot_assets.format.units import time_text


@dataclass(frozen=True)
class TimeFilter:
    """`[start, end)`; an end that is None is unbounded.

    Attributes:
        zone: IANA zone of times without one, from the snapshot's header.
    """

    start: datetime | None = None
    end: datetime | None = None
    zone: str = "UTC"

    def __post_init__(self) -> None:
        if self.start is not None and self.end is not None and self.start >= self.end:
            raise PlanError(
                f"The time range {time_text(self.start)}/{time_text(self.end)} is empty: its end must be later than"
                " its start.",
                start=self.start,
                end=self.end,
            )

    def overlaps(self, start: datetime, end: datetime) -> bool:
        """Return whether a window overlaps the range."""
        return (self.end is None or start < self.end) and (self.start is None or end > self.start)

    def covers(self, start: datetime, end: datetime) -> bool:
        """Return whether a window lies in the range, so that its rows need no filter."""
        return (self.start is None or start >= self.start) and (self.end is None or end <= self.end)

    def filter(self, batch: pa.RecordBatch, table: Table) -> pa.RecordBatch:
        """Return the rows of a timed table's batch whose time lies in the range.

        Raises:
            PlanError: The time column is carried as text, whose order is not that of times.
        """
        assert table.time_index is not None
        times = batch.column(table.time_index)
        return batch.filter(self.overlapping(times, times, table))

    def overlapping(self, first: pa.Array, last: pa.Array, table: Table) -> pa.BooleanArray:
        """Return whether the times from each first to its last one overlap the range; null where they are unknown.

        Raises:
            PlanError: See `filter`.
        """
        first, last = self._instants(first, table), self._instants(last, table)
        kept = pc.equal(first, first)
        for bound, times, compare in ((self.start, last, pc.greater_equal), (self.end, first, pc.less)):
            if bound is not None:
                kept = pc.and_(kept, compare(times, pa.scalar(bound.astimezone(UTC), times.type)))
        return kept

    def _instants(self, times: pa.Array, table: Table) -> pa.Array:
        """Return times as instants: a date is its midnight; a time without a zone is in the snapshot's zone."""
        if not (pa.types.is_timestamp(times.type) or pa.types.is_date(times.type)):
            raise PlanError(
                f"{table.table_name}.{table.time_index} is carried as {times.type}, so its rows cannot be filtered by"
                " time. Omit the time range, or the table.",
                table=table_text(table.table_name),
            )
        if pa.types.is_date(times.type):
            times = times.cast(pa.timestamp("s"))
        unit = times.type.unit if times.type.unit == "ns" else "us"
        if times.type.tz is not None:
            return times.cast(pa.timestamp(unit, "UTC"))
        return in_zone(times.cast(pa.timestamp(unit)), self.zone).cast(pa.timestamp(unit, "UTC"))


def clock_change(time: datetime, zone: str) -> timedelta:
    """Return by how much clocks of a zone change near an instant: so far apart are the instants of one local time.

    Where clocks changed by a day, as at Pacific/Apia in 2011, so do all times of that day.
    """
    near = [(time + timedelta(days=days)).astimezone(ZoneInfo(zone)).utcoffset() for days in (-2, 0, 2)]
    offsets = [each for each in near if each is not None]
    return max(offsets) - min(offsets)


def is_time(kind: pa.DataType) -> bool:
    """Return whether a column's values compare as times: a time that is carried as text does not."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date32(kind))


def in_zone(times: pa.Array, zone: str) -> pa.Array:
    """Return times without a zone as times of a zone.

    Where clocks go back, a local time means the later of two instants, as in databases.
    """
    return pc.assume_timezone(times, zone, ambiguous="latest", nonexistent="latest")
