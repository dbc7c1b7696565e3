"""The command line restores a tagged state from S3 after deletions, compactions and expiry."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

import snapshot_assets
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.catalog.tags import wait_for_clock
from snapshot_assets_tests.cli.helpers import RANGE, Snapshots, differing
from snapshot_assets_tests.e2e.test_import_command import execute
from snapshot_assets_tests.engine.reading.data_source import rows, store_options
from snapshot_assets_tests.servers.s3 import S3Server

DAY_2 = "2025-01-02T00:00:00Z/2025-01-03T00:00:00Z"
NOW = ("--grace", "0s", "--unsafe", "--yes")
DAY_2_ROWS = "moment >= '2025-01-02 00:00:00Z' AND moment < '2025-01-03 00:00:00Z'"
WHOLE = f"{RANGE[1]}/{RANGE[3]}"
Call = Callable[..., Any]


@pytest.fixture
def call(s3_location: str, s3_user: Callable[[str], str], snapshots: Snapshots) -> Call:
    """Call `snapshots` on the location and return its JSON output."""
    configuration = s3_user("admin")

    def run(*arguments: str, to: str = "--snapshot") -> Any:
        done = snapshots("--config", configuration, *arguments, to, s3_location, "--json")
        assert done.status == 0, done.err
        return done.json

    return run


@pytest.mark.slow
def test_a_tagged_state_outlives_everything_and_is_restored_row_by_row(
    spark: SparkSession, call: Call, s3_server: S3Server, s3_location: str, source: str, tmp_path: Path
) -> None:
    database, friday = tmp_path / "source.duckdb", tmp_path / "friday.duckdb"
    call("export", "create", "--source", source, *RANGE, to="--to")
    call("tag", "create", "friday", "--time-retained", "90d")
    with duckdb.connect(str(database)) as connection:
        connection.execute(f"ATTACH '{friday}' AS friday; COPY FROM DATABASE source TO friday")

    execute(database, f"DELETE FROM readings WHERE {DAY_2_ROWS} AND value % 2 = 0")
    call("export", "create", "--source", source, *RANGE, "--replace", DAY_2, to="--to")
    call("catalog", "tombstone", "--table", "main.readings", "--where", "value >= 60", "--yes")
    execute(database, "DELETE FROM readings WHERE value >= 60")
    assert call("savepoint", "create")["savepoint_id"] == 1
    execute(database, "UPDATE sensors SET name = 'attic' WHERE id = 1")
    call("export", "create", "--source", source, *RANGE, "--replace", WHOLE, to="--to")

    assert call("catalog", "expire", "--keep-last", "1", "--yes")["expired"]
    call("catalog", "gc", *NOW)
    call("catalog", "checkpoint")
    call("catalog", "prune", *NOW)
    for version in ("tag:friday", "savepoint:1"):
        assert call("export", "verify", "--at", version)["faults"] == []

    snapshot_assets.register(spark)
    stored = {
        "path": s3_location,
        "table": "main.readings",
        "version": "tag:friday",
        **store_options(s3_server.options),
    }
    given = ", ".join(f"`{name}` '{value}'" for name, value in stored.items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW readings_of_friday USING snapshot OPTIONS ({given})")
    assert rows(spark.sql("SELECT count(*), min(value), max(value) FROM readings_of_friday")) == [(72, 0.0, 71.0)]
    spark.sql("DROP VIEW readings_of_friday")

    assert call("import", "--at", "tag:friday", "--target", f"duckdb://{tmp_path}/back.duckdb", to="--from")
    assert differing(friday, tmp_path / "back.duckdb", "main.readings", "main.sensors") == {}

    call("catalog", "rollback", "savepoint:1", "--yes")
    call("import", "--target", f"duckdb://{tmp_path}/rolled_back.duckdb", to="--from")
    assert differing(database, tmp_path / "rolled_back.duckdb", "main.readings") == {}
    assert differing(friday, tmp_path / "rolled_back.duckdb", "main.sensors") == {}

    call("tag", "delete", "friday", "--yes")
    call("savepoint", "delete", "1", "--yes")
    call("catalog", "expire", "--keep-last", "1", "--yes")
    store = open_store(parse_location(s3_location), s3_server.options)
    wait_for_clock(store, read_state(store).committed_at)
    call("catalog", "gc", *NOW)
    assert call("export", "verify")["faults"] == []
    named = {line.split("  ", 1)[1] for line in store.get("SHA256SUMS", limit=1 << 20).decode().splitlines()}
    there = {info.path for info in store.list("data/") if info.path.endswith(".parquet")}
    assert there == {path for path in named if path.endswith(".parquet")}
