"""Windows as SQL predicates: exact, and written so that DuckDB can skip row groups by them.

A bound is an instant. Where the column's unit is coarser it is rounded up to it, which changes nothing: `x >= bound`
and `x < bound` hold for the same `x` of the coarser unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from snapshot_assets.databases.bounds import AFTER_ALL, WIDEST_OFFSET, first_date, known_zone, moved, time_index_type
from snapshot_assets.databases.duckdb.sql import identifier, literal
from snapshot_assets.databases.source import AllRows, Rows, TimelessRows
from snapshot_assets.format.relations import Table

_UNITS: dict[str, timedelta] = {
    "DATE": timedelta(days=1),
    "TIMESTAMP_S": timedelta(seconds=1),
    "TIMESTAMP_MS": timedelta(milliseconds=1),
    "TIMESTAMP": timedelta(microseconds=1),
    "TIMESTAMP_NS": timedelta(microseconds=1),
    "TIMESTAMP WITH TIME ZONE": timedelta(microseconds=1),
    "TIMESTAMPTZ_NS": timedelta(microseconds=1),
}
"""Types a time index may have, and the unit its bounds are rounded up to."""

_ZONED = ("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NANOSECONDS_FROM = datetime(1677, 9, 22, tzinfo=UTC)
_NANOSECONDS_TO = datetime(2262, 4, 11, tzinfo=UTC)


@dataclass(frozen=True)
class TimeColumn:
    """A table's time index in SQL.

    Attributes:
        name: Quoted name.
        type: Type text, one of `_UNITS`.
        zone: Zone in which a time without one is read.
    """

    name: str
    type: str
    zone: str

    @property
    def finite(self) -> str:
        """The predicate of rows with a finite time."""
        return f"({self.name} > {self._constant('-infinity')} AND {self.name} < {self._constant('infinity')})"

    @property
    def timeless(self) -> str:
        """The predicate of rows whose time is NULL or infinite."""
        infinite = " OR ".join(f"{self.name} = {self._constant(end)}" for end in ("infinity", "-infinity"))
        return f"({self.name} IS NULL OR {infinite})"

    def within(self, start: datetime, end: datetime) -> str:
        """Return the predicate of rows whose time lies in `[start, end)`."""
        if self._shifts:
            # The pair of plain bounds lets DuckDB skip; the exact test sees only what they let through, because it
            # fails for times near the ends of the type's range.
            near = self._between(moved(start, -WIDEST_OFFSET), moved(end, WIDEST_OFFSET))
            return f"({near} AND {self._exactly(near, start, end)})"
        return self._between(start, end)

    def outside(self, start: datetime, end: datetime) -> str:
        """Return the predicate of rows whose finite time does not lie in `[start, end)`."""
        return f"({self.finite} AND NOT {self.within(start, end)})"

    def bounds(self) -> str:
        """Return two SQL expressions, the least and the greatest time, as microseconds since 1970.

        What lies outside the years that Python knows is moved to their ends.
        """
        return ", ".join(f"epoch_us({self._instant(self._clamped(f'{end}({self.name})'))})" for end in ("min", "max"))

    def _clamped(self, value: str) -> str:
        if self._nanoseconds:
            return value
        first, last = self._constant("0001-01-03"), self._constant("9999-12-29")
        return f"greatest(least({value}, {last}), {first})"

    @property
    def _shifts(self) -> bool:
        return self.zone != "UTC" and self.type not in _ZONED and self.type != "DATE"

    def _exactly(self, near: str, start: datetime, end: datetime) -> str:
        instant = self._instant(self.name)
        bounds = [_constant("TIMESTAMP WITH TIME ZONE", moment) for moment in (start, end)]
        return f"CASE WHEN {near} THEN {instant} >= {bounds[0]} AND {instant} < {bounds[1]} ELSE false END"

    def _instant(self, value: str) -> str:
        if self.type in _ZONED:
            return f"CAST({value} AS TIMESTAMP WITH TIME ZONE)"
        return f"timezone({literal(self.zone)}, CAST({value} AS TIMESTAMP))"

    def _between(self, start: datetime, end: datetime) -> str:
        return f"({self._lower(start)} AND {self._upper(end)})"

    def _lower(self, bound: datetime) -> str:
        if self._nanoseconds and bound < _NANOSECONDS_FROM:
            return f"{self.name} > {self._constant('-infinity')}"
        if self._nanoseconds and bound > _NANOSECONDS_TO:
            return "false"
        return f"{self.name} >= {self._bound(bound)}"

    def _upper(self, bound: datetime) -> str:
        if self._nanoseconds and bound > _NANOSECONDS_TO:
            return f"{self.name} < {self._constant('infinity')}"
        if self._nanoseconds and bound < _NANOSECONDS_FROM:
            return "false"
        return f"{self.name} < {self._bound(bound)}"

    @property
    def _nanoseconds(self) -> bool:
        return self.type.endswith("_NS")

    def _bound(self, bound: datetime) -> str:
        if self.type == "DATE":
            return self._constant(first_date(bound, known_zone(self.zone)))
        try:
            return _constant(self.type, bound + (_EPOCH - bound) % _UNITS[self.type])
        except OverflowError:
            return self._constant(AFTER_ALL)

    def _constant(self, text: str) -> str:
        return f"CAST({literal(text)} AS {self.type})"


def time_column(table: Table, zone: str) -> TimeColumn:
    """Return a timed table's time index.

    Args:
        table: The table; it has a time index.
        zone: Zone in which a time without one is read.

    Raises:
        PlanError: There is no such zone, or the column's type holds no time.
    """
    kind = time_index_type(table, _UNITS, zone)
    return TimeColumn(identifier(str(table.time_index)), kind, zone)


def predicate(table: Table, rows: Rows) -> str:
    """Return the SQL predicate of a scan's rows."""
    if isinstance(rows, AllRows):
        return "true"
    if isinstance(rows, TimelessRows):
        return time_column(table, "UTC").timeless
    return time_column(table, rows.zone).within(rows.start, rows.end)


def _constant(kind: str, moment: datetime) -> str:
    naive = moment.astimezone(UTC).replace(tzinfo=None)
    text = naive.isoformat(sep=" ", timespec="microseconds")
    return f"CAST({literal(text + '+00' if kind in _ZONED else text)} AS {kind})"
