"""What the tests of the data source share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa
from pyspark.sql import DataFrame

from snapshot_assets.engine.reading.source import SnapshotSource
from snapshot_assets.storage.options import StoreOptions
from snapshot_assets_tests.engine.exports import Place

Load = Callable[..., DataFrame]
Read = Callable[..., pa.Table]
RANGE = {"start": "2025-01-02T01:00:00Z", "end": "2025-01-03T05:00:00Z"}


def source(uri: str, **options: object) -> SnapshotSource:
    """Return the data source as Spark creates it: all options are texts."""
    return SnapshotSource({"path": uri} | {name: str(value) for name, value in options.items()})


def read(uri: str, table: str, **options: object) -> pa.Table:
    """Read a table in this process, by the calls of Spark's processes."""
    opened = source(uri, table=table, **options)
    schema = opened.schema()
    reader = opened.reader(schema)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return pa.Table.from_batches(batches) if batches else pa.table({name: [] for name in schema.names})


def store_options(options: StoreOptions) -> dict[str, Any]:
    """Return storage options as options of a read."""
    return {name: value for name, value in vars(options).items() if value is not None}


def rows(table: pa.Table | DataFrame) -> list[tuple[Any, ...]]:
    found = table.toArrow() if isinstance(table, DataFrame) else table
    return sorted((tuple(row.values()) for row in found.to_pylist()), key=repr)


def source_rows(place: Place, query: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(place.source.removeprefix("duckdb://"), read_only=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return rows(connection.sql(query).to_arrow_table())


def is_native(frame: DataFrame) -> bool:
    """Whether Spark's own Parquet reader reads the rows: only that knows its files."""
    return bool(frame.inputFiles())
