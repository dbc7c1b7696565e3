"""Columns in Iceberg's types, with field ids that stay by name; what Iceberg cannot hold is refused with a remedy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from snapshot_assets.format.arrow_types import wider_type, with_leaves
from snapshot_assets.format.names import ColumnPath
from snapshot_assets.format.relations import Carrier, Column, Table, TableName

MAX_DECIMAL = 38

_SIMPLE: dict[pa.DataType, IcebergType] = {
    pa.bool_(): BooleanType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.date32(): DateType(),
    pa.time64("us"): TimeType(),
    pa.timestamp("us"): TimestampType(),
    pa.timestamp("us", "UTC"): TimestamptzType(),
}
_HELD: dict[pa.DataType, pa.DataType] = {
    **{kind: kind for kind in _SIMPLE},
    **dict.fromkeys((pa.int8(), pa.int16(), pa.uint8(), pa.uint16()), pa.int32()),
    pa.uint32(): pa.int64(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
    **dict.fromkeys((pa.time32("s"), pa.time32("ms")), pa.time64("us")),
    **dict.fromkeys((pa.timestamp("s"), pa.timestamp("ms")), pa.timestamp("us")),
    **dict.fromkeys((pa.timestamp("s", "UTC"), pa.timestamp("ms", "UTC")), pa.timestamp("us", "UTC")),
}
"""By the types of data files: the Arrow type of the Iceberg type that reads them."""

Ids = dict[tuple[str, ...], int]
"""Field ids by path: the names of a column and, in nested ones, of its parts."""


class NotHeldError(ValueError):
    """Iceberg cannot hold a table: a reason, and a remedy for the newest revision."""

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(f"{reason}: {remedy}." if remedy else f"{reason}.")
        self.reason = reason


def held_types(table: Table) -> dict[str, pa.DataType]:
    """Return the types of a table's columns in Iceberg, as Arrow types.

    Raises:
        NotHeldError: A column has a type that Iceberg lacks, or two have names that readers confuse.
    """
    lower = Counter(column.name.lower() for column in table.columns)
    if same := [column.name for column in table.columns if lower[column.name.lower()] > 1]:
        raise NotHeldError(
            f"{table.table_name} has the columns {', '.join(map(repr, same))}, which readers that ignore case confuse",
            "leave all but one out by exclude_columns",
        )
    types = {column.name: _held(table.table_name, column) for column in table.columns}
    dotted = Counter(".".join(path) for name, kind in types.items() for path in _paths((name,), kind))
    if twice := [name for name, count in dotted.items() if count > 1]:
        raise NotHeldError(
            f"{table.table_name} has both a column {twice[0]!r} and a part of a nested column of that name, which"
            " Iceberg names alike",
            "leave one out by exclude_columns",
        )
    return types


def _held(table: TableName, column: Column) -> pa.DataType:
    try:
        return with_leaves(column.arrow_field().type, _held_leaf)
    except NotHeldError as error:
        raise NotHeldError(
            f"Column {ColumnPath(table, column.name)} is {column.type}, stored as {error.reason}, which Iceberg v2"
            " lacks",
            "carry it as text (carriers: {table.column: text}) and export its windows again, or leave it out by"
            " exclude_columns",
        ) from None


def _held_leaf(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_fixed_size_binary(kind):
        return kind
    if pa.types.is_decimal128(kind) and kind.scale >= 0 and kind.precision <= MAX_DECIMAL:
        return kind
    if kind not in _HELD:
        raise NotHeldError(str(kind))
    return _HELD[kind]


def _paths(path: tuple[str, ...], kind: pa.DataType) -> Iterator[tuple[str, ...]]:
    """Yield the paths of a column and of its parts."""
    yield path
    for name, part in _parts(kind):
        yield from _paths((*path, name), part)


def _parts(kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
    """Return the parts of a nested type, with the names that Parquet files have for them."""
    if pa.types.is_list(kind):
        return [("element", kind.value_type)]
    if pa.types.is_map(kind):
        return [("key", kind.key_type), ("value", kind.item_type)]
    return [(part.name, part.type) for part in kind] if pa.types.is_struct(kind) else []


def widened(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the type to which Iceberg promotes two types, or None: int to long, float to double, longer decimals."""
    if pa.types.is_decimal128(one) and pa.types.is_decimal128(other) and one.scale == other.scale:
        return max(one, other, key=lambda kind: kind.precision)
    return wider_type(one, other)


def iceberg_schema(table: Table, types: Mapping[str, pa.DataType], ids: Ids, number: int) -> Schema:
    """Return a table's schema; columns that `ids` lacks get the next ids, in order."""
    fields = []
    for column in table.columns:
        doc = f"{column.type}, as text" if column.carrier is Carrier.TEXT else column.type
        field_id = _id_of((column.name,), ids)
        kind = _iceberg_type((column.name,), types[column.name], ids)
        fields.append(NestedField(field_id, column.name, kind, required=False, doc=doc))
    return Schema(*fields, schema_id=number)


def _id_of(path: tuple[str, ...], ids: Ids) -> int:
    return ids.setdefault(path, max(ids.values(), default=0) + 1)


def _iceberg_type(path: tuple[str, ...], kind: pa.DataType, ids: Ids) -> IcebergType:
    if pa.types.is_fixed_size_binary(kind):
        return FixedType(kind.byte_width)
    if pa.types.is_decimal128(kind):
        return DecimalType(kind.precision, kind.scale)
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    parts = [(name, _id_of((*path, name), ids), part) for name, part in _parts(kind)]
    done = [(name, number, _iceberg_type((*path, name), part, ids)) for name, number, part in parts]
    if pa.types.is_list(kind):
        return ListType(done[0][1], done[0][2], element_required=False)
    if pa.types.is_map(kind):
        (_, key, key_type), (_, value, value_type) = done
        return MapType(key, key_type, value, value_type, value_required=False)
    return StructType(*(NestedField(number, name, part, required=False) for name, number, part in done))


def name_mapping(ids: Ids) -> list[dict[str, Any]]:
    """Return the mapping by which readers give the columns of data files their ids, as Iceberg writes it in JSON."""
    roots: list[dict[str, Any]] = []
    nodes: dict[tuple[str, ...], dict[str, Any]] = {}
    for path, number in sorted(ids.items(), key=lambda item: (len(item[0]), item[1])):
        nodes[path] = {"field-id": number, "names": [path[-1]]}
        siblings = nodes[path[:-1]].setdefault("fields", []) if path[:-1] else roots
        siblings.append(nodes[path])
    return roots


def mapped_ids(mapping: Sequence[Mapping[str, Any]], path: tuple[str, ...] = ()) -> Ids:
    """Return the ids of a name mapping; the inverse of `name_mapping`."""
    ids: Ids = {}
    for field in mapping:
        own = (*path, field["names"][0])
        ids |= {own: int(field["field-id"]), **mapped_ids(field.get("fields", ()), own)}
    return ids
