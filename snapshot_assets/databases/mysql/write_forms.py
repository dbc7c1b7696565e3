"""Arrow values as SQL constants, and the types and values that a target can hold.

Constants are made by Arrow, a column at a time. Bytes stand in them as they are, but for quotes and backslashes, which
are no part of a character of utf8mb4.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
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

_ESCAPES = {b"\\": b"\\\\", b"\t": b"\\t", b"\n": b"\\n"}
NO_FIELD = b"\\N"
"""NULL in a file for LOAD DATA."""

_DIGITS = np.frombuffer(b"".join(b"%02X" % byte for byte in range(256)), np.uint16)
"""The two hexadecimal digits of each byte."""

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


def constants_of(values: pa.Array) -> pa.Array:
    """Return SQL constants, as bytes, of values; NULL stays NULL."""
    kind, text = values.type, _text(values)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return text
    if holds_bytes(kind) or _holds_text(kind):
        text = pc.replace_substring(pc.replace_substring(text, b"\\", b"\\\\"), b"'", b"''")
    # Numbers too: a constant without quotes may be taken for another type, and rounded.
    before = b"_binary'" if holds_bytes(kind) else b"'"
    return pc.binary_join_element_wise(pa.scalar(before), text, pa.scalar(b"'"), pa.scalar(b""))


def fields_of(values: pa.Array) -> pa.Array:
    """Return fields of a file for LOAD DATA, as bytes, of values; NULL stays NULL, and bytes are hexadecimal digits."""
    kind, text = values.type, _text(values)
    if holds_bytes(kind):
        return _hexadecimal(text)
    if _holds_text(kind):
        content = content_of(text).tobytes()
        for plain, escaped in _ESCAPES.items():
            if plain in content:  # a search takes less time than a copy
                text = pc.replace_substring(text, plain, escaped)
    return text


def content_of(values: pa.Array) -> memoryview:
    """Return the bytes of all values, one after the other."""
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, np.int32)
    return memoryview(data or b"")[ends[values.offset] : ends[values.offset + len(values)]]


def holds_bytes(kind: pa.DataType) -> bool:
    """Return whether values are bytes."""
    is_ = pa.types
    return bool(is_.is_binary(kind) or is_.is_large_binary(kind) or is_.is_fixed_size_binary(kind))


def _holds_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _text(values: pa.Array) -> pa.Array:
    """Return values as MySQL's texts, in bytes."""
    kind = values.type
    if holds_bytes(kind):
        return values.cast(pa.binary())
    if pa.types.is_boolean(kind):
        values = values.cast(pa.uint8())
    elif kind == pa.float32():  # the shortest text of the greatest one is beyond what the server takes for a FLOAT
        values = values.cast(pa.float64())
    elif pa.types.is_timestamp(kind) and kind.tz is not None:
        values = values.cast(pa.timestamp(kind.unit))
    return values.cast(pa.string()).cast(pa.binary())


def _hexadecimal(values: pa.Array) -> pa.Array:
    plain = values.fill_null(b"")
    ends = np.concatenate(([0], 2 * np.cumsum(pc.binary_length(plain).to_numpy()))).astype(np.int32)
    digits = _DIGITS[np.frombuffer(content_of(plain), np.uint8)]
    found = pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(ends), pa.py_buffer(digits)])
    return pc.if_else(values.is_valid(), found, pa.scalar(None, pa.binary()))


def rows_of(columns: Sequence[pa.Array]) -> list[bytes]:
    """Return the rows of constants, each with commas between them."""
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
