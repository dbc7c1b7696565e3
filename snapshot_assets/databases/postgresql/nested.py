r"""Nested values as JSON text: the driver writes neither lists, nor structs, nor maps.

Numbers, texts and booleans are JSON's own. All else, a number that is none included, is its text as PostgreSQL reads
it: decimals, dates and times, `\x…` for bytes. A map is a list of pairs, because its keys may be of any type.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from typing import Any

import pyarrow as pa


def with_json(batch: pa.RecordBatch, columns: Collection[str]) -> pa.RecordBatch:
    """Return a batch with the values of some columns as JSON text."""
    arrays = [
        json_texts(array) if name in columns else array
        for name, array in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def json_texts(array: pa.Array) -> pa.Array:
    """Return each value as JSON text; NULL stays NULL."""
    values = array.cast(_carried(array.type)).to_pylist()
    return pa.array([None if value is None else _text(value) for value in values], pa.string())


def _text(value: Any) -> str:
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _carried(kind: pa.DataType) -> pa.DataType:
    """Return a type with its temporal and decimal leaves as strings, whose Python values could not hold them all."""
    if pa.types.is_list(kind):
        return pa.list_(_carried(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_carried(kind.key_type), _carried(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([(member.name, _carried(member.type)) for member in kind])
    return pa.string() if pa.types.is_temporal(kind) or pa.types.is_decimal(kind) else kind


def _plain(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case bytes():
            return "\\x" + value.hex()
        case dict():
            return {name: _plain(member) for name, member in value.items()}
        case list() | tuple():
            return [_plain(member) for member in value]
    return value
