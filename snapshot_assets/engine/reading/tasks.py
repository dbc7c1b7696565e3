"""Divides a planned read into the work of Spark's Python tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from snapshot_assets.databases.spark.types import batch_schema, spark_schema
from snapshot_assets.engine.files.parquet.reader import BATCH_ROWS
from snapshot_assets.engine.reading.planning import FilePart, TableRead
from snapshot_assets.engine.time_range import is_time

_GROUP_BYTES = 32 << 20
_OPEN_COST = 4 << 20


@dataclass(frozen=True)
class TimeIndex:
    """The column by which files of a read can be left out.

    Attributes:
        zone: IANA zone of times without one.
        revision: The revision that is read.
    """

    column: str
    zone: str
    revision: int


@dataclass(frozen=True)
class PlannedRead:
    """A planned read.

    Attributes:
        schema: Spark's schema of the rows.
        read: Yields the batches of one task's work; picklable.
        work: The work of each task.
        time_index: None if a range of time leaves no files out.
    """

    schema: StructType
    read: Callable[[Any], Iterator[pa.RecordBatch]]
    work: list[Any]
    time_index: TimeIndex | None = None


def table_work(read: TableRead) -> PlannedRead:
    """Return a table's read as the work of Python tasks."""
    assert read.state.header is not None
    zone, name, index = read.state.header.time_zone, read.table.time_index, None
    if name is not None and is_time(read.table.column(name).arrow_field().type):
        index = TimeIndex(name, zone, read.state.revision)
    schema = batch_schema(read.schema)
    return PlannedRead(spark_schema(schema), read.rows(schema), grouped(read.parts), index)


def metadata_work(rows: pa.Table) -> PlannedRead:
    """Return the rows of a metadata table as the work of one task."""
    return PlannedRead(spark_schema(rows.schema), iter, [rows.to_batches(BATCH_ROWS)])


def grouped(parts: Sequence[FilePart]) -> list[list[FilePart]]:
    """Return the parts in groups of neighbours, one group a task."""
    groups: list[list[FilePart]] = []
    size = _GROUP_BYTES
    for part in parts:
        cost = part.file.bytes + _OPEN_COST
        if size + cost > _GROUP_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(part)
        size += cost
    return groups
