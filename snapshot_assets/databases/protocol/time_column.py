"""A table's time index in SQL: the part that all databases share.

A window is two instants. A time without a zone is an instant only in a zone, and around a change of clocks the order
of local times is not the order of instants. There the predicate compares the instant itself, and adds wide bounds in
the column's own type, by which the database can skip data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Any, ClassVar, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from snapshot_assets.databases.protocol.source import AllRows, KeyRows, Rows, TimelessRows
from snapshot_assets.databases.sql import identifier
from snapshot_assets.errors import PlanError
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import Table

AFTER_ALL = "10000-01-01"
"""The first day after Python's last."""

_WIDEST_OFFSET = timedelta(hours=48)  # more than any zone's offset from UTC, plus a day
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class TimeColumn(ABC):
    """A table's time index in SQL.

    Attributes:
        name: Quoted name.
        type: Its type, one of `types`.
        zone: IANA zone in which a time without a zone is read.
    """

    types: ClassVar[tuple[str, ...]]
    """Types that a time index may have."""

    quote: ClassVar[str] = '"'

    name: str
    type: str
    zone: str

    @classmethod
    def of(cls, table: Table, zone: str = "UTC") -> Self:
        """Return the time index of a timed table.

        Raises:
            PlanError: There is no such zone, or `types` lacks the column's type.
        """
        assert table.time_index is not None
        kind = table.column(table.time_index).type
        if kind not in cls.types:
            raise PlanError(
                f"Column {table.time_index!r} of {table.table_name} is of type {kind}, which cannot be a time index."
                f" Name a column of one of: {', '.join(cls.types)}.",
                table=table_text(table.table_name),
            )
        known_zone(zone)
        return cls(identifier(table.time_index, cls.quote), kind, zone)

    @classmethod
    def predicate(cls, table: Table, rows: Rows) -> str:
        """Return the predicate of a scan's rows."""
        if isinstance(rows, AllRows):
            return "true"
        if isinstance(rows, KeyRows):
            return f"({rows.range.predicate})"
        if isinstance(rows, TimelessRows):
            return cls.of(table).timeless
        return cls.of(table, rows.zone).within(rows.start, rows.end)

    @property
    @abstractmethod
    def finite(self) -> str:
        """The predicate of rows with a finite time."""

    @property
    def timeless(self) -> str:
        """The predicate of rows whose time is NULL or infinite."""
        return f"({self.name} IS NULL OR NOT {self.finite})"

    @abstractmethod
    def within(self, start: datetime, end: datetime) -> str:
        """Return the predicate of rows whose time lies in `[start, end)`."""

    def considered(self, within: tuple[datetime, datetime] | None) -> str:
        """Return the predicate of rows with a finite time, or of those whose time lies in a range."""
        return self.finite if within is None else self.within(*within)

    def outside(self, start: datetime, end: datetime) -> str:
        """Return the predicate of rows whose finite time does not lie in `[start, end)`."""
        return f"({self.finite} AND NOT {self.within(start, end)})"


