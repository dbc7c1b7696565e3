"""Bounds of the columns of a text file, which has no footer: collected while it is written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from snapshot_assets.engine.files.parquet.statistics import BOUND_BYTES, file_columns, row_groups
from snapshot_assets.format.files import ColumnStatistics

_LONG = 2 * BOUND_BYTES
"""Characters or bytes of a value after which it is cut: enough for a bound, which is cut again."""

_MOST_VALUES = 256
"""Most bounds of blocks that a column keeps before they become one pair."""


class Bounds:
    """Collects the least and the greatest value of each column, and the number of its NULLs."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._values: dict[str, list[Any]] = {field.name: [] for field in schema}
        self._nulls = dict.fromkeys(schema.names, 0)

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows into account."""
        for name, array in zip(batch.schema.names, batch.columns, strict=True):
            self._nulls[name] += array.null_count
            try:
                found = pc.min_max(_cut(array))
            except pa.ArrowNotImplementedError:  # types without an order
                continue
            values = self._values[name]
            values += [found["min"], found["max"]]
            if len(values) >= _MOST_VALUES:
                found = pc.min_max(pa.array(values, array.type))
                values[:] = [found["min"], found["max"]]

    def columns(self) -> tuple[ColumnStatistics, ...]:
        """Return the bounds as Parquet has them: a Parquet file of the least and greatest values gives them."""
        length = max((len(values) for values in self._values.values()), default=0)
        rows = pa.table(
            [self._column(field, length) for field in self._schema], schema=self._schema.with_metadata(None)
        )
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink)
        metadata = pq.read_metadata(pa.BufferReader(sink.getvalue()))
        found = file_columns(row_groups(metadata, self._schema), self._schema)
        return tuple(replace(each, null_count=self._nulls[each.column]) for each in found)

    def _column(self, field: pa.Field, length: int) -> pa.Array:
        values = self._values[field.name]
        return pa.array(values, field.type) if len(values) == length else pa.nulls(length, field.type)


def _cut(array: pa.Array) -> pa.Array:
    """Return an array with the beginnings of its values, if they are long: their order is the same."""
    if array.nbytes <= _LONG * len(array):
        return array
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        return pc.utf8_slice_codeunits(array, 0, _LONG)
    if pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type):
        return pc.binary_slice(array, 0, _LONG)
    return array
