"""Windows as DuckDB SQL predicates: exact, and written so that DuckDB can skip row groups by them.

A bound is an instant. Where the column's unit is coarser, the bound is rounded up to that unit. That changes nothing:
`x >= bound` and `x < bound` hold for the same `x` of the coarser unit.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from snapshot_assets.databases.protocol.time_column import AFTER_ALL, InstantColumn, first_date, known_zone, utc_text
from snapshot_assets.databases.sql import literal
from snapshot_assets.format.units import is_utc

_UNITS: dict[str, timedelta] = {
    "DATE": timedelta(days=1),
    "TIMESTAMP_S": timedelta(seconds=1),
    "TIMESTAMP_MS": timedelta(milliseconds=1),
    "TIMESTAMP": timedelta(microseconds=1),
    "TIMESTAMP_NS": timedelta(microseconds=1),
    "TIMESTAMP WITH TIME ZONE": timedelta(microseconds=1),
    "TIMESTAMPTZ_NS": timedelta(microseconds=1),
}
"""Types that a time index may have, and the unit that its bounds are rounded up to."""

TIMESTAMPS = frozenset(_UNITS) - {"DATE"}

_ZONED = ("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NANOSECONDS_FROM = datetime(1677, 9, 22, tzinfo=UTC)
_NANOSECONDS_TO = datetime(2262, 4, 11, tzinfo=UTC)


class DuckDBTimeColumn(InstantColumn):
    """A table's time index in DuckDB SQL; see `InstantColumn`."""

    types = tuple(_UNITS)

    @property
    def finite(self) -> str:
        """The predicate of rows with a finite time."""
        return f"({self.name} > {self._constant('-infinity')} AND {self.name} < {self._constant('infinity')})"

    @property
    def _shifts(self) -> bool:
        return not is_utc(self.zone) and self.type not in _ZONED and self.type != "DATE"

    @property
    def _nanoseconds(self) -> bool:
        return self.type.endswith("_NS")

    def _between(self, start: datetime, end: datetime) -> str:
        between = super()._between(start, end)
        return f"({between} AND {self.finite})" if self._nanoseconds else between

    def _bound(self, bound: datetime) -> str:
        if self._nanoseconds and not _NANOSECONDS_FROM <= bound <= _NANOSECONDS_TO:
            return self._constant("-infinity" if bound < _NANOSECONDS_FROM else "infinity")
        if self.type == "DATE":
            return self._constant(first_date(bound, known_zone(self.zone)))
        try:
            rounded = bound + (_EPOCH - bound) % _UNITS[self.type]
        except OverflowError:
            return self._constant(AFTER_ALL)
        return self._constant(f"{utc_text(rounded)}{'+00' if self.type in _ZONED else ''}")

    def _instant(self, value: str) -> str:
        if self._nanoseconds:
            # A cast rounds half a microsecond up, so that a row would count to the window after its own.
            nanoseconds = f"epoch_ns({value})"
            value = f"make_timestamp({nanoseconds} // 1000 - CAST({nanoseconds} % 1000 < 0 AS BIGINT))"
        if self.type == "TIMESTAMPTZ_NS":
            return f"timezone('UTC', {value})"
        if self.type in _ZONED:
            return f"CAST({value} AS TIMESTAMP WITH TIME ZONE)"
        return f"timezone({literal(self.zone)}, CAST({value} AS TIMESTAMP))"

    @staticmethod
    def _instant_constant(moment: datetime) -> str:
        return f"CAST('{utc_text(moment)}+00' AS TIMESTAMP WITH TIME ZONE)"

    @staticmethod
    def _microseconds(instant: str) -> str:
        return f"epoch_us({instant})"

    def _clamped(self, value: str) -> str:
        return value if self._nanoseconds else super()._clamped(value)
