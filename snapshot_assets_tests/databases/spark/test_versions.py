"""Versions of a catalog's tables: none stays the same if a row or the definition changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from snapshot_assets.databases.protocol.source import (
    AllRows,
    Answer,
    DatabaseAddress,
    ExportedRows,
    Selection,
    Verdict,
    WindowRows,
)
from snapshot_assets.databases.spark.source import SparkCatalogDatabase
from snapshot_assets.format.relations import TableName
from snapshot_assets.testing.restores import utc

PLAIN, PARTITIONED, CSV, VIEW = "plain", "parted", "texts", "seen"


def age(folder: Path) -> None:
    """Let all files be written yesterday: files that are younger than two seconds prove nothing."""
    for number, path in enumerate(sorted(folder.rglob("*"))):
        os.utime(path, (1e9 + number, 1e9 + number))


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    spark.sql(f"CREATE DATABASE versions LOCATION '{tmp_path}'")
    spark.sql(f"CREATE TABLE versions.{PLAIN} USING parquet AS SELECT id, 'a' AS name FROM range(3)")
    spark.sql(
        f"CREATE TABLE versions.{PARTITIONED} USING orc PARTITIONED BY (day)"
        " AS SELECT id, DATE '2025-01-01' + CAST(id AS INT) AS day FROM range(3)"
    )
    spark.sql(f"CREATE TABLE versions.{CSV} (a STRING, b STRING) USING csv OPTIONS (sep ';')")
    spark.sql(f"INSERT INTO versions.{CSV} VALUES ('1', '2'), ('3,4', '5')")
    spark.sql(f"CREATE VIEW versions.{VIEW} AS SELECT id FROM versions.{PLAIN}")
    age(tmp_path)
    yield tmp_path
    spark.sql("DROP DATABASE versions CASCADE")


def opened(spark: SparkSession) -> tuple[SparkCatalogDatabase, dict[str, ExportedRows]]:
    """Open the catalog, with all rows of its tables as an export by this connection leaves them."""
    catalog = SparkCatalogDatabase(DatabaseAddress("lake", "spark:spark_catalog.versions"), spark)
    schema = catalog.extract(Selection(time_columns={}))
    fence = catalog.fence()
    return catalog, {table.name: ExportedRows(table, AllRows(), 3, fence) for table in schema.tables}


def answers(spark: SparkSession, parts: dict[str, ExportedRows]) -> dict[str, Verdict]:
    catalog, _ = opened(spark)
    return {name: answer.verdict for name, answer in zip(parts, catalog.changes_since([*parts.values()]), strict=True)}


def changed(spark: SparkSession, parts: dict[str, ExportedRows]) -> list[str]:
    """Return the tables that are not proved to be unchanged."""
    found = answers(spark, parts)
    assert Verdict.CHANGED not in found.values()
    return [name for name, verdict in found.items() if verdict is Verdict.UNKNOWN]


@pytest.mark.usefixtures("folder")
def test_tables_of_files_are_unchanged_until_something_is_written(spark: SparkSession) -> None:
    _, parts = opened(spark)
    assert sorted(parts) == [PARTITIONED, PLAIN, CSV]
    assert len(parts[PLAIN].fence["versions"].split()) == 3
    assert changed(spark, parts) == []
    spark.sql(f"INSERT INTO versions.{PLAIN} VALUES (9, 'b')")
    spark.sql(f"ALTER TABLE versions.{PARTITIONED} DROP PARTITION (day = DATE '2025-01-02')")
    assert changed(spark, parts) == [PARTITIONED, PLAIN]


def test_rows_of_the_same_size_and_files_of_another_program_are_noticed(spark: SparkSession, folder: Path) -> None:
    _, parts = opened(spark)
    spark.table(f"versions.{CSV}").collect()  # the session knows the files
    [file] = [path for path in (folder / CSV).glob("part-*") if b"1;2" in path.read_bytes()]
    file.write_bytes(file.read_bytes().replace(b"1;2", b"1;6"))
    os.utime(file, (1.1e9, 1.1e9))
    (folder / PARTITIONED / "day=2025-01-01" / "part-of-others.orc").write_bytes(
        next((folder / PARTITIONED / "day=2025-01-01").glob("*.orc")).read_bytes()
    )
    age(folder / PARTITIONED)
    assert changed(spark, parts) == [PARTITIONED, CSV]


def test_a_table_that_is_made_again_and_another_definition_are_other_versions(
    spark: SparkSession, folder: Path
) -> None:
    _, parts = opened(spark)
    spark.sql(f"ALTER TABLE versions.{CSV} SET SERDEPROPERTIES (sep = ',')")
    spark.sql(f"ALTER TABLE versions.{PLAIN} ADD COLUMN more INT DEFAULT 7")
    spark.sql(f"DROP TABLE versions.{PARTITIONED}")
    spark.sql(
        f"CREATE TABLE versions.{PARTITIONED} USING orc PARTITIONED BY (day)"
        " AS SELECT id, DATE '2025-01-01' + CAST(id AS INT) AS day FROM range(3)"
    )
    age(folder / PARTITIONED)
    assert changed(spark, parts) == [PARTITIONED, PLAIN, CSV]


def test_a_version_is_that_of_before_the_rows_were_read(spark: SparkSession, folder: Path) -> None:
    catalog, parts = opened(spark)
    spark.sql(f"INSERT INTO versions.{PLAIN} VALUES (9, 'b')")  # while the export reads
    age(folder / PLAIN)
    assert catalog.changes_since([parts[PLAIN]])[0].verdict is Verdict.UNCHANGED  # as the run's fence is that of before
    assert catalog.fence() == parts[PLAIN].fence
    assert changed(spark, parts) == [PLAIN]


def test_files_that_were_just_written_prove_nothing(spark: SparkSession, folder: Path) -> None:
    os.utime(next((folder / PLAIN).glob("part-*")))
    _, parts = opened(spark)
    assert len(parts[PLAIN].fence["versions"].split()) == 2
    age(folder / PLAIN)
    assert changed(spark, parts) == [PLAIN]


@pytest.mark.usefixtures("folder")
def test_views_masks_and_fences_without_versions_prove_nothing(spark: SparkSession) -> None:
    catalog = SparkCatalogDatabase(DatabaseAddress("lake", "spark:spark_catalog.versions"), spark)
    masked = TableName("versions", CSV)
    tables = (TableName("versions", VIEW), masked)
    schema = catalog.extract(Selection(tables=tables, masks={(masked, "b"): "upper(b)"}))
    fence = catalog.fence()
    window = WindowRows(utc(2025, 1, 1), utc(2025, 1, 2))
    found = catalog.changes_since([ExportedRows(table, window, 3, fence) for table in schema.tables])
    assert found == [
        Answer(Verdict.UNKNOWN, "Spark shows no version of the table", lasting=True),
        Answer(Verdict.UNKNOWN, "masks may read more than the row", lasting=True),
    ]
    _, parts = opened(spark)
    assert catalog.changes_since([ExportedRows(parts[CSV].table, AllRows(), 2, {})])[0].verdict is Verdict.UNKNOWN
