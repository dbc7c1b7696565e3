"""Windows as Spark SQL predicates: exact, and written so that Spark pushes them down to the files.

All instants are microseconds in a session whose time zone is UTC. Spark has no infinite times.
"""

from __future__ import annotations

from datetime import datetime

from snapshot_assets.databases.protocol.time_column import TimeColumn, first_date, known_zone, utc_text
from snapshot_assets.databases.spark.sql import literal
from snapshot_assets.format.units import is_utc


class SparkTimeColumn(TimeColumn):
    """A table's time index in Spark SQL; see `TimeColumn`."""

    types = ("timestamp", "timestamp_ntz", "date")
    quote = "`"

    @property
    def finite(self) -> str:
        """The predicate of rows with a time."""
        return f"{self.name} IS NOT NULL"

    @property
    def timeless(self) -> str:
        """The predicate of rows without a time."""
        return f"{self.name} IS NULL"

    @property
    def _shifts(self) -> bool:
        return self.type == "timestamp_ntz" and not is_utc(self.zone)

    def _bound(self, bound: datetime) -> str:
        match self.type:
            case "date":
                return self._constant(_expanded(first_date(bound, known_zone(self.zone))))
            case "timestamp_ntz":
                return f"TIMESTAMP_NTZ {literal(utc_text(bound))}"
        return self._instant_constant(bound)

    def _instant(self, value: str) -> str:
        if self.type == "timestamp":
            return value
        return f"to_utc_timestamp(CAST({value} AS TIMESTAMP), {literal(self.zone)})"

    @staticmethod
    def _instant_constant(moment: datetime) -> str:
        return f"TIMESTAMP {literal(utc_text(moment) + ' UTC')}"

    @staticmethod
    def _microseconds(instant: str) -> str:
        return f"unix_micros({instant})"


def _expanded(date: str) -> str:
    """Return a date as Spark reads it: a year of five digits needs its sign."""
    return date if date.index("-") == 4 else f"+{date}"