@dataclass(frozen=True)
class InstantColumn(TimeColumn):
    """A time index in SQL of a database that converts local times to instants itself."""

    def within(self, start: datetime, end: datetime) -> str:
        """Return the predicate of rows whose time lies in `[start, end)`."""
        if not self._shifts:
            return self._between(start, end)
        near = self._near(start, end)
        column = self._instant(self.name)
        exact = f"{column} >= {self._instant_constant(start)} AND {column} < {self._instant_constant(end)}"
        # CASE keeps the conversion to an instant away from values near the ends of the type's range, where it fails.
        return f"({near} AND CASE WHEN {near} THEN {exact} ELSE false END)"

    def bounds(self) -> str:
        """Return two SQL expressions, the least and the greatest time, in microseconds since 1970.

        A time outside Python's range is moved to the end of that range.
        """
        ends = (self._instant(self._clamped(f"{end}({self.name})")) for end in ("min", "max"))
        return ", ".join(map(self._microseconds, ends))

    def _near(self, start: datetime, end: datetime) -> str:
        """Return a predicate in the column's own type that all rows of `[start, end)` fulfil."""
        return self._between(moved(start, -_WIDEST_OFFSET), moved(end, _WIDEST_OFFSET))

    @property
    @abstractmethod
    def _shifts(self) -> bool:
        """Whether a change of clocks reorders the column's values."""

    def _between(self, start: datetime, end: datetime) -> str:
        """Return the predicate of `[start, end)` in the column's own type."""
        return f"({self.name} >= {self._bound(start)} AND {self.name} < {self._bound(end)})"

    @abstractmethod
    def _bound(self, bound: datetime) -> str:
        """Return an instant as a constant of the column's type; if that is coarser, the first one not before it."""

    @abstractmethod
    def _instant(self, value: str) -> str:
        """Return a value of the column's type as an instant."""

    @staticmethod
    @abstractmethod
    def _instant_constant(moment: datetime) -> str:
        """Return an instant as a constant."""

    @staticmethod
    @abstractmethod
    def _microseconds(instant: str) -> str:
        """Return an instant in microseconds since 1970."""

    def _clamped(self, value: str) -> str:
        within = f"greatest(least({value}, {self._constant('9999-12-29')}), {self._constant('0001-01-03')})"
        return f"CASE WHEN {value} IS NOT NULL THEN {within} END"  # of no rows; least and greatest ignore NULL

    def _constant(self, text: str) -> str:
        return f"CAST('{text}' AS {self.type})"


class TimedSource(ABC):
    """The part of a source that asks for times; see `SchemaSource`."""

    time_column: ClassVar[type[InstantColumn]]

    @abstractmethod
    def _first_row(self, values: str, table: Table, where: str) -> tuple[Any, ...]:
        """Return the first row of a query of a table."""

    def count_outside(self, table: Table, start: datetime, end: datetime, zone: str = "UTC") -> int:
        """Count the rows with a finite time outside `[start, end)`."""
        outside = self.time_column.of(table, zone).outside(start, end)
        return int(self._first_row("count(*)", table, outside)[0])

    def time_bounds(
        self, tables: tuple[Table, ...], zone: str = "UTC", within: tuple[datetime, datetime] | None = None
    ) -> tuple[datetime, datetime] | None:
        """Return the least and greatest finite time over the timed tables; see `SchemaSource.time_bounds`."""
        bounds: list[int | None] = []
        for table in tables:
            if table.time_index is not None:
                column = self.time_column.of(table, zone)
                bounds += self._first_row(column.bounds(), table, column.considered(within))
        return time_range(bounds)


def time_range(microseconds: Iterable[int | None]) -> tuple[datetime, datetime] | None:
    """Return the least and the greatest instant, given in microseconds since 1970 or as NULL; None for no instants."""
    instants = [_EPOCH + timedelta(microseconds=each) for each in microseconds if each is not None]
    return (min(instants), max(instants)) if instants else None


def utc_text(moment: datetime) -> str:
    """Return a moment's date and time in UTC, with microseconds and without the zone."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")


def first_date(bound: datetime, zone: ZoneInfo) -> str:
    """Return the first date whose midnight in `zone` is not before `bound`."""
    try:
        candidate = moved(bound, -_WIDEST_OFFSET).date()
        while datetime.combine(candidate, time(), zone).astimezone(UTC) < bound:
            candidate += timedelta(days=1)
    except OverflowError:
        return AFTER_ALL
    return candidate.isoformat()


def known_zone(zone: str) -> ZoneInfo:
    """Return a time zone by its IANA name.

    Raises:
        PlanError: No zone has that name.
    """
    try:
        return ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise PlanError(f"{zone!r} is not a time zone; write an IANA name such as Europe/Berlin.", zone=zone) from error


def moved(moment: datetime, by: timedelta) -> datetime:
    """Return a moment moved, or the end of Python's range in that direction."""
    try:
        return moment + by
    except OverflowError:
        return (datetime.min if by < timedelta() else datetime.max).replace(tzinfo=moment.tzinfo)
