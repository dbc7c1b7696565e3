"""A time zone that is UTC by another name is UTC for every database."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from snapshot_assets.databases.duckdb.time_predicates import DuckDBTimeColumn
from snapshot_assets.databases.postgresql.time_predicates import PostgresqlTimeColumn
from snapshot_assets.databases.protocol.time_column import TimeColumn
from snapshot_assets.databases.spark.types import SparkTimeColumn

COLUMNS = ((DuckDBTimeColumn, "TIMESTAMP"), (PostgresqlTimeColumn, "timestamp"), (SparkTimeColumn, "timestamp_ntz"))


@pytest.mark.parametrize(("column", "kind"), COLUMNS)
def test_windows_of_utc_are_the_same_predicate_by_every_name(column: type[TimeColumn], kind: str) -> None:
    def within(zone: str) -> str:
        return column("c", kind, zone).within(datetime(2025, 1, 1, tzinfo=UTC), datetime(2025, 1, 2, tzinfo=UTC))

    assert {within(zone) for zone in ("UTC", "Etc/UTC", "GMT", "Zulu")} == {within("UTC")}
    assert within("Europe/Madrid") != within("UTC")
