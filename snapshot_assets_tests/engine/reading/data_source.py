"""What the tests of the data source share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
from pyspark.sql import DataFrame

from snapshot_assets.storage.options import StoreOptions
from snapshot_assets_tests.engine.exports import Place

Load = Callable[..., DataFrame]
RANGE = {"start": "2025-01-02T01:00:00Z", "end": "2025-01-03T05:00:00Z"}


def store_options(options: StoreOptions) -> dict[str, Any]:
    """Return storage options as options of a read."""
    return {name: value for name, value in vars(options).items() if value is not None}


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in frame.toArrow().to_pylist()), key=repr)


def source_rows(place: Place, query: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(place.source.removeprefix("duckdb://"), read_only=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.sql(query).to_arrow_table()
    return sorted((tuple(row.values()) for row in found.to_pylist()), key=repr)
