"""Bounds of columns, read from the footer that the writer has just made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from snapshot_assets.format.files import ColumnStatistics, Physical, RowGroup

_MAX_BOUND = 64


def row_group_statistics(schema: pa.Schema, footer: Any) -> tuple[RowGroup, ...]:
    """Return rows, bytes and bounds of each row group.

    Args:
        schema: The file's Arrow schema.
        footer: pyarrow's `FileMetaData`.
    """
    return tuple(_row_group(schema, footer.row_group(number)) for number in range(footer.num_row_groups))


def file_statistics(schema: pa.Schema, groups: Iterable[RowGroup]) -> tuple[ColumnStatistics, ...]:
    """Return bounds over all row groups; a bound that one of them lacks is none."""
    by_column = zip(*(group.columns for group in groups), strict=True)
    return tuple(_joined(schema.field(parts[0].column).type, parts) for parts in by_column)


def _row_group(schema: pa.Schema, group: Any) -> RowGroup:
    columns = tuple(_column(group.column(leaf), field) for field, leaf in _top_level(schema))
    return RowGroup(
        group.num_rows, sum(group.column(i).total_compressed_size for i in range(group.num_columns)), columns
    )


def _top_level(schema: pa.Schema) -> Iterator[tuple[pa.Field, int]]:
    """Yield the columns that are no nested type, with the index of their leaf in the file."""
    leaf = 0
    for field in schema:
        if not pa.types.is_nested(field.type):
            yield field, leaf
        leaf += _leaf_count(field.type)


def _leaf_count(kind: pa.DataType) -> int:
    if not pa.types.is_nested(kind):
        return 1
    if pa.types.is_map(kind):
        return _leaf_count(kind.key_type) + _leaf_count(kind.item_type)
    if pa.types.is_struct(kind):
        return sum(_leaf_count(child.type) for child in kind)
    return _leaf_count(kind.value_type)


def _column(column: Any, field: pa.Field) -> ColumnStatistics:
    found = column.statistics
    if found is None:
        return ColumnStatistics(field.name, None, None, None)
    nulls = found.null_count if found.has_null_count else None
    if not found.has_min_max:
        return ColumnStatistics(field.name, nulls, None, None)
    return ColumnStatistics(field.name, nulls, _lower(found.min_raw), _upper(found.max_raw))


def _lower(value: Physical) -> Physical:
    return value[:_MAX_BOUND] if isinstance(value, bytes) else value


def _upper(value: Physical) -> Physical | None:
    """Cut a long maximum and raise it, so that it stays above all values; none if it cannot be raised."""
    if not isinstance(value, bytes) or len(value) <= _MAX_BOUND:
        return value
    cut = value[:_MAX_BOUND].rstrip(b"\xff")
    return cut[:-1] + bytes([cut[-1] + 1]) if cut else None


def _joined(kind: pa.DataType, parts: tuple[ColumnStatistics, ...]) -> ColumnStatistics:
    key = _order(kind)
    nulls = [part.null_count for part in parts]
    # A row group without bounds holds only NULLs (or NaN) if its NULLs are counted; then it widens nothing.
    lows = [part.minimum for part in parts if part.minimum is not None]
    highs = [part.maximum for part in parts if part.maximum is not None]
    known = [count for count in nulls if count is not None]
    return ColumnStatistics(
        parts[0].column,
        sum(known) if len(known) == len(nulls) else None,
        min(lows, key=key) if len(lows) == len(parts) else None,
        max(highs, key=key) if len(highs) == len(parts) else None,
    )


def _order(kind: pa.DataType) -> Callable[[Any], Any]:
    """Return the sort key of a type's physical values, in the order that the type has."""
    if pa.types.is_decimal(kind):
        return lambda value: int.from_bytes(value, "big", signed=True) if isinstance(value, bytes) else value
    if pa.types.is_unsigned_integer(kind):
        return lambda value: value % (1 << 64)
    return lambda value: value
