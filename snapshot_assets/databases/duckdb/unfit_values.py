"""Finds values that native carriers cannot hold, in the file and in a scan's batches: infinite times, and 24:00."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc
from duckdb.sqltypes import DuckDBPyType

from snapshot_assets.databases.selection.columns import unfit_value
from snapshot_assets.databases.selection.hidden import mask_of, masked
from snapshot_assets.databases.sql import identifier, literal
from snapshot_assets.format.relations import Column, Table

_DAY_END = ("time", "time_ns")


BATCH_BYTES = 16 * 1024 * 1024
MOST_VECTORS = 8
"""Most vectors, which DuckDB processes at once, in a batch."""

_DAY = {"us": 86_400 * 10**6, "ns": 86_400 * 10**9}


def unfit_conditions(table: Table, kinds: Mapping[str, DuckDBPyType]) -> Iterator[tuple[Column, str, str]]:
    """Yield the columns that may have unfit values: each with the condition, and what such values are called."""
    for column in table.columns:
        if not _has_times(column.arrow_field().type):  # all leaves travel as text
            continue
        kind, mask = kinds[column.name], mask_of(table, column.name)
        condition = unfit_condition(identifier(column.name) if mask is None else masked(mask, str(kind)), kind)
        if condition is not None:
            yield column, condition, "the time 24:00:00" if kind.id in _DAY_END else "an infinite time"


def _has_times(kind: pa.DataType) -> bool:
    return pa.types.is_temporal(kind) or any(_has_times(kind.field(n).type) for n in range(kind.num_fields))


def unfit_condition(value: str, kind: DuckDBPyType, depth: int = 0) -> str | None:
    """Return the condition under which a value, given in SQL, does not fit; None for a type all of whose values do.

    `depth` is the number of lists around it.
    """
    nested = kind.id in ("list", "array", "map", "struct")
    members = [(name, child) for name, child in kind.children if isinstance(child, DuckDBPyType)] if nested else []
    match kind.id, members:
        case "list" | "array", [(_, child), *_]:
            return _any(value, child, depth)
        case "map", [(_, key), (_, item)]:
            return _or([_any(f"map_keys({value})", key, depth), _any(f"map_values({value})", item, depth)])
        case "struct", _:
            return _or(
                [unfit_condition(f"struct_extract({value}, {literal(name)})", child, depth) for name, child in members]
            )
    if kind.id in _DAY_END:
        return f"{value} = CAST('24:00:00' AS {kind})"
    if kind.id == "date" or kind.id.startswith("timestamp"):
        return f"{value} IN (CAST('infinity' AS {kind}), CAST('-infinity' AS {kind}))"
    return None


def _any(lists: str, kind: DuckDBPyType, depth: int) -> str | None:
    name = f"x{depth}"
    condition = unfit_condition(name, kind, depth + 1)
    if condition is None:
        return None
    return f"coalesce(list_bool_or(list_transform({lists}, lambda {name}: {condition})), false)"


def _or(conditions: list[str | None]) -> str | None:
    present = [each for each in conditions if each is not None]
    return f"({' OR '.join(present)})" if present else None


def merge_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches to ones of about `BATCH_BYTES`, which cost less to write."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if len(held) == MOST_VECTORS or sum(each.nbytes for each in held) >= BATCH_BYTES:
            yield pa.concat_batches(held)
            held.clear()
    if held:
        yield pa.concat_batches(held)


def conform(batches: Iterable[pa.RecordBatch], table: Table) -> Iterator[pa.RecordBatch]:
    """Yield DuckDB's batches, of bounded size, in the schema of the table's document; refuse values that do not fit."""
    schema = table.arrow_schema()
    for batch in batches:
        for array, column in zip(batch.columns, table.columns, strict=True):
            _check(array, column, table)
        # The cast renames the members of lists and maps, for which DuckDB has other names. It copies no values.
        exact = pa.RecordBatch.from_arrays(
            [array.cast(field.type) for array, field in zip(batch.columns, schema, strict=True)], schema=schema
        )
        yield from _cut(exact)


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    pieces = min(batch.num_rows, -(-batch.nbytes // BATCH_BYTES)) or 1
    rows = -(-batch.num_rows // pieces)
    if rows:
        yield from (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))


def _check(array: pa.Array, column: Column, table: Table) -> None:
    kind = array.type
    if pa.types.is_list(kind):
        _check(array.values, column, table)
    elif pa.types.is_map(kind):
        _check(array.keys, column, table)
        _check(array.items, column, table)
    elif pa.types.is_struct(kind):
        for index in range(kind.num_fields):
            _check(array.field(index), column, table)
    elif pa.types.is_time64(kind):
        if _ends(array.view(pa.int64()))[1] >= _DAY[kind.unit]:
            raise unfit_value(table, column, "the time 24:00:00")
    elif pa.types.is_temporal(kind):
        bits = kind.bit_width
        infinite = 2 ** (bits - 1) - 1  # DuckDB's infinity; Arrow treats it as an ordinary time
        least, greatest = _ends(array.view(pa.int32() if bits == 32 else pa.int64()))
        if least == -infinite or greatest == infinite:
            raise unfit_value(table, column, "an infinite time")


def _ends(numbers: pa.Array) -> tuple[int, int]:
    """Return the least and the greatest number; zeros if there is none."""
    ends = pc.min_max(numbers).as_py()
    return (ends["min"] or 0, ends["max"] or 0)
