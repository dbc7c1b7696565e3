"""Values of other databases that PostgreSQL cannot hold: text with NUL, dates and times that are too early or late."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_DAYS = (-2_440_588, 2_145_042_905)
"""4714-11-24 BC and 5874897-12-31, in days from 1970 on."""
_FIRST_MICROSECOND, _LAST_MICROSECOND = -210_866_803_200_000_000, (1 << 63) - 1
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000}


def limits(kind: pa.DataType, type_text: str) -> tuple[int, int] | None:
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


def holds_text(kind: pa.DataType) -> bool:
    """Return whether values are text, in which PostgreSQL has no NUL."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def unfit(values: pa.Array, type_text: str) -> int:
    """Return how many values PostgreSQL cannot hold; those of lists count one by one."""
    while pa.types.is_list(values.type):
        values = values.flatten()
    if holds_text(values.type):
        return pc.sum(pc.match_substring(values, "\0")).as_py() or 0
    if (bounds := limits(values.type, type_text)) is None:
        return 0
    numbers = values.cast(pa.int32() if pa.types.is_date32(values.type) else pa.int64())
    outside = pc.or_(pc.less(numbers, bounds[0]), pc.greater(numbers, bounds[1]))
    return pc.sum(outside).as_py() or 0
