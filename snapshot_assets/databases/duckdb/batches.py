"""Arrow batches of bounded size and exactly the document's schema, without values that their carrier cannot hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from snapshot_assets.databases.carriers import unfit_value
from snapshot_assets.format.relations import Column, Table

BATCH_BYTES = 16 * 1024 * 1024

_DAY = {"us": 86_400 * 10**6, "ns": 86_400 * 10**9}
_INFINITE_DATE = 2**31 - 1
_INFINITE_TIMESTAMP = 2**63 - 1
"""DuckDB's positive infinities; the negative ones are their negatives. Arrow treats both as ordinary times."""


def conform(batches: Iterable[pa.RecordBatch], table: Table) -> Iterator[pa.RecordBatch]:
    """Yield DuckDB's batches in the schema of the table's document.

    Raises:
        CarrierError: A value does not fit its native carrier.
    """
    schema = table.arrow_schema()
    checks = [(index, column) for index, column in enumerate(table.columns) if _may_fail(schema.field(index).type)]
    for batch in batches:
        for index, column in checks:
            _check(batch.column(index), column, table)
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


def _may_fail(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_may_fail(kind.field(index).type) for index in range(kind.num_fields))
    return bool(pa.types.is_temporal(kind))


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
    elif pa.types.is_date32(kind):
        _check_finite(array.view(pa.int32()), _INFINITE_DATE, column, table)
    elif pa.types.is_timestamp(kind):
        _check_finite(array.view(pa.int64()), _INFINITE_TIMESTAMP, column, table)
    elif pa.types.is_time64(kind):
        day = _DAY[kind.unit]
        _refuse_if(array.view(pa.int64()), lambda _, greatest: greatest >= day, "the time 24:00:00", column, table)


def _check_finite(numbers: pa.Array, infinite: int, column: Column, table: Table) -> None:
    _refuse_if(
        numbers, lambda least, greatest: least == -infinite or greatest == infinite, "an infinite time", column, table
    )


def _refuse_if(numbers: pa.Array, unfit: Callable[[int, int], bool], what: str, column: Column, table: Table) -> None:
    ends = pc.min_max(numbers)
    least, greatest = ends["min"].as_py(), ends["max"].as_py()
    if least is None or not unfit(least, greatest):
        return
    raise unfit_value(table, column, what)
