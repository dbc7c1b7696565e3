"""Values of other databases that PostgreSQL cannot hold: text with NUL, dates and times that are too early or late."""

from __future__ import annotations

from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from snapshot_assets.databases.protocol.target import UnfitValues
from snapshot_assets.format.relations import Column

_DAYS = (-2_440_588, 2_145_042_905)
"""4714-11-24 BC and 5874897-12-31, in days from 1970 on."""
_FIRST_MICROSECOND, _LAST_MICROSECOND = -210_866_803_200_000_000, (1 << 63) - 1
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000}


def unfit_values(column: Column) -> UnfitValues | None:
    """Return which values of a column's Arrow type PostgreSQL cannot hold; see `SqlTarget.unfit_values`."""
    kind = of = column.arrow_field().type
    while pa.types.is_list(of):
        of = of.value_type
    count = partial(_unfit, type_text=column.type)
    if _holds_text(of):
        return UnfitValues("with the character NUL, which PostgreSQL does not hold in text", count)
    if _limits(of, column.type) is None:
        return None
    early = f"before 4714-11-24 BC, or later than type {column.type} has"
    return UnfitValues(early, count, _limits(kind, column.type))


def _limits(kind: pa.DataType, type_text: str) -> tuple[int, int] | None:
    """Return the first and last value that PostgreSQL can hold, as Arrow's integers; None if all fit.

    Args:
        kind: The Arrow type of the values.
        type_text: PostgreSQL's type of their column.
    """
    if pa.types.is_date32(kind) and type_text.startswith("date"):
        return _DAYS
    if pa.types.is_timestamp(kind) and type_text.startswith("timestamp") and kind.unit in _PER_SECOND:
        factor = 1_000_000 // _PER_SECOND[kind.unit]
        return _FIRST_MICROSECOND // factor, _LAST_MICROSECOND // factor
    return None


def _holds_text(kind: pa.DataType) -> bool:
    """Return whether values are text, in which PostgreSQL has no NUL."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _unfit(values: pa.Array, type_text: str) -> int:
    """Return how many values PostgreSQL cannot hold; those of lists count one by one."""
    while pa.types.is_list(values.type):
        values = values.flatten()
    if _holds_text(values.type):
        return pc.sum(pc.match_substring(values, "\0")).as_py() or 0
    if (bounds := _limits(values.type, type_text)) is None:
        return 0
    numbers = values.cast(pa.int32() if pa.types.is_date32(values.type) else pa.int64())
    outside = pc.or_(pc.less(numbers, bounds[0]), pc.greater(numbers, bounds[1]))
    return pc.sum(outside).as_py() or 0
