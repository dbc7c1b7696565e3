from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from snapshot_assets.databases.protocol.source import (
    AllRows,
    DatabaseAddress,
    Rows,
    Scan,
    Selection,
    TimelessRows,
    WindowRows,
)
from snapshot_assets.databases.spark.source import SparkCatalogDatabase
from snapshot_assets.errors import DatabaseError, PlanError, UnknownRelationError
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName
from snapshot_assets.format.units import is_utc
from snapshot_assets.testing.restores import utc

ORDERS = TableName("catalog_a", "orders")
ZEROS = ("0", "00", "0000", "000000", "0:00", "00:0", "00:00", "00:00:00")
"""Offsets of zero, as Spark and Java accept them."""


@pytest.fixture(scope="module")
def lake(spark: SparkSession) -> Iterator[SparkCatalogDatabase]:
    for statement in (
        "CREATE DATABASE catalog_a",
        "CREATE DATABASE catalog_b",
        """CREATE TABLE catalog_a.orders (
            id BIGINT COMMENT 'its id', code CHAR(3), note VARCHAR(5) DEFAULT 'none', name STRING COLLATE UTF8_LCASE,
            `strange ``name.` INT, ts TIMESTAMP, day DATE) USING parquet PARTITIONED BY (day)
            CLUSTERED BY (id) INTO 2 BUCKETS COMMENT 'all orders' TBLPROPERTIES ('owner.team' = 'a secret')""",
        """INSERT INTO catalog_a.orders VALUES
            (1, 'a', 'x', 'N', 7, TIMESTAMP '2023-12-31 23:59:59.999999 UTC', DATE '2023-12-31'),
            (2, 'b', 'x', 'N', 7, TIMESTAMP '2024-01-01 00:00:00 UTC', DATE '2024-01-01'),
            (3, 'c', 'x', 'N', 7, TIMESTAMP '2024-01-01 23:59:59.999999 UTC', DATE '2024-01-01'),
            (4, 'd', 'x', 'N', 7, TIMESTAMP '2024-01-02 00:00:00 UTC', DATE '2024-01-02'),
            (5, 'e', 'x', 'N', 7, NULL, NULL)""",
        """CREATE TABLE catalog_b.clocks USING parquet AS
            SELECT id, TIMESTAMP_NTZ '2024-03-30' + make_dt_interval(0, 0, 15 * id) AS ts FROM range(192)
            UNION ALL SELECT 192 + id, TIMESTAMP_NTZ '2024-10-26' + make_dt_interval(0, 0, 15 * id) FROM range(192)""",
        "CREATE VIEW catalog_a.small COMMENT 'few columns' AS SELECT id, ts FROM catalog_a.orders",
        """CREATE VIEW catalog_a.joined AS WITH clocks AS (SELECT * FROM catalog_a.small)
            SELECT clocks.id, c.ts FROM clocks JOIN catalog_b.clocks c ON c.id = clocks.id""",
        "CREATE TABLE catalog_a.doomed (x INT) USING parquet",
        "CREATE VIEW catalog_a.broken AS SELECT x FROM catalog_a.doomed",
        "DROP TABLE catalog_a.doomed",
        "CREATE TEMPORARY VIEW fleeting AS SELECT 1 AS one",
    ):
        spark.sql(statement)
    yield SparkCatalogDatabase(DatabaseAddress("lake", "spark:spark_catalog"), spark)
    spark.sql("DROP VIEW fleeting")
    spark.sql("DROP DATABASE catalog_a CASCADE")
    spark.sql("DROP DATABASE catalog_b CASCADE")


@pytest.fixture(scope="module")
def schema(lake: SparkCatalogDatabase) -> DatabaseSchema:
    return lake.extract(Selection(schemas=("catalog_a", "catalog_b")))


def ids(lake: SparkCatalogDatabase, table: Table, rows: Rows) -> list[int]:
    return sorted(row["id"] for row in lake.dataframe(Scan(table, rows)).select("id").collect())


