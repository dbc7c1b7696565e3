"""Views: a view that `tables` names is a table with rows, any other is a view, and with `tables` it stays out."""

from __future__ import annotations

from pathlib import Path

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.schemas import read_schema
from snapshot_assets.format.relations import DatabaseSchema, TableName
from snapshot_assets.plan.plan import Plan
from snapshot_assets_tests.cli.helpers import export, store_of
from snapshot_assets_tests.databases.duckdb.files import make_file
from snapshot_assets_tests.databases.postgresql.helpers import execute

STATEMENTS = (
    "CREATE TABLE orders (id int, total int)",
    "INSERT INTO orders VALUES (1, 10), (2, 20)",
    "CREATE VIEW sums AS SELECT sum(total) AS total FROM orders",
    "CREATE VIEW ids AS SELECT id FROM orders",
)


@pytest.fixture(params=["duckdb", "postgresql"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "duckdb":
        return make_file(tmp_path / "shop.duckdb", *STATEMENTS).uri
    uri: str = request.getfixturevalue("postgresql_database")
    execute(uri, *STATEMENTS, "CREATE MATERIALIZED VIEW kept AS SELECT id FROM orders")
    return uri


def exported(uri: str, folder: Path, **fields: list[str]) -> tuple[DatabaseSchema, dict[TableName, int]]:
    location = folder / "location"
    plan = Plan(name="shop", source=uri, to=location.as_uri(), **fields)
    export(plan, store_of(location))
    state = Catalog.open(store_of(location)).state
    rows = {TableName(each.file.schema, each.file.table): each.file.rows for each in state.live_files()}
    return read_schema(store_of(location), state.schemas[state.schema_id]), rows


def test_without_tables_views_are_views(shop: str, tmp_path: Path) -> None:
    schema, rows = exported(shop, tmp_path)
    assert [table.name for table in schema.tables] == ["orders"]
    assert {view.name for view in schema.views} >= {"ids", "sums"}
    assert {name.table for name in rows} == {"orders"}


def test_a_named_view_is_a_table_and_one_that_is_not_named_is_left_out(shop: str, tmp_path: Path) -> None:
    name = "main" if shop.startswith("duckdb") else "public"
    views = ["sums"] if name == "main" else ["kept", "sums"]
    schema, rows = exported(shop, tmp_path, tables=[f"{name}.{view}" for view in views])
    assert [table.name for table in schema.tables] == views
    assert schema.views == ()
    assert {table.table: count for table, count in rows.items()} == dict.fromkeys(["kept"] * (name != "main"), 2) | {
        "sums": 1
    }


def test_an_excluded_view_is_left_out(shop: str, tmp_path: Path) -> None:
    schema, _ = exported(shop, tmp_path, exclude_tables=["*.sums"])
    assert "ids" in {view.name for view in schema.views}
    assert "sums" not in {view.name for view in schema.views}
