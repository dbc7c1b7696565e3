"""Values as text and back: exact, in a form that PostgreSQL's input functions read (FORMAT.md, section 4)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from snapshot_assets.format.time_values import text_to_time, time_to_text

WIDE_BYTES = 1 << 27
"""Rows of more bytes in Arrow's memory may become more than 2 GiB of text."""
_HEX_PREFIX = "\\x"
_UUID_BYTES = 16
_GROUPS = (8, 4, 4, 4, 12)
"""Hex digits between the hyphens of a UUID."""


def entries_of(array: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return the maps of an array as lists of pairs, and the keys and the items of all maps one behind the other."""
    pair = pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])
    lists = array.cast(pa.list_(pair))
    keys, items = lists.flatten().flatten()
    return lists, keys, items


def to_text(array: pa.Array) -> pa.Array:
    r"""Return values as strings; NULL stays NULL.

    Floats are the shortest text that reads back equal, and decimals have all digits of their scale. Times are ISO 8601
    with a space and, where they have a zone, `Z` (see `times`). Bytes are `\x` and hex digits, and 16 fixed bytes a
    UUID. Durations are whole numbers of their unit.
    """
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return array
    if pa.types.is_floating(kind):
        return _named_floats(array)
    if is_time(kind):
        return time_to_text(array)
    if pa.types.is_duration(kind):
        return array.cast(pa.int64()).cast(pa.string())
    if pa.types.is_fixed_size_binary(kind) and kind.byte_width == _UUID_BYTES:
        return _uuids(array)
    if is_bytes(kind):
        return joined(_HEX_PREFIX, _hex(array.cast(pa.large_binary())))
    return array.cast(pa.string())


def from_text(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the values of a type that `to_text` wrote; values that have it already stay.

    Raises:
        ArrowInvalid: A text is no value of the type.
    """
    if texts.type == kind:
        return texts
    if pa.types.is_null(kind):
        if texts.null_count < len(texts):
            raise pa.ArrowInvalid("a text stands where only NULL can be")
        return pa.nulls(len(texts))
    if pa.types.is_duration(kind):
        return texts.cast(pa.int64()).cast(kind)
    if pa.types.is_fixed_size_binary(kind) and kind.byte_width == _UUID_BYTES:
        return _unhex(pc.replace_substring(texts, "-", "")).cast(kind)
    if is_bytes(kind):
        return _unhex(pc.binary_replace_slice(texts.cast(pa.large_binary()), 0, len(_HEX_PREFIX), b"")).cast(kind)
    if is_time(kind):
        return text_to_time(texts, kind)
    if pa.types.is_time(kind):  # Arrow casts texts to timestamps only
        return joined("1970-01-01 ", texts).cast(pa.timestamp(kind.unit)).cast(kind)
    return texts.cast(kind)


def joined(*parts: pa.Array | str, separator: str = "", wide: bool = False) -> pa.Array:
    """Join texts row by row; NULL if one of them is NULL. A part that is one text is in each row.

    Only a `wide` result may have more than 2 GiB.
    """
    wide = wide or any(pa.types.is_large_string(part.type) for part in parts if not isinstance(part, str))
    kind = pa.large_string() if wide else pa.string()
    texts = [pa.scalar(part, kind) if isinstance(part, str) else part.cast(kind) for part in parts]
    return pc.binary_join_element_wise(*texts, pa.scalar(separator, kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Return whether a type holds bytes."""
    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    return any(test(kind) for test in tests)


def is_time(kind: pa.DataType) -> bool:
    """Return whether a type holds dates or timestamps."""
    return any(test(kind) for test in (pa.types.is_date32, pa.types.is_timestamp))


def _named_floats(array: pa.Array) -> pa.Array:
    """Return floats as text, with PostgreSQL's names of those that are not finite."""
    texts = array.cast(pa.string())
    finite = pc.is_finite(array)
    if pc.all(finite).as_py() is not False:
        return texts
    infinite = pc.if_else(pc.greater(array, 0), "Infinity", "-Infinity")
    return pc.if_else(finite, texts, pc.if_else(pc.is_nan(array), "NaN", infinite))


def values_of(array: pa.Array) -> memoryview:
    """Return the bytes of a string or binary array's values, one behind the other."""
    offsets = offsets_of(array)
    return memoryview(array.buffers()[2] or b"")[offsets[0] : offsets[-1]]


def offsets_of(array: pa.Array) -> np.ndarray:
    """Return where each value of a string or binary array begins in its bytes, and where the last one ends."""
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    width = np.int64 if wide else np.int32
    return np.frombuffer(array.buffers()[1], width)[array.offset : array.offset + len(array) + 1].astype(np.int64)


def _with_data(array: pa.Array, kind: pa.DataType, data: bytes, scaled: Callable[[np.ndarray], np.ndarray]) -> pa.Array:
    """Return an array of large values in place of others, with the same NULLs."""
    offsets = offsets_of(array)
    buffers = [None, pa.py_buffer(scaled(offsets - offsets[0])), pa.py_buffer(data)]
    values = pa.Array.from_buffers(kind, len(array), buffers)
    return pc.if_else(array.is_valid(), values, pa.scalar(None, kind)) if array.null_count else values


def _hex(array: pa.Array) -> pa.Array:
    return _with_data(array, pa.large_string(), values_of(array).hex().encode(), lambda offsets: offsets * 2)


def _unhex(texts: pa.Array) -> pa.Array:
    texts = texts.cast(pa.large_binary())
    if len(texts) and pc.any(pc.equal(pc.bit_wise_and(pc.binary_length(texts), 1), 1)).as_py():
        raise pa.ArrowInvalid("bytes have an odd number of hex digits")
    try:
        data = bytes.fromhex(values_of(texts).tobytes().decode("ascii"))
    except ValueError as error:
        raise pa.ArrowInvalid(f"bytes are not written as hex digits: {error}") from error
    return _with_data(texts, pa.large_binary(), data, lambda offsets: offsets // 2)


def _uuids(array: pa.Array) -> pa.Array:
    digits = np.frombuffer(values_of(_hex(array.fill_null(bytes(_UUID_BYTES)).cast(pa.large_binary()))), np.uint8)
    digits = digits.reshape(-1, sum(_GROUPS))
    parts = np.split(digits, np.cumsum(_GROUPS)[:-1], axis=1)
    hyphen = np.full((len(array), 1), ord("-"), np.uint8)
    rows = np.hstack([each for part in parts for each in (hyphen, part)][1:])
    width = rows.shape[1]
    texts = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(array), [None, pa.py_buffer(rows.tobytes())])
    texts = texts.cast(pa.binary()).cast(pa.string())
    return pc.if_else(array.is_valid(), texts, pa.scalar(None, pa.string())) if array.null_count else texts
