"""JSON lines: one object a row, its members in the order of the columns (PostgreSQL's `row_to_json`).

Values are JSON, nested ones too; CSV has nested values in the same form.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson

from snapshot_assets.engine.files.text.values import WIDE_BYTES, entries_of, from_text, joined, to_text, values_of

_ESCAPED = re.compile(rb"[\"\\\x00-\x1f]")
_SHORT = {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r"}


def to_json(array: pa.Array) -> pa.Array:
    """Return values as JSON texts; NULL is `null`.

    Numbers and booleans are literals, except for floats that are not finite; other values are strings. A list is an
    array, a struct an object, and a map an array of pairs, because its keys need not be strings.
    """
    kind = array.type
    if pa.types.is_list(kind):
        texts = _listed(array, to_json(array.flatten()))
    elif pa.types.is_map(kind):
        lists, keys, items = entries_of(array)
        texts = _listed(lists, joined("[", to_json(keys), ",", to_json(items), "]"))
    elif pa.types.is_struct(kind):
        texts = json_object([field.name for field in kind], array.flatten())
    elif not is_literal(kind):
        texts = joined('"', _escaped(to_text(array)), '"')
        if pa.types.is_timestamp(kind):
            texts = pc.replace_substring(texts, " ", "T", max_replacements=1)
    elif pa.types.is_floating(kind) and pc.all(pc.is_finite(array)).as_py() is False:
        texts = pc.if_else(pc.is_finite(array), to_text(array), joined('"', to_text(array), '"'))
    else:
        texts = to_text(array)
    if array.null_count:
        texts = pc.if_else(array.is_valid(), texts, pa.scalar(None, texts.type))
    return texts.fill_null("null")


def json_object(names: Sequence[str], columns: Sequence[pa.Array], end: str = "}", *, wide: bool = False) -> pa.Array:
    """Return an object for each row, with the columns' values as its members."""
    parts: list[pa.Array | str] = []
    for name, array in zip(names, columns, strict=True):
        parts += [f"{',' if parts else '{'}{json.dumps(name, ensure_ascii=False)}:", to_json(array)]
    return joined(*parts, end, wide=wide)


def is_literal(kind: pa.DataType) -> bool:
    """Return whether values are numbers or booleans of JSON."""
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean, pa.types.is_duration)
    return any(test(kind) for test in tests)


def from_json(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return the values of a type that `to_json` wrote.

    Args:
        values: As Python's reader returns them, with numbers as their own digits.
        kind: The type.

    Raises:
        ArrowInvalid: A value is none of the type.
    """
    missing = pa.array([value is None for value in values], pa.bool_())
    if pa.types.is_nested(kind) and not all(value is None or _has_shape(value, kind) for value in values):
        raise pa.ArrowInvalid(f"a value is no {kind}")
    try:
        if pa.types.is_list(kind) or pa.types.is_map(kind):
            flat = list(chain.from_iterable(value or () for value in values))
            offsets = pa.array([0, *accumulate(len(value or ()) for value in values)], pa.int32())
            if pa.types.is_list(kind):
                return pa.ListArray.from_arrays(offsets, from_json(flat, kind.value_type), type=kind, mask=missing)
            keys = from_json([key for key, _ in flat], kind.key_type)
            items = from_json([item for _, item in flat], kind.item_type)
            return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=missing)
        if pa.types.is_struct(kind):
            members = [from_json([value and value[each.name] for value in values], each.type) for each in kind]
            return pa.StructArray.from_arrays(members, fields=list(kind), mask=missing)
        read = pa.array(values, pa.bool_() if pa.types.is_boolean(kind) else pa.large_string())
    except (KeyError, TypeError, ValueError, pa.ArrowTypeError) as error:
        raise pa.ArrowInvalid(f"a value is no {kind}: {error!r}") from error
    return from_text(read, kind)


def _has_shape(value: Any, kind: pa.DataType) -> bool:
    """Return whether a value is an object with as many members as a struct, or else an array."""
    return isinstance(value, dict) and len(value) == len(kind) if pa.types.is_struct(kind) else isinstance(value, list)


def _listed(array: pa.Array, values: pa.Array) -> pa.Array:
    """Return the texts of lists, from the texts of all their values."""
    lengths = pc.list_value_length(array).fill_null(0).to_numpy()
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())
    return joined("[", pc.binary_join(pa.ListArray.from_arrays(offsets, values.cast(pa.string())), ","), "]")


def _escaped(texts: pa.Array) -> pa.Array:
    data = values_of(texts)
    if not _ESCAPED.search(data):
        return texts
    texts = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    codes = np.frombuffer(data, np.uint8)
    for code in np.unique(codes[codes < ord(" ")]).tolist():
        texts = pc.replace_substring(texts, chr(code), _SHORT.get(code, f"\\u{code:04x}"))
    return texts


_BLOCK = 1 << 20


def encode_lines(batch: pa.RecordBatch) -> pa.Array:
    """Return a line for each row, each with its line break."""
    return json_object(batch.schema.names, batch.columns, "}\n", wide=batch.nbytes > WIDE_BYTES)


def decode_lines(source: BinaryIO, schema: pa.Schema, wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an unpacked file of JSON lines, whose columns are `schema`, in the wanted columns.

    Raises:
        ArrowInvalid: The file does not hold such lines.
    """
    types = {name: schema.field(name).type for name in wanted}
    for block in _blocks(source):
        yield _decode(block, types)


def _blocks(source: BinaryIO) -> Iterator[bytes]:
    """Yield whole lines, some at a time."""
    begun: list[bytes] = []
    while data := source.read(_BLOCK):
        end = data.rfind(b"\n") + 1
        if end:
            yield b"".join((*begun, data[:end]))
            begun = []
        begun.append(data[end:])
    if any(begun):
        raise pa.ArrowInvalid("the last line has no end")


def _decode(block: bytes, types: dict[str, pa.DataType]) -> pa.RecordBatch:
    if any(map(pa.types.is_nested, types.values())):
        return _decode_exactly(block, types)
    read = {name: kind if _is_read_by_arrow(kind) else pa.string() for name, kind in types.items()}
    try:
        table = pajson.read_json(
            io.BytesIO(block),
            pajson.ReadOptions(use_threads=False, block_size=len(block) + 1),
            pajson.ParseOptions(explicit_schema=pa.schema(read), unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid:  # such as a NaN, which is a string among numbers
        return _decode_exactly(block, types)
    arrays = [from_text(table.column(name).combine_chunks(), kind) for name, kind in types.items()]
    return pa.RecordBatch.from_arrays(arrays, names=list(types))


def _is_read_by_arrow(kind: pa.DataType) -> bool:
    """Return whether Arrow's JSON reader makes values of a type from what `to_json` wrote."""
    return is_literal(kind) and not (pa.types.is_duration(kind) or pa.types.is_decimal256(kind))


def _decode_exactly(block: bytes, types: dict[str, pa.DataType]) -> pa.RecordBatch:
    """Decode lines with Python's reader, which returns a number's own digits, and strings among numbers."""
    columns: dict[str, list[Any]] = {name: [] for name in types}
    for line in block.split(b"\n")[:-1]:
        try:
            row = json.loads(line, parse_int=str, parse_float=str)
            for name, values in columns.items():
                values.append(row[name])
        except (ValueError, KeyError, TypeError) as error:
            raise pa.ArrowInvalid(f"a line is no object with the members {', '.join(types)}: {error!r}") from error
    arrays = [from_json(values, kind) for values, kind in zip(columns.values(), types.values(), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(types))
