"""Predicates on a table's time index, in the column's own type, so that PostgreSQL can use an index on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

import pyarrow as pa

from snapshot_assets.databases.protocol.time_column import InstantColumn, known_zone
from snapshot_assets.databases.sql import identifier, literal
from snapshot_assets.format.relations import Table
from snapshot_assets.format.units import is_utc


@dataclass(frozen=True)
class PostgresqlTimeColumn(InstantColumn):
    """A table's time index in PostgreSQL's SQL; see `InstantColumn`."""

    types = ("timestamptz", "timestamp", "date")

    @classmethod
    def of(cls, table: Table, zone: str = "UTC") -> Self:
        """Return the time index of a timed table from its document, which may name a domain."""
        assert table.time_index is not None
        column = table.column(table.time_index)
        arrow_type, text = column.arrow_field().type, column.type
        if pa.types.is_date(arrow_type) or text == "date":
            return cls.typed(column.name, "date", zone)
        zoned = "with time zone" in text or (pa.types.is_timestamp(arrow_type) and arrow_type.tz is not None)
        return cls.typed(column.name, "timestamptz" if zoned else "timestamp", zone)

    @classmethod
    def typed(cls, name: str, kind: str, zone: str) -> Self:
        """Return a time index of a base type, one of `types`; see `of`."""
        known_zone(zone)
        return cls(identifier(name), kind, zone)

    @property
    def finite(self) -> str:
        """The predicate of rows with a finite time; an index on the column serves it and its negation."""
        return f"({self.name} > '-infinity' AND {self.name} < 'infinity')"

    def number(self, edges: Sequence[datetime]) -> str:
        """Return how many of some sorted instants are not after a row's time; -1 without a finite time."""
        value = self._instant(self.name) if self._shifts else f"{self.name}::pg_catalog.{self.type}"
        constants = ", ".join(self._instant_constant(each) if self._shifts else self._bound(each) for each in edges)
        number = f"pg_catalog.width_bucket({value}, ARRAY[{constants}])" if edges else "0"
        if edges and self._shifts:
            # Values near the ends of the type's range have no instant.
            number = f"CASE WHEN {self._near(edges[0], edges[-1])} THEN {number} ELSE 0 END"
        return f"CASE WHEN pg_catalog.isfinite({self.name}) THEN {number} ELSE -1 END"

    def bounds_query(self, source: str, within: tuple[datetime, datetime] | None = None) -> str:
        """Return the query of the least and greatest finite time of a FROM item, in microseconds since 1970.

        `within` leaves out the rows outside a range.
        """
        considered = self.considered(within)
        least, greatest = f"pg_catalog.min({self.name})", f"pg_catalog.max({self.name})"
        ends = f"SELECT {least} AS low, {greatest} AS high FROM {source} WHERE {considered}"
        if not self._shifts:
            moments = (f"{self._microseconds(self._instant(name))} AS {name}" for name in ("low", "high"))
            return f"SELECT {', '.join(moments)} FROM ({ends}) ends"
        # When clocks change, the least local time may not be the least instant: compare all within two days.
        near = "interval '2 days'"
        moment = self._instant(self.name)
        return (
            f"SELECT {self._microseconds(f'min({moment})')} AS low, {self._microseconds(f'max({moment})')} AS high"
            f" FROM {source}, ({ends}) ends"
            f" WHERE {considered} AND ({self.name} <= ends.low + {near} OR {self.name} >= ends.high - {near})"
        )

    @property
    def _shifts(self) -> bool:
        return self.type != "timestamptz" and not is_utc(self.zone)

    def _bound(self, bound: datetime) -> str:
        if self.type == "timestamptz":
            return self._instant_constant(bound)
        local = bound.astimezone(UTC).replace(tzinfo=None)
        if self.type == "timestamp":
            return f"{literal(local.isoformat())}::pg_catalog.timestamp"
        day = f"{literal(local.date().isoformat())}::pg_catalog.date"
        return day if local.time() == datetime.min.time() else f"({day} + 1)"

    def _instant(self, value: str) -> str:
        if self.type == "timestamptz":
            return f"{value}::pg_catalog.timestamptz"
        return f"pg_catalog.timezone({literal(self.zone)}, {value}::pg_catalog.timestamp)"

    @staticmethod
    def _instant_constant(moment: datetime) -> str:
        return f"{literal(moment.isoformat())}::pg_catalog.timestamptz"

    @staticmethod
    def _microseconds(instant: str) -> str:
        return f"(extract(epoch FROM {instant}) * 1000000)::int8"
