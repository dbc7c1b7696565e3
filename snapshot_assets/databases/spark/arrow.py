"""The types in which Spark shows the columns of data files: for each Arrow type the nearest that loses nothing."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

_WIDENED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20)}


def batch_schema(fields: Iterable[pa.Field]) -> pa.Schema:
    """Return the schema of the batches in which Spark takes columns that data files hold.

    Args:
        fields: The columns, such as `Table.arrow_schema()`.
    """
    return pa.schema([pa.field(field.name, _nearest(field.type)) for field in fields])


def spark_schema(batches: pa.Schema) -> StructType:
    """Return Spark's own schema of the rows in such batches."""
    return from_arrow_schema(batches, prefer_timestamp_ntz=True)


def _nearest(arrow_type: pa.DataType) -> pa.DataType:
    if pa.types.is_nested(arrow_type):
        return _nearest_nested(arrow_type)
    if pa.types.is_fixed_size_binary(arrow_type) or pa.types.is_large_binary(arrow_type):
        return pa.binary()
    if pa.types.is_time(arrow_type) or pa.types.is_large_string(arrow_type) or pa.types.is_decimal256(arrow_type):
        return pa.string()
    if arrow_type in _WIDENED:
        return _WIDENED[arrow_type]
    if pa.types.is_timestamp(arrow_type):
        return pa.timestamp("us", arrow_type.tz)
    if pa.types.is_duration(arrow_type):
        return pa.duration("us")
    return arrow_type


def _nearest_nested(arrow_type: pa.DataType) -> pa.DataType:
    if pa.types.is_map(arrow_type):
        return pa.map_(_nearest(arrow_type.key_type), _nearest(arrow_type.item_type))
    if pa.types.is_struct(arrow_type):
        return pa.struct([pa.field(field.name, _nearest(field.type)) for field in arrow_type])
    return pa.list_(_nearest(arrow_type.value_type))
