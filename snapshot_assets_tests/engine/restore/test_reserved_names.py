"""The ledger of imports is never exported, and names that imports reserve are refused before an export."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from snapshot_assets.databases.open import open_database
from snapshot_assets.databases.protocol.source import DatabaseAddress, Selection
from snapshot_assets.databases.protocol.target import LEDGER_SCHEMA
from snapshot_assets.databases.spark.source import SparkCatalogDatabase
from snapshot_assets.errors import PlanError
from snapshot_assets.format.relations import DatabaseSchema
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import IN_RANGE, Into, execute

pytestmark = pytest.mark.slow

NOTES = f"{LEDGER_SCHEMA}.notes"


def extracted(uri: str, selection: Selection | None = None) -> DatabaseSchema:
    with closing(open_database(DatabaseAddress("source", uri))) as database:
        return database.extract(selection or Selection())


def test_a_restored_database_is_exported_without_the_ledger_and_restored_again(
    exported: Place, into: Into, tmp_path: Path
) -> None:
    assert into.restore(exported.store).finished
    second = Place(into.uri, tmp_path / "second")
    second.export()
    third = Into(f"duckdb://{tmp_path}/third.duckdb")
    assert third.restore(second.store).finished
    assert third.differences(exported.source, IN_RANGE) == {}
    assert LEDGER_SCHEMA not in {each.name for each in extracted(into.uri).schemas}


@pytest.mark.parametrize("name", ["notes", "imports", "notes beside the ledger"])
def test_a_table_of_a_user_in_the_ledgers_schema_is_refused_by_name(exported: Place, into: Into, name: str) -> None:
    table = f"{LEDGER_SCHEMA}.{name.split()[0]}"
    if "ledger" in name:
        into.restore(exported.store)
    execute(into, f"CREATE SCHEMA IF NOT EXISTS {LEDGER_SCHEMA}", f"CREATE TABLE {table} (id integer)")
    with pytest.raises(PlanError, match=rf"{table} has a name that imports reserve.*'{LEDGER_SCHEMA}\.\*'"):
        extracted(into.uri)
    left = extracted(into.uri, Selection(exclude_tables=(f"{LEDGER_SCHEMA}.*",)))
    assert LEDGER_SCHEMA not in {each.schema_name for each in left.tables}


def test_a_table_named_like_the_large_objects_is_refused(postgresql_database: str) -> None:
    execute(
        postgresql_database, "CREATE SCHEMA snapshot_assets", "CREATE TABLE snapshot_assets.large_objects (oid int)"
    )
    with pytest.raises(PlanError, match=r"snapshot_assets\.large_objects has a name that imports reserve"):
        extracted(postgresql_database)
    assert extracted(postgresql_database, Selection(schemas=("public",))).tables == ()


def test_a_table_of_a_spark_catalog_that_a_restore_could_not_have_is_refused(spark: SparkSession) -> None:
    address = DatabaseAddress("lake", "spark:spark_catalog")
    spark.sql(f"CREATE DATABASE {LEDGER_SCHEMA}")
    try:
        assert LEDGER_SCHEMA not in {
            each.name for each in SparkCatalogDatabase(address, spark).extract(Selection()).schemas
        }
        spark.sql(f"CREATE TABLE {NOTES} (id INT) USING parquet")
        with pytest.raises(PlanError, match=rf"{NOTES} has a name that imports reserve"):
            SparkCatalogDatabase(address, spark).extract(Selection())
    finally:
        spark.sql(f"DROP DATABASE {LEDGER_SCHEMA} CASCADE")
