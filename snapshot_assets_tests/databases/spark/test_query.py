"""Spark SQL is copied like the queries of other databases, and cannot write."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.engine.export.copy import Copied, copy
from snapshot_assets.engine.export.run import ExportRun
from snapshot_assets.engine.runner import SparkRunner
from snapshot_assets.errors import PlanError, SnapshotError
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store

SOURCE = "spark:spark_catalog"
NUMBERS = "SELECT id AS n, timestamp_seconds(1735689600 + id * 3600) AS moment FROM range(48)"


def copied(spark: SparkSession, query: str, folder: Path, *windows: int, **fields: object) -> Copied:
    plan = Plan(name="copied", kind="query", source=SOURCE, to=f"file://{folder}", query=query, **fields)
    address, store = DatabaseAddress("lake", SOURCE), open_store(parse_location(plan.to))
    run = ExportRun(plan, address, store, SparkRunner(lambda: spark), "run", session=lambda: spark)
    return copy(run, windows)


def rows(folder: Path) -> list[int]:
    return sorted(row["n"] for file in folder.glob("data/*/*.parquet") for row in pq.read_table(file).to_pylist())


def test_a_query_is_copied_whole_and_by_windows(spark: SparkSession, tmp_path: Path) -> None:
    assert copied(spark, f"{NUMBERS} -- all", tmp_path / "whole").sealed is not None
    assert rows(tmp_path / "whole") == list(range(48))
    query = f"SELECT n FROM ({NUMBERS}) WHERE moment >= :start AND moment < :end"
    bounds = {"start_time": "2025-01-01T00:00:00Z", "end_time": "2025-01-03T00:00:00Z"}
    assert copied(spark, query, tmp_path / "windows", 2, **bounds).sealed is None
    assert rows(tmp_path / "windows") == list(range(24, 48))


def test_a_result_without_rows_is_one_file(spark: SparkSession, tmp_path: Path) -> None:
    assert copied(spark, f"SELECT n FROM ({NUMBERS}) WHERE n < 0", tmp_path / "to").sealed is not None
    [file] = (tmp_path / "to").glob("data/0/*.parquet")
    assert pq.read_table(file).column_names == ["n"]


def test_rows_are_divided_among_the_folders_of_their_partitions(spark: SparkSession, tmp_path: Path) -> None:
    query = f"SELECT n, concat('hour ', hour(moment) % 2) AS `the hour` FROM ({NUMBERS})"
    assert copied(spark, query, tmp_path, partition_by=["the hour"]).rows == 48
    files = sorted(tmp_path.glob("data/0/*/*.parquet"))
    assert {file.parent.name for file in files} == {"the hour=hour 0", "the hour=hour 1"}
    assert len(files) == len({(file.parent, file.name[-22:-13]) for file in files})  # one of each task
    found = [(row["n"] % 2, file.parent.name[-1]) for file in files for row in pq.read_table(file).to_pylist()]
    assert sorted(set(found)) == [(0, "0"), (1, "1")]
    assert len(found) == 48


def test_one_task_writes_a_single_file(spark: SparkSession, tmp_path: Path) -> None:
    assert copied(spark, NUMBERS, tmp_path, single_file=True).rows == 48
    [file] = tmp_path.glob("data/0/*.parquet")
    assert pq.read_table(file).num_rows == 48


def test_a_query_cannot_write(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql("CREATE DATABASE kept")
    try:
        spark.sql("CREATE TABLE kept.rows (n BIGINT) USING parquet")
        with pytest.raises(SnapshotError, match="INSERT"):
            copied(spark, "FROM range(3) INSERT INTO kept.rows SELECT id", tmp_path / "to")
        assert spark.table("kept.rows").count() == 0
    finally:
        spark.sql("DROP DATABASE kept CASCADE")
    assert not (tmp_path / "to").exists()


def test_a_column_to_split_by_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="split_by names column 'n', and Spark itself divides"):
        copied(spark, NUMBERS, tmp_path / "to", split_by="n")
    assert not (tmp_path / "to").exists()
