"""Reads a restored column back in the Arrow type of the snapshot's files, also from another kind of database.

Such a target holds values in types of its own: unsigned integers as wider ones, lists as arrays or JSON, nanoseconds as
text. What the target's own documents call a column decides how it is read, and nothing of what loaded it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from itertools import accumulate, chain

import pyarrow as pa
import pyarrow.compute as pc

from snapshot_assets.databases.open import open_database
from snapshot_assets.databases.protocol.source import DatabaseAddress, Selection
from snapshot_assets.engine.files.text.json_lines import from_json
from snapshot_assets.engine.files.text.values import from_text
from snapshot_assets.format.relations import Column, Table, TableName

Decode = Callable[[pa.Array], pa.Array]
"""Returns a column's values in the type of the files; raises ValueError if no file can hold one of them."""

_ITEM = re.compile(r'(?:"((?:[^"\\]|\\.)*)"|([^"{},\\]+))(?:,|$)', re.DOTALL)
_BOOLEANS = {"t": "true", "f": "false"}


def tables_of(address: DatabaseAddress, names: Collection[TableName]) -> dict[TableName, Table]:
    """Return the documents of tables as their database describes them."""
    if not names:  # of which a selection would mean every table
        return {}
    with closing(open_database(address)) as database:
        untimed = dict.fromkeys(names)
        schema = database.extract(Selection(tables=tuple(names), time_columns=untimed, large_objects=False))
    return {table.table_name: table for table in schema.tables}


def decoder(made: Column, kind: pa.DataType) -> Decode | None:
    """Return how a column of the target is read in an Arrow type of the files; None if it cannot be."""
    found = made.arrow_field().type
    if found == kind:
        return lambda values: values
    if not pa.types.is_string(found):
        return None if pa.types.is_nested(found) or pa.types.is_nested(kind) else lambda values: values.cast(kind)
    if pa.types.is_duration(kind):
        return None
    if not pa.types.is_nested(kind):
        return lambda texts: from_text(texts, kind)
    if made.type == "json":
        return lambda texts: _from_json(texts, kind)
    if made.type.endswith("[]") and pa.types.is_list(kind) and not pa.types.is_nested(kind.value_type):
        return lambda texts: _from_arrays(texts, kind)
    return None


def read_back(
    batch: pa.RecordBatch, schema: pa.Schema, decoders: Mapping[str, Decode], unlike: set[str]
) -> pa.RecordBatch:
    """Return rows of the target in the schema of the files; adds columns to `unlike` that have values of no file."""
    if not schema.names:
        return batch.select([])
    columns = []
    for field in schema:
        try:
            columns.append(decoders[field.name](batch.column(field.name)))
        except (ValueError, OverflowError):  # also ArrowInvalid
            unlike.add(field.name)
            columns.append(pa.nulls(batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _from_json(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    values = [None if text is None else json.loads(text, parse_int=str, parse_float=str) for text in texts.to_pylist()]
    if values.count(None) > texts.null_count:
        raise pa.ArrowInvalid("a value is the null of JSON, which is no NULL")
    return from_json(values, kind)


def _from_arrays(texts: pa.Array, kind: pa.ListType) -> pa.Array:
    """Read the texts of PostgreSQL's arrays of one dimension."""
    lists = [None if text is None else _items(text) for text in texts.to_pylist()]
    items = pa.array(chain.from_iterable(each or () for each in lists), pa.string())
    if pa.types.is_boolean(kind.value_type):
        items = pa.array([_BOOLEANS.get(item, item) for item in items.to_pylist()], pa.string())
    elif pa.types.is_timestamp(kind.value_type):
        items = pc.replace_substring_regex(items, r"\+00( BC)?$", r"Z\1")
    offsets = pa.array([0, *accumulate(len(each or ()) for each in lists)], pa.int32())
    missing = pa.array([each is None for each in lists], pa.bool_())
    return pa.ListArray.from_arrays(offsets, from_text(items, kind.value_type), type=kind, mask=missing)


def _items(text: str) -> list[str | None]:
    """Return the texts of an array's elements, by the rules of PostgreSQL's array_out."""
    inner, place, items = text[1:-1], 0, list[str | None]()
    while place < len(inner):
        match = _ITEM.match(inner, place)
        if match is None:
            raise pa.ArrowInvalid("an array has several dimensions, or other bounds")
        quoted, plain = match.groups()
        items.append(re.sub(r"(?s)\\(.)", r"\1", quoted) if plain is None else None if plain == "NULL" else plain)
        place = match.end()
    return items