def test_tables_and_columns_are_described(schema: DatabaseSchema) -> None:
    assert [str(table.table_name) for table in schema.tables] == ["catalog_a.orders", "catalog_b.clocks"]
    orders = schema.table(ORDERS)
    assert [(column.name, column.type) for column in orders.columns] == [
        ("id", "bigint"),
        ("code", "char(3)"),
        ("note", "varchar(5)"),
        ("name", "string collate UTF8_LCASE"),
        ("strange `name.", "int"),
        ("ts", "timestamp"),
        ("day", "date"),
    ]
    assert (orders.time_index, orders.comment, orders.options) == (
        "ts",
        "all orders",
        {
            "provider": "parquet",
            "not_carried": ["partitioning by day", "bucketing by [`id`] into 2 buckets", "table property owner.team"],
        },
    )
    assert (orders.column("id").comment, orders.column("note").default) == ("its id", "'none'")
    assert (orders.column("name").collation, orders.column("code").collation) == ("UTF8_LCASE", None)


def test_views_are_described_with_what_they_read(schema: DatabaseSchema) -> None:
    views = {view.name: view for view in schema.views}
    assert sorted(views) == ["broken", "joined", "small"]
    assert views["small"].definition == "SELECT id, ts FROM catalog_a.orders"
    assert (views["small"].depends_on, views["small"].comment) == ((ORDERS,), "few columns")
    assert [str(name) for name in views["joined"].depends_on] == [
        "catalog_a.orders",
        "catalog_a.small",
        "catalog_b.clocks",
    ]
    assert (views["broken"].columns, views["broken"].definition) == ((), "SELECT x FROM catalog_a.doomed")


def test_a_namespace_limits_what_is_seen(lake: SparkCatalogDatabase, spark: SparkSession) -> None:
    part = SparkCatalogDatabase(DatabaseAddress("lake", "spark:spark_catalog.catalog_b"), spark)
    assert [str(table.table_name) for table in part.extract(Selection()).tables] == ["catalog_b.clocks"]


def test_windows_are_half_open(lake: SparkCatalogDatabase, schema: DatabaseSchema) -> None:
    orders = schema.table(ORDERS)
    start, end = utc(2024, 1, 1), utc(2024, 1, 2)
    assert ids(lake, orders, WindowRows(start, end)) == [2, 3]
    assert ids(lake, orders, TimelessRows()) == [5]
    assert ids(lake, orders, AllRows()) == [1, 2, 3, 4, 5]
    assert lake.count_outside(orders, start, end) == 2
    assert lake.time_bounds((orders,)) == (utc(2023, 12, 31, 23, 59, 59, 999999), utc(2024, 1, 2))


def test_a_date_is_its_midnight_in_the_plans_zone(lake: SparkCatalogDatabase) -> None:
    orders = lake.extract(Selection(tables=(ORDERS,), time_columns={ORDERS: "day"})).table(ORDERS)
    start, end = utc(2023, 12, 31, 23), utc(2024, 1, 1, 23)
    assert ids(lake, orders, WindowRows(start, end, "Europe/Berlin")) == [2, 3]
    assert ids(lake, orders, WindowRows(start, end)) == [2, 3]
    assert ids(lake, orders, WindowRows(start + timedelta(seconds=1), end, "Europe/Berlin")) == []
    assert lake.time_bounds((orders,), "Europe/Berlin") == (utc(2023, 12, 30, 23), utc(2024, 1, 1, 23))


@settings(max_examples=3)
@given(cut=st.datetimes(datetime(2024, 3, 30), datetime(2024, 10, 28)))
def test_windows_yield_every_row_exactly_once(
    lake: SparkCatalogDatabase, schema: DatabaseSchema, cut: datetime
) -> None:
    zone = "Europe/Berlin"
    clocks = schema.table(TableName("catalog_b", "clocks"))
    edge = cut.replace(tzinfo=UTC)
    before = ids(lake, clocks, WindowRows(utc(1, 1, 1), edge, zone))
    after = ids(lake, clocks, WindowRows(edge, utc(9999, 12, 31), zone))
    assert sorted(before + after) == list(range(384))
    assert lake.count_outside(clocks, edge, utc(9999, 12, 31), zone) == len(before)


