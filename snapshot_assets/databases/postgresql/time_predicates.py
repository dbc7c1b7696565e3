"""Predicates on a table's time column: each in the column's own type, so that an index on it can be used.

A window is two instants. A `timestamptz` is compared as it is. A `timestamp` is an instant only in a zone, and around
a change of clocks the order of local times is not that of instants: there the instant itself is compared, and
wide bounds on the column are added for the index. A `date` is its midnight.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa

from snapshot_assets.databases.postgresql.sql import instant, literal
from snapshot_assets.databases.source import AllRows, Rows, TimelessRows, WindowRows
from snapshot_assets.databases.sql import identifier
from snapshot_assets.errors import PlanError
from snapshot_assets.format.relations import Table

_SLACK = timedelta(days=2)  # more than any zone's offset from UTC, plus a date's midnight


@dataclass(frozen=True)
class TimeColumn:
    """A table's time column.

    Attributes:
        name: The column.
        type: `timestamptz`, `timestamp` or `date`.
        zone: IANA zone in which a `timestamp` or `date` is read.
    """

    name: str
    type: str
    zone: str = "UTC"

    def __post_init__(self) -> None:
        try:
            ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError) as cause:
            raise PlanError(
                f"{self.zone!r} is not a time zone; write an IANA name such as `UTC` or `Europe/Madrid`."
            ) from cause

    @property
    def sql(self) -> str:
        """The quoted column."""
        return identifier(self.name)

    @property
    def finite(self) -> str:
        """Whether the column holds a time at all; false or NULL for what chunk 0 holds."""
        return f"pg_catalog.isfinite({self.sql})"

    @property
    def instant(self) -> str:
        """The column as a `timestamptz`."""
        if self.type == "timestamptz":
            return f"{self.sql}::pg_catalog.timestamptz"
        return f"pg_catalog.timezone({literal(self.zone)}, {self.sql}::pg_catalog.timestamp)"

    def within(self, start: datetime, end: datetime) -> str:
        """Return the predicate of `[start, end)`."""
        if self.type == "timestamptz":
            return f"({self.sql} >= {instant(start)} AND {self.sql} < {instant(end)})"
        if self.zone == "UTC":
            return f"({self.sql} >= {self._own(start)} AND {self.sql} < {self._own(end)})"
        near = f"{self.sql} >= {self._own(_moved(start, -_SLACK))} AND {self.sql} < {self._own(_moved(end, _SLACK))}"
        exact = f"{self.instant} >= {instant(start)} AND {self.instant} < {instant(end)}"
        # CASE keeps the conversion away from values that it would fail on.
        return f"({near} AND CASE WHEN {near} THEN {exact} ELSE false END)"

    def predicate(self, rows: Rows) -> str | None:
        """Return the predicate of some rows; None for all."""
        match rows:
            case AllRows():
                return None
            case WindowRows(start, end):
                return self.within(start, end)
            case TimelessRows():
                return f"({self.sql} IS NULL OR NOT {self.finite})"

    def _own(self, moment: datetime) -> str:
        """Return a moment as a constant of the column's type; a date that begins between two midnights, rounded up."""
        local = moment.astimezone(UTC).replace(tzinfo=None)
        if self.type == "timestamp":
            return f"{literal(local.isoformat())}::pg_catalog.timestamp"
        day = f"{literal(local.date().isoformat())}::pg_catalog.date"
        return day if local.time() == datetime.min.time() else f"({day} + 1)"


def documented(table: Table, zone: str) -> TimeColumn:
    """Return a timed table's time column by what its document says, without asking the server.

    Args:
        table: The table; it has a time index, which may be of a domain.
        zone: IANA zone in which a time without one is read.
    """
    assert table.time_index is not None
    column = table.column(table.time_index)
    arrow_type, text = column.arrow_field().type, column.type
    if pa.types.is_date(arrow_type) or text == "date":
        return TimeColumn(column.name, "date", zone)
    zoned = "with time zone" in text or (pa.types.is_timestamp(arrow_type) and arrow_type.tz is not None)
    return TimeColumn(column.name, "timestamptz" if zoned else "timestamp", zone)


def _moved(moment: datetime, by: timedelta) -> datetime:
    try:
        return moment.astimezone(UTC) + by
    except OverflowError:
        return moment
