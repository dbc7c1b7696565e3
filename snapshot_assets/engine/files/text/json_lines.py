"""JSON lines: one object a row, its members in the order of the columns (PostgreSQL's `row_to_json`)."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.json as pajson

from snapshot_assets.engine.files.text.json_values import converted, from_json, is_literal, json_object
from snapshot_assets.engine.files.text.values import WIDE_BYTES

_BLOCK = 1 << 20


def encode_lines(batch: pa.RecordBatch) -> pa.Array:
    """Return a line for each row, each with its line break."""
    return json_object(batch.schema.names, batch.columns, "}\n", wide=batch.nbytes > WIDE_BYTES)


def decode_lines(source: BinaryIO, schema: pa.Schema, wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an unpacked file of JSON lines in some columns.

    Args:
        source: The file.
        schema: All columns of the file.
        wanted: The columns to read.

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
    arrays = [converted(table.column(name).combine_chunks(), kind) for name, kind in types.items()]
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
