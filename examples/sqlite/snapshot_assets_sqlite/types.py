"""How values travel. A column of SQLite may hold a value of any type: natively travels what its declaration promises.

Other values are refused before anything is exported (`Native.unfit`), until the plan has them carried as text.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from snapshot_assets.databases.protocol.time_column import InstantColumn, first_date, known_zone, utc_text
from snapshot_assets.databases.sql import literal

TIMESTAMPS = ("TIMESTAMP", "DATETIME")


@dataclass(frozen=True)
class Native:
    """The native carrier of a declared type; `unfit` is SQL that is true for values that it cannot hold."""

    arrow: pa.DataType
    unfit: str

    def array(self, values: list[Any]) -> pa.Array:
        """Return values of SQLite as an array of the type; raises an `ArrowException` if one does not fit."""
        temporal = pa.types.is_temporal(self.arrow)
        return pa.array(values, pa.string()).cast(self.arrow) if temporal else pa.array(values, self.arrow)


def _storage(*classes: str) -> str:
    return f"typeof({{}}) NOT IN ({', '.join(map(literal, ('null', *classes)))})"


_DAY = "typeof({0}) = 'text' AND date({0}) IS {0} AND {0} >= '0001'"
_TIME = (
    "typeof({0}) = 'text' AND {0} >= '0001' AND length({0}) IN (10, 16, 19, 21, 22, 23, 24, 25, 26)"
    " AND datetime(substr({0}, 1, 19)) IS substr({0}, 1, 19) || substr(' 00:00:00', min(length({0}), 19) - 9)"
    " AND (length({0}) < 20 OR substr({0}, 20, 1) = '.' AND substr({0}, 21) NOT GLOB '*[^0-9]*')"
)
_TIMES = {"DATE": _DAY, **dict.fromkeys(TIMESTAMPS, _TIME)}
_AFFINITIES = (  # https://sqlite.org/datatype3.html#determination_of_column_affinity
    (("INT", "BOOL"), Native(pa.int64(), _storage("integer"))),
    (("CHAR", "CLOB", "TEXT"), Native(pa.string(), _storage("text"))),
    (("BLOB",), Native(pa.binary(), _storage("blob"))),
    (("REAL", "FLOA", "DOUB"), Native(pa.float64(), _storage("real"))),
)


def native_of(declared: str) -> Native | None:
    """Return the native carrier of a declared type; None if only text is exact, as for NUMERIC and no type at all."""
    if declared in _TIMES:
        arrow = pa.date32() if declared == "DATE" else pa.timestamp("us")
        return Native(arrow, f"{{0}} IS NOT NULL AND NOT ({_TIMES[declared]})")
    return next((native for words, native in _AFFINITIES if any(word in declared for word in words)), None)


def as_text(column: str) -> str:
    """Return SQL of a column's values as text: a number with all its digits, bytes as `X'00FF'`."""
    number = f"printf('%!.17g', {column})"
    return f"CASE typeof({column}) WHEN 'real' THEN {number} WHEN 'blob' THEN quote({column}) ELSE {column} || '' END"


class SqliteTimeColumn(InstantColumn):
    """A time index: texts in ISO 8601, which sort as their times. Rows with other values are timeless."""

    types = (*TIMESTAMPS, "DATE")

    @property
    def finite(self) -> str:
        """The predicate of rows with a time."""
        return f"({_TIMES[self.type].format(self.name)})"

    @property
    def _shifts(self) -> bool:
        return self.type != "DATE" and self.zone != "UTC"

    def _between(self, start: datetime, end: datetime) -> str:
        return f"({super()._between(start, end)} AND {self.finite})"

    def _bound(self, bound: datetime) -> str:
        if self.type == "DATE":
            return literal(first_date(bound, known_zone(self.zone)))
        # The shortest text of the time: longer ones of it are greater. `2024-01-01` is midnight, too.
        text = utc_text(bound)
        for zeros in (".000000", ":00", ":00", " 00"):
            if not text.endswith(zeros):
                return literal(text.rstrip("0") if "." in text else text)
            text = text.removesuffix(zeros)
        return literal(text)

    def _instant(self, value: str) -> str:
        return f"snapshots_us({value}, {literal(self.zone)})"

    @staticmethod
    def _instant_constant(moment: datetime) -> str:
        return str((moment - datetime(1970, 1, 1, tzinfo=UTC)) // (datetime.resolution))

    @staticmethod
    def _microseconds(instant: str) -> str:
        return instant

    def _clamped(self, value: str) -> str:
        return value  # SQLite's times are in Python's range
