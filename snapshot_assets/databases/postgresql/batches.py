"""Converts the driver's batches to a table's Arrow schema, and refuses values that Arrow's type cannot hold.

The driver shifts dates and timestamps from the epoch 2000 to 1970 without a check. `infinity` and every time beyond 64
bits then overflow to values below PostgreSQL's smallest one, so the minimum of a batch reveals them.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from snapshot_assets.databases.columns import unfit_value
from snapshot_assets.errors import CarrierError
from snapshot_assets.format.relations import Column, Table

_FIRST_DAY = -2440588  # 4714-11-24 BC, Julian day 0: PostgreSQL's first date
_FIRST_MICROSECOND = _FIRST_DAY * 86_400_000_000
_DAY_MICROSECONDS = 86_400_000_000


class BatchShaper:
    """Converts the driver's batches to a table's Arrow schema.

    Args:
        table: The table's document.
    """

    def __init__(self, table: Table) -> None:
        self._schema = table.arrow_schema()
        self._shapers = [_shaper(table, column) for column in table.columns]

    def shape(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch of exactly the table's schema; columns that already have their type share its buffers.

        Raises:
            CarrierError: A value does not fit its column's native carrier.
        """
        if not self._shapers:  # a table without columns can have rows
            return batch.replace_schema_metadata(None)
        columns = [shape(column) for shape, column in zip(self._shapers, batch.columns, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _shaper(table: Table, column: Column) -> Callable[[pa.Array], pa.Array]:
    arrow_type = column.arrow_field().type

    def refuse(value: str) -> CarrierError:
        return unfit_value(table, column, value)

    def shape(array: pa.Array) -> pa.Array:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        if pa.types.is_decimal(arrow_type):
            return _decimals(array, arrow_type, refuse)
        if array.type != arrow_type:
            array = array.cast(arrow_type)
        if unfit := _out_of_range(array):
            raise refuse(unfit)
        return array

    return shape


def _decimals(array: pa.Array, arrow_type: pa.DataType, refuse: Callable[[str], CarrierError]) -> pa.Array:
    try:
        return array.cast(arrow_type)
    except pa.ArrowInvalid:
        odd = array.filter(pc.is_in(array, pa.array(["NaN", "Infinity", "-Infinity"])))
        raise refuse(odd[0].as_py() if len(odd) else "a number of another precision") from None


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
