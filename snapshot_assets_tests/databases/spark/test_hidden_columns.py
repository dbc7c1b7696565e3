"""Columns of Spark catalogs, and of a user's own DataFrames, that a plan leaves out or masks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from snapshot_assets import read as read_snapshot
from snapshot_assets.databases.protocol.source import AllRows, DatabaseAddress, Scan, Selection
from snapshot_assets.databases.selection.exclusions import uncarried
from snapshot_assets.databases.spark.source import SparkCatalogDatabase
from snapshot_assets.engine.export.run import ExportRun
from snapshot_assets.engine.runner import SparkRunner
from snapshot_assets.errors import PlanError
from snapshot_assets.format.relations import TableName
from snapshot_assets.plan.plan import Plan
from snapshot_assets_tests.cli.helpers import contents, make_plan, make_source, store_of

USERS = TableName("hidden_db", "users")
SECRET = "kestrel-47"


@pytest.fixture(scope="module")
def lake(spark: SparkSession) -> Iterator[SparkCatalogDatabase]:
    for statement in (
        "CREATE DATABASE hidden_db",
        "CREATE TABLE hidden_db.users (id INT, `pass word` STRING, phone VARCHAR(20), made TIMESTAMP) USING parquet",
        f"INSERT INTO hidden_db.users VALUES (1, '{SECRET}', '{SECRET}', TIMESTAMP '2025-01-01 10:00:00 UTC')",
        "CREATE VIEW hidden_db.secrets AS SELECT id, `pass word` FROM hidden_db.users",
        "CREATE VIEW hidden_db.ids AS SELECT id FROM hidden_db.users",
        "CREATE TABLE hidden_db.tmp_1 (a INT) USING parquet",
    ):
        spark.sql(statement)
    yield SparkCatalogDatabase(DatabaseAddress("lake", "spark:spark_catalog.hidden_db"), spark)
    spark.sql("DROP DATABASE hidden_db CASCADE")


HIDING = Selection(
    exclude_columns=((USERS, "pass word"),), masks={(USERS, "phone"): "right(phone, 2)"}, exclude_tables=("*.tmp_*",)
)


@pytest.mark.slow
def test_documents_lack_what_is_hidden(lake: SparkCatalogDatabase) -> None:
    schema = lake.extract(HIDING)
    [table] = schema.tables
    assert [column.name for column in table.columns] == ["id", "phone", "made"]
    assert any('Column "pass word"' in sentence for sentence in uncarried(schema))
    assert [view.name for view in schema.views] == ["ids"]
    assert any("hidden_db.secrets" in each for each in schema.schemas[0].options["not_carried"])
    assert [row.asDict()["phone"] for row in lake.dataframe(Scan(table, AllRows())).collect()] == ["47"]


@pytest.mark.parametrize(
    ("masks", "message"),
    [
        ({(USERS, "id"): "max(id)"}, "mask of hidden_db.users.id is refused"),
        ({(USERS, "id"): "nothing"}, "mask of hidden_db.users.id is refused"),
        ({(USERS, "made"): "NULL"}, "is the time index"),
    ],
)
def test_a_mask_that_spark_refuses_is_named(
    lake: SparkCatalogDatabase, masks: dict[tuple[TableName, str], str], message: str
) -> None:
    with pytest.raises(PlanError, match=message):
        lake.extract(Selection(masks=masks))


@pytest.mark.parametrize("view", ["secrets", "ids"])
def test_a_view_whose_rows_are_exported_must_hide_all_its_columns(lake: SparkCatalogDatabase, view: str) -> None:
    name = TableName("hidden_db", view)
    hidden = ((USERS, "pass word"), (name, "pass word")) if view == "secrets" else ((USERS, "pass word"),)
    with pytest.raises(PlanError, match=rf"hidden_db\.{view} is a view whose rows are exported.*\(id are not\)"):
        lake.extract(Selection(tables=(USERS, name), exclude_columns=hidden))
    found = lake.extract(Selection(tables=(USERS, name), exclude_columns=hidden, masks={(name, "id"): "id"}))
    assert [column.name for column in found.table(name).columns] == ["id"]


def test_an_export_of_a_catalog_hides_columns(lake: SparkCatalogDatabase, spark: SparkSession, tmp_path: Path) -> None:
    location = tmp_path / "location"
    plan = Plan(
        name="lake",
        source="spark:spark_catalog.hidden_db",
        to=location.as_uri(),
        start_time="2025-01-01T00:00:00Z",
        end_time="2025-01-02T00:00:00Z",
        exclude_columns=['hidden_db.users."pass word"'.replace('"', "")],
        mask={"hidden_db.users.phone": "right(phone, 2)"},
    )
    runner = SparkRunner(lambda: spark)
    address = DatabaseAddress("lake", "spark:spark_catalog.hidden_db")
    with ExportRun(plan, address, store_of(location), runner, "run", session=lambda: spark).open() as opened:
        list(opened.export(opened.catalog.state.expected_chunks()))
        opened.seal()
    assert not [path for path, data in contents(location).items() if SECRET.encode() in data]
    frame = read_snapshot(spark, location.as_uri(), "hidden_db.users")
    assert [row.asDict()["phone"] for row in frame.collect()] == ["47"]
    assert frame.columns == ["id", "phone", "made"]
    with pytest.raises(PlanError, match="no column 'pass word'"):
        read_snapshot(spark, location.as_uri(), "hidden_db.users", columns=["pass word"])


@pytest.mark.slow
def test_frames_of_a_user_are_hidden_too(spark: SparkSession, tmp_path: Path) -> None:
    source, location = make_source(tmp_path / "s.duckdb"), tmp_path / "location"
    plan = make_plan(
        source,
        location.as_uri(),
        exclude_columns=["main.readings.value"],
        mask={"main.readings.note": "upper(note)"},
    )
    rows = [("2025-01-01 00:00:00", 4711.5, "abc")]
    frame = spark.createDataFrame(rows, "moment STRING, value DOUBLE, note STRING").selectExpr(
        "CAST(moment AS TIMESTAMP) AS moment", "value", "note"
    )
    run = ExportRun(plan, DatabaseAddress("s", source), store_of(location), SparkRunner(lambda: spark), "run")
    opened = run.open_frames({1: {TableName("main", "readings"): frame}})
    [outcome] = opened.export([1])
    assert outcome.rows == 1
    [table] = opened.schema.tables
    assert [column.name for column in table.columns] == ["moment", "note"]
    [path] = location.glob("data/1/*.parquet")
    [row] = spark.read.parquet(str(path)).select("note").collect()
    assert row.asDict() == {"note": "ABC"}