def test_a_selected_view_is_exported_as_a_table(lake: SparkCatalogDatabase) -> None:
    small = TableName("catalog_a", "small")
    schema = lake.extract(Selection(tables=(small,)))
    assert schema.views == ()
    assert (schema.table(small).options, schema.table(small).time_index) == ({"view": True}, "ts")
    assert ids(lake, schema.table(small), WindowRows(utc(2024, 1, 1), utc(2024, 1, 2))) == [2, 3]


def test_unknown_names_are_refused(lake: SparkCatalogDatabase, spark: SparkSession) -> None:
    with pytest.raises(UnknownRelationError, match="'orders'"):
        lake.extract(Selection(tables=(TableName("catalog_a", "order"),)))
    with pytest.raises(PlanError, match="'tss'"):
        lake.extract(Selection(time_columns={ORDERS: "tss"}))
    for uri in ("spark:spark_catalog.nowhere", "spark:no_such_catalog"):
        with pytest.raises(UnknownRelationError, match="lake"):
            SparkCatalogDatabase(DatabaseAddress("lake", uri), spark)


def test_a_session_in_another_time_zone_is_refused(spark: SparkSession) -> None:
    other = spark.newSession()
    other.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    with pytest.raises(DatabaseError, match="'Europe/Berlin'; timestamps need 'UTC'"):
        SparkCatalogDatabase(DatabaseAddress("lake", "spark:spark_catalog"), other)


def test_utc_is_every_zone_that_spark_shifts_no_time_to(spark: SparkSession) -> None:
    prefixed = [f"{name}{sign}{zero}" for name in ("", "UTC", "GMT", "UT") for sign in "+-" for zero in ZEROS]
    of_java = spark._jvm.java.time.ZoneId.getAvailableZoneIds()
    zones = {"Z", "UT", "UTC", "+01:00", "-00:30", "UTC+1", "GMT-02:00", *prefixed, *of_java}
    spark.createDataFrame([(zone,) for zone in sorted(zones)], "zone STRING").createOrReplaceTempView("zones")
    moments = ("1850-01-01", "1916-07-01", "1941-07-01", "1970-01-01", "1970-07-01", "2024-01-01", "2024-07-01")
    same = " AND ".join(f"from_utc_timestamp('{moment}', zone) = TIMESTAMP '{moment}'" for moment in moments)
    unshifted = spark.sql(f"SELECT zone FROM zones WHERE {same}").collect()
    assert {row["zone"] for row in unshifted} == {zone for zone in zones if is_utc(zone)}


def test_a_session_in_utc_by_another_name_reads_the_same_instants(
    spark: SparkSession, lake: SparkCatalogDatabase, schema: DatabaseSchema
) -> None:
    other = spark.newSession()
    other.conf.set("spark.sql.session.timeZone", "Etc/UTC")
    scan = Scan(schema.table(ORDERS), WindowRows(utc(2024, 1, 1), utc(2024, 1, 2)))
    found = SparkCatalogDatabase(DatabaseAddress("lake", "spark:spark_catalog"), other).dataframe(scan)
    assert sorted(found.collect()) == sorted(lake.dataframe(scan).collect())


def test_a_part_is_refused(lake: SparkCatalogDatabase, schema: DatabaseSchema) -> None:
    with pytest.raises(DatabaseError, match="has no parts"):
        lake.dataframe(Scan(schema.table(ORDERS), AllRows(), "rowid:0-1"))


def test_windows_are_pushed_down_to_the_files(
    lake: SparkCatalogDatabase, schema: DatabaseSchema, capsys: pytest.CaptureFixture[str]
) -> None:
    for zone in ("UTC", "Europe/Berlin"):
        clocks = schema.table(TableName("catalog_b", "clocks"))
        lake.dataframe(Scan(clocks, WindowRows(utc(2024, 4, 1), utc(2024, 5, 1), zone))).explain()
        assert "PushedFilters: [IsNotNull(ts), GreaterThanOrEqual(ts," in capsys.readouterr().out
