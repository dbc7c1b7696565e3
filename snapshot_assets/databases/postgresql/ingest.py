r"""Decides how a column's values are loaded: by COPY directly, or through a staging column and a cast.

Columns whose carrier is text are loaded as text and read by their type's input function. The same applies to the few
native types that the driver can read but not write. Columns of other kinds of databases are cast to a type that the
driver can write.

The driver cannot write nested values, so they are loaded as JSON text. JSON itself has finite numbers, texts and
booleans. All other values are the text that PostgreSQL reads: decimals, dates, times, `NaN`, `\x…` for bytes. A map
becomes a list of pairs, because its keys may have any type.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from snapshot_assets.databases.sql import identifier
from snapshot_assets.format.arrow_types import with_leaves
from snapshot_assets.format.relations import Carrier, Column

# Types whose cast from text differs from their input function: regclass(text) refuses `-`, which means no class, and
# before PostgreSQL 16 "char"(text) kept only the backslash of a byte in octal form.
_INPUTS = {"regclass": "regclassin", '"char"': "charin"}


@dataclass(frozen=True)
class PostgresqlIngest:
    """How one column is loaded.

    Attributes:
        arrow_type: Arrow type for the driver; the file's type casts to it without loss.
        type: PostgreSQL type of the staging column.
        value: SQL expression of the value, from a staging column with the column's own name. If it is more than that
            name, rows go through a staging table.
        json: Whether the values become JSON text first.
    """

    arrow_type: pa.DataType
    type: str
    value: str
    json: bool = False


_WIDENED = {
    pa.int8(): pa.int16(),
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
    **{pa.timestamp(unit): pa.timestamp("us") for unit in ("s", "ms")},
    **{pa.timestamp(unit, "UTC"): pa.timestamp("us", "UTC") for unit in ("s", "ms")},
}
"""Arrow types that the driver cannot write, and the type to cast them to."""


def ingest(column: Column) -> PostgresqlIngest:
    """Return how a column of a PostgreSQL table is loaded.

    Args:
        column: Its document, from PostgreSQL or from another kind of database with the type of `type_for`.
    """
    name, arrow_type = identifier(column.name), column.arrow_field().type
    if column.carrier is Carrier.TEXT:
        function = _INPUTS.get(column.type)
        value = f"pg_catalog.{function}(pg_catalog.textout({name}))" if function else f"{name}::{column.type}"
        return PostgresqlIngest(pa.string(), "text", value)
    if pa.types.is_nested(arrow_type):
        value = f"{name}::{column.type}"
        if column.type.endswith("[]"):
            element = column.type.removesuffix("[]")
            elements = f"pg_catalog.json_array_elements_text({name}::json) WITH ORDINALITY AS e (value, number)"
            array = f"ARRAY(SELECT e.value::{element} FROM {elements} ORDER BY e.number)"
            value = f"CASE WHEN {name} IS NOT NULL THEN {array} END"
        return PostgresqlIngest(pa.string(), "text", value, json=True)
    if pa.types.is_fixed_size_binary(arrow_type) and column.type != "bytea":  # uuid
        return PostgresqlIngest(pa.binary(), "bytea", f"pg_catalog.encode({name}, 'hex')::{column.type}")
    return _scalar(arrow_type, column.type, name)


def _scalar(arrow_type: pa.DataType, type_text: str, name: str) -> PostgresqlIngest:
    if pa.types.is_time(arrow_type) or pa.types.is_decimal(arrow_type) or arrow_type == pa.uint64():
        return PostgresqlIngest(pa.string(), "text", f"{name}::{type_text}")
    if type_text == "text":  # also of values for which PostgreSQL has no type
        return PostgresqlIngest(pa.string(), "text", name)
    if pa.types.is_fixed_size_binary(arrow_type):
        return PostgresqlIngest(pa.binary(), type_text, name)
    return PostgresqlIngest(_WIDENED.get(arrow_type, arrow_type), type_text, name)


def with_json(batch: pa.RecordBatch, columns: Collection[str]) -> pa.RecordBatch:
    """Return a batch whose given columns are JSON text."""
    arrays = [
        _json_texts(array) if name in columns else array
        for name, array in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _json_texts(array: pa.Array) -> pa.Array:
    """Return each value as JSON text; NULL stays NULL."""
    dumps = partial(json.dumps, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    values = array.cast(with_leaves(array.type, _text_leaf)).to_pylist()
    return pa.array([None if value is None else dumps(_plain(value)) for value in values], pa.string())


def _text_leaf(kind: pa.DataType) -> pa.DataType:
    """Return the string type for temporal and decimal types: Python's types cannot hold all their values."""
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
