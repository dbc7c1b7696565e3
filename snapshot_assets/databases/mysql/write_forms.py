"""Arrow values as SQL constants, and the types and values that a target can hold.

Constants are made by Arrow, a column at a time. Bytes stand in them as they are: the session reads no escapes, and no
part of a character of utf8mb4 is a quote.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from snapshot_assets.databases.protocol.target import UnfitValues
from snapshot_assets.errors import UnsupportedTypeError
from snapshot_assets.format.relations import Column

TEXT, BYTES = "longtext", "longblob"
"""The types for texts and bytes of any length."""

_INTEGERS = {8: "tinyint", 16: "smallint", 32: "int", 64: "bigint"}
_MOST_DIGITS, _MOST_DECIMALS = 65, 30
_MOST_BYTES = 255
_DAYS = (-719_528, 2_932_896)
"""Of 0000-01-01 and 9999-12-31, since 1970."""

_PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def type_for(arrow_type: pa.DataType) -> str:
    """Return the type that holds an Arrow type's values exactly; see `TargetModule.type_for`."""
    is_ = pa.types
    if is_.is_boolean(arrow_type):
        return "tinyint(1)"
    if is_.is_integer(arrow_type):
        return f"{_INTEGERS[arrow_type.bit_width]}{' unsigned' if is_.is_unsigned_integer(arrow_type) else ''}"
    if arrow_type in (pa.float32(), pa.float64()):
        return "float" if arrow_type == pa.float32() else "double"
    if is_.is_decimal(arrow_type):
        fits = 0 <= arrow_type.scale <= _MOST_DECIMALS and arrow_type.precision <= _MOST_DIGITS
        return f"decimal({arrow_type.precision},{arrow_type.scale})" if fits else TEXT
    if is_.is_date(arrow_type):
        return "date"
    if is_.is_time(arrow_type) or is_.is_timestamp(arrow_type):
        kind = "time" if is_.is_time(arrow_type) else "datetime"
        return TEXT if arrow_type.unit == "ns" else f"{kind}(6)"
    if is_.is_fixed_size_binary(arrow_type) and arrow_type.byte_width <= _MOST_BYTES:
        return f"binary({arrow_type.byte_width})"
    if is_.is_binary(arrow_type) or is_.is_large_binary(arrow_type) or is_.is_fixed_size_binary(arrow_type):
        return BYTES
    if is_.is_string(arrow_type) or is_.is_large_string(arrow_type) or is_.is_null(arrow_type):
        return TEXT
    raise UnsupportedTypeError(f"MySQL has no type that holds {arrow_type} exactly.")


def constants_of(arrow_type: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    """Return what makes SQL constants, as bytes, of an Arrow type's values; NULL stays NULL."""
    is_ = pa.types
    if is_.is_binary(arrow_type) or is_.is_large_binary(arrow_type) or is_.is_fixed_size_binary(arrow_type):
        return partial(_quoted, b"_binary'")
    if is_.is_boolean(arrow_type):
        return lambda values: _bytes(values.cast(pa.uint8()))
    if is_.is_integer(arrow_type):
        return _bytes
    if arrow_type == pa.float32():  # the shortest text of the greatest one is beyond what the server takes for a FLOAT
        return lambda values: _quoted(b"'", values.cast(pa.float64()))
    if is_.is_timestamp(arrow_type) and arrow_type.tz is not None:
        return lambda values: _quoted(b"'", values.cast(pa.timestamp(arrow_type.unit)))
    return partial(_quoted, b"'")  # numbers too: a constant without quotes may be taken for another type, and rounded


def _bytes(values: pa.Array) -> pa.Array:
    return values.cast(pa.string()).cast(pa.binary())


def _quoted(before: bytes, values: pa.Array) -> pa.Array:
    is_ = pa.types
    if is_.is_fixed_size_binary(values.type) or is_.is_large_binary(values.type):
        values = values.cast(pa.binary())
    plain = values if is_.is_binary(values.type) else _bytes(values)
    if is_.is_string(values.type) or is_.is_large_string(values.type) or is_.is_binary(values.type):
        plain = pc.replace_substring(plain, b"'", b"''")
    return pc.binary_join_element_wise(pa.scalar(before), plain, pa.scalar(b"'"), pa.scalar(b""))


def rows_of(table: pa.Table) -> list[bytes]:
    """Return the rows of constants, each with commas between them."""
    columns = [column.combine_chunks() for column in table.columns]
    if len(columns) == 1:
        rows = columns[0].fill_null(b"NULL")
    else:
        rows = pc.binary_join_element_wise(*columns, pa.scalar(b","), null_handling="replace", null_replacement=b"NULL")
    found: list[bytes] = rows.to_pylist()
    return found


def unfit_values(column: Column) -> UnfitValues | None:
    """Return which values of a column's Arrow type MySQL cannot hold; see `SqlTarget.unfit_values`."""
    kind = column.arrow_field().type
    if kind in (pa.float32(), pa.float64()):
        return UnfitValues("that are infinite or no number, which MySQL has not", _count_infinite)
    if (bounds := _bounds(kind)) is None or column.type == TEXT:
        return None
    what = "before the year 0000 or after the year 9999, which MySQL has not"
    return UnfitValues(what, partial(_count_outside, bounds=bounds), bounds)


def _bounds(kind: pa.DataType) -> tuple[int, int] | None:
    if pa.types.is_date32(kind):
        return _DAYS
    if pa.types.is_timestamp(kind):
        per_day = _PER_DAY[kind.unit]
        return _DAYS[0] * per_day, (_DAYS[1] + 1) * per_day - 1
    return None


def _count_infinite(values: pa.Array) -> int:
    return pc.sum(pc.invert(pc.is_finite(values))).as_py() or 0


def _count_outside(values: pa.Array, bounds: tuple[int, int]) -> int:
    numbers = values.cast(pa.int32() if pa.types.is_date32(values.type) else pa.int64())
    return pc.sum(pc.or_(pc.less(numbers, bounds[0]), pc.greater(numbers, bounds[1]))).as_py() or 0
