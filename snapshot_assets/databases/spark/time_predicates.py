"""Windows as Spark SQL predicates: exact, and written so that they are pushed down to the files.

All instants are microseconds in a session whose time zone is UTC. Spark has no infinite times.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from snapshot_assets.databases.bounds import WIDEST_OFFSET, first_date, known_zone, moved, time_index_type
from snapshot_assets.databases.source import AllRows, Rows, TimelessRows
from snapshot_assets.databases.spark.sql import identifier, literal
from snapshot_assets.format.relations import Table

_KINDS = ("timestamp", "timestamp_ntz", "date")


@dataclass(frozen=True)
class TimeColumn:
    """A table's time index in SQL.

    Attributes:
        name: Quoted name.
        type: `timestamp`, `timestamp_ntz` or `date`.
        zone: Zone in which the last two are read.
    """

    name: str
    type: str
    zone: str

    def within(self, start: datetime, end: datetime) -> str:
        """Return the predicate of rows whose time lies in `[start, end)`."""
        if self.type == "timestamp_ntz" and self.zone != "UTC":
            # The plain bounds are for the files; around a change of clocks only the instant itself is right.
            near = self._between(moved(start, -WIDEST_OFFSET), moved(end, WIDEST_OFFSET))
            exact = f"{self._instant(self.name)} >= {_instant(start)} AND {self._instant(self.name)} < {_instant(end)}"
            return f"({near} AND CASE WHEN {near} THEN {exact} ELSE false END)"
        return self._between(start, end)

    def outside(self, start: datetime, end: datetime) -> str:
        """Return the predicate of rows whose time does not lie in `[start, end)`."""
        return f"({self.name} IS NOT NULL AND NOT {self.within(start, end)})"

    def bounds(self) -> str:
        """Return two SQL expressions, the least and the greatest time, as microseconds since 1970.

        What lies outside the years that Python knows is moved to their ends.
        """
        first, last = (f"CAST({literal(edge)} AS {self.type})" for edge in ("0001-01-03", "9999-12-29"))
        clamped = (f"greatest(least({end}({self.name}), {last}), {first})" for end in ("min", "max"))
        return ", ".join(f"unix_micros({self._instant(value)})" for value in clamped)

    def _between(self, start: datetime, end: datetime) -> str:
        return f"({self.name} >= {self._bound(start)} AND {self.name} < {self._bound(end)})"

    def _bound(self, bound: datetime) -> str:
        match self.type:
            case "date":
                return f"CAST({literal(_expanded(first_date(bound, known_zone(self.zone))))} AS DATE)"
            case "timestamp_ntz":
                return f"TIMESTAMP_NTZ {literal(_text(bound))}"
        return _instant(bound)

    def _instant(self, value: str) -> str:
        if self.type == "timestamp":
            return value
        return f"to_utc_timestamp(CAST({value} AS TIMESTAMP), {literal(self.zone)})"


def time_column(table: Table, zone: str) -> TimeColumn:
    """Return a timed table's time index.

    Raises:
        PlanError: There is no such zone, or the column's type holds no time.
    """
    kind = time_index_type(table, _KINDS, zone)
    return TimeColumn(identifier(str(table.time_index)), kind, zone)


def predicate(table: Table, rows: Rows) -> str:
    """Return the SQL predicate of a scan's rows."""
    if isinstance(rows, AllRows):
        return "true"
    if isinstance(rows, TimelessRows):
        return f"{time_column(table, 'UTC').name} IS NULL"
    return time_column(table, rows.zone).within(rows.start, rows.end)


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")


def _instant(moment: datetime) -> str:
    return f"TIMESTAMP {literal(_text(moment) + ' UTC')}"


def _expanded(date: str) -> str:
    """Return a date as Spark reads it: a year of five digits needs its sign."""
    return date if date.index("-") == 4 else f"+{date}"
