"""Gives the driver's batches a table's exact schema, and refuses values that Arrow cannot represent.

The driver shifts dates and timestamps from the epoch 2000 to 1970 without a check. `infinity` and every time beyond 64
bits then overflow to values below PostgreSQL's smallest one, so the minimum of a batch reveals them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from snapshot_assets.databases.postgresql.read_forms import received
from snapshot_assets.databases.selection.columns import unfit_value
from snapshot_assets.format.relations import Column, Table

_FIRST_DAY = -2440588  # 4714-11-24 BC, Julian day 0: PostgreSQL's first date
_FIRST_MICROSECOND = _FIRST_DAY * 86_400_000_000
_DAY_MICROSECONDS = 86_400_000_000


def shaped(batches: Iterable[pa.RecordBatch], table: Table) -> Iterator[pa.RecordBatch]:
    """Yield batches of exactly the table's schema, whose columns share the driver's buffers if they have their type."""
    schema = table.arrow_schema()
    for batch in batches:
        if not table.columns:  # a table without columns can have rows
            yield batch.replace_schema_metadata(None)
            continue
        arrays = [
            _shaped_column(array, field.type, table, column)
            for array, field, column in zip(batch.columns, schema, table.columns, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _shaped_column(array: pa.Array, arrow_type: pa.DataType, table: Table, column: Column) -> pa.Array:
    try:
        array = received(array, arrow_type)
        unfit = _out_of_range(array)
    except pa.ArrowInvalid:
        if not pa.types.is_decimal(arrow_type):
            raise
        texts = received(array, pa.string())
        odd = texts.filter(pc.is_in(texts, pa.array(["NaN", "Infinity", "-Infinity"])))
        unfit = str(odd[0]) if len(odd) else "a number of another precision"
    if unfit:
        raise unfit_value(table, column, unfit)
    return array


def _out_of_range(array: pa.Array) -> str | None:
    """Return the kind of values in an array that Arrow cannot represent, or None."""
    if pa.types.is_timestamp(array.type):
        if _extreme(array, pa.int64(), pc.min, _FIRST_MICROSECOND) < _FIRST_MICROSECOND:
            return "infinity, -infinity or a time after the year 294246"
    elif pa.types.is_date32(array.type):
        if _extreme(array, pa.int32(), pc.min, _FIRST_DAY) < _FIRST_DAY:
            return "infinity or -infinity"
    elif pa.types.is_time64(array.type) and _extreme(array, pa.int64(), pc.max, 0) >= _DAY_MICROSECONDS:
        return "24:00:00"
    return None


def _extreme(array: pa.Array, numbers: pa.DataType, extreme: Callable[[pa.Array], pa.Scalar], default: int) -> int:
    value = extreme(array.view(numbers)).as_py()
    return default if value is None else int(value)
