"""Statistics of a data file, from the footer that its writer made."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from snapshot_assets.format.actions import ColumnStatistics, Physical, RowGroup

BOUND_BYTES = 64
"""Longest bound of a BYTE_ARRAY; longer ones are cut."""


def row_groups(metadata: pq.FileMetaData, schema: pa.Schema) -> tuple[RowGroup, ...]:
    """Return the statistics of a footer's row groups.

    Args:
        metadata: The footer.
        schema: Arrow schema of the file. Nested columns are left out.
    """
    columns = _flat_columns(schema)
    return tuple(
        RowGroup(
            rows=group.num_rows,
            bytes=sum(group.column(leaf).total_compressed_size for leaf in range(group.num_columns)),
            columns=tuple(_column(field, group.column(leaf)) for leaf, field in columns),
        )
        for group in (metadata.row_group(index) for index in range(metadata.num_row_groups))
    )


def file_columns(groups: tuple[RowGroup, ...], schema: pa.Schema) -> tuple[ColumnStatistics, ...]:
    """Return the bounds of a whole file; None if a row group with values has none."""
    rows = [group.rows for group in groups]
    fields = [field for _, field in _flat_columns(schema)]
    by_column = zip(*(group.columns for group in groups), strict=True)
    return tuple(_merge(field, found, rows) for field, found in zip(fields, by_column, strict=True))


def _flat_columns(schema: pa.Schema) -> list[tuple[int, pa.Field]]:
    """Return the columns that are not nested, each with the number of its leaf in the Parquet schema."""
    columns = []
    leaf = 0
    for field in schema:
        if not pa.types.is_nested(field.type):
            columns.append((leaf, field))
        leaf += _leaves(field.type)
    return columns


def _leaves(arrow_type: pa.DataType) -> int:
    if not pa.types.is_nested(arrow_type):
        return 1
    return sum(_leaves(arrow_type.field(index).type) for index in range(arrow_type.num_fields))


def _column(field: pa.Field, chunk: pq.ColumnChunkMetaData) -> ColumnStatistics:
    statistics = chunk.statistics
    if statistics is None:
        return ColumnStatistics(field.name, None, None, None)
    minimum = maximum = None
    if statistics.has_min_max:
        minimum, maximum = statistics.min_raw, statistics.max_raw
        if isinstance(minimum, bytes):
            minimum = minimum[:BOUND_BYTES]
        if isinstance(maximum, bytes) and len(maximum) > BOUND_BYTES:
            # Raised, so that no value is above it; there may be no such bound.
            prefix = maximum[:BOUND_BYTES].rstrip(b"\xff")
            maximum = prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else None
    return ColumnStatistics(field.name, statistics.null_count if statistics.has_null_count else None, minimum, maximum)


def _merge(field: pa.Field, found: Iterable[ColumnStatistics], rows: list[int]) -> ColumnStatistics:
    found = tuple(found)
    nulls = [column.null_count for column in found]
    with_values = [column for column, count in zip(found, rows, strict=True) if column.null_count != count]
    order = partial(_order, field.type)
    minima = [column.minimum for column in with_values if column.minimum is not None]
    maxima = [column.maximum for column in with_values if column.maximum is not None]
    return ColumnStatistics(
        field.name,
        sum(count for count in nulls if count is not None) if None not in nulls else None,
        min(minima, key=order) if minima and len(minima) == len(with_values) else None,
        max(maxima, key=order) if maxima and len(maxima) == len(with_values) else None,
    )


def _order(arrow_type: pa.DataType, value: Physical) -> Any:
    """Return a key that sorts physical values as the column's type sorts its own."""
    if pa.types.is_unsigned_integer(arrow_type) and isinstance(value, int):
        # Parquet stores unsigned values in signed types.
        return value % (1 << 64)
    if pa.types.is_decimal(arrow_type) and isinstance(value, bytes):
        return int.from_bytes(value, "big", signed=True)
    return value
