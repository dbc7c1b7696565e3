"""Columns in Iceberg's types, with field ids that stay by name; what Iceberg cannot hold is refused with a remedy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.types import NestedField

from snapshot_assets.format.arrow_types import wider_type, with_leaves
from snapshot_assets.format.names import ColumnPath
from snapshot_assets.format.relations import Carrier, Column, Table, TableName

MAX_DECIMAL = 38

_HELD: dict[pa.DataType, pa.DataType] = {
    **dict.fromkeys((pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16()), pa.int32()),
    **{kind: kind for kind in (pa.int64(), pa.bool_(), pa.float32(), pa.float64(), pa.date32())},
    **dict.fromkeys((pa.string(), pa.large_string()), pa.string()),
    **dict.fromkeys((pa.binary(), pa.large_binary()), pa.binary()),
    **dict.fromkeys((pa.time32("s"), pa.time32("ms"), pa.time64("us")), pa.time64("us")),
    **{pa.timestamp(unit, zone): pa.timestamp("us", zone) for unit in ("s", "ms", "us") for zone in (None, "UTC")},
}
"""By the types of data files: the Arrow type of the Iceberg type that reads them.

Without unsigned integers of 32 bits: PyIceberg takes them for signed ones, and finds none of the greater values.
"""

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
    own = {column.name: types[column.name] for column in table.columns}
    for path in [path for name, kind in own.items() for path in _paths((name,), kind)]:
        ids.setdefault(path, max(ids.values(), default=0) + 1)
    found = pyarrow_to_schema(pa.schema(list(own.items())), NameMapping.model_validate(name_mapping(ids)))
    docs = [f"{each.type}, as text" if each.carrier is Carrier.TEXT else each.type for each in table.columns]
    fields = (
        NestedField(each.field_id, each.name, each.field_type, required=False, doc=doc)
        for each, doc in zip(found.fields, docs, strict=True)
    )
    return Schema(*fields, schema_id=number)


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
