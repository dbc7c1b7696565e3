"""Bounds of the columns of a text file, which has no footer: collected while it is written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from snapshot_assets.engine.files.parquet.statistics import file_columns, row_groups
from snapshot_assets.format.files import ColumnStatistics


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
                found = pc.min_max(array)
            except pa.ArrowNotImplementedError:  # types without an order
                continue
            self._values[name] += [found["min"], found["max"]]

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
