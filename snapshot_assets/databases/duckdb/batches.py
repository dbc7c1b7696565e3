"""The batches that DuckDB returns: joined, checked, and cut, in the schema of the table's document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from snapshot_assets.databases.selection.columns import unfit_value
from snapshot_assets.format.relations import Column, Table

BATCH_BYTES = 16 * 1024 * 1024
MOST_VECTORS = 8
"""Most vectors, which DuckDB processes at once, in a batch."""
_DAY = {"us": 86_400 * 10**6, "ns": 86_400 * 10**9}


def merged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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
