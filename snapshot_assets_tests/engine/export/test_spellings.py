"""Names of a plan in another spelling than the catalog's: DuckDB ignores case, PostgreSQL does not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.operations.delete import plan_row_deletion
from snapshot_assets.catalog.schemas import read_schema
from snapshot_assets.engine.compact.options import CompactionOptions
from snapshot_assets.engine.compact.plan import plan_compaction
from snapshot_assets.engine.reading.options import parse_options
from snapshot_assets.engine.reading.planning import TableRead, choose_read
from snapshot_assets.errors import PlanError, SnapshotExistsError, UnknownRelationError
from snapshot_assets.format.actions import Header
from snapshot_assets.format.predicates import columns_of
from snapshot_assets.format.relations import DatabaseSchema, TableName
from snapshot_assets.plan.plan import Plan
from snapshot_assets_tests.cli.helpers import contents, store_of
from snapshot_assets_tests.cli.helpers import export as export_plan
from snapshot_assets_tests.databases.duckdb.files import make_file
from snapshot_assets_tests.engine.export.copies import copied
from snapshot_assets_tests.engine.restore.imports import execute

RANGE: dict[str, Any] = {"start_time": "2025-01-01T00:00:00Z", "end_time": "2025-01-02T00:00:00Z"}
STATEMENTS = (
    'CREATE SCHEMA "Shop"',
    'CREATE TABLE "Shop"."Orders" (id int, "Placed" timestamp, "Paid" timestamp, "Card" text, "Ünit" text)',
    """INSERT INTO "Shop"."Orders" VALUES (1, '2025-01-01 01:00', '2025-01-01 02:00', '4929', 'kg')""",
    'CREATE TABLE "Shop"."Tmp" (id int)',
    'CREATE TABLE "Shop"."Log_1" (id int)',
)
UPPER: dict[str, Any] = {
    "schemas": ["SHOP"],
    "exclude_tables": ["shop.TMP", "sHOp.lOg_*"],
    "exclude_columns": ["shop.orders.card"],
    "mask": {"SHOP.ORDERS.ID": "id + 1"},
    "time_columns": {"shop.orders": "placed"},
    "carriers": {"Shop.ORDERS.paid": "text"},
}
AS_STORED: dict[str, Any] = {
    "schemas": ["Shop"],
    "exclude_tables": ["Shop.Tmp", "Shop.Log_*"],
    "exclude_columns": ["Shop.Orders.Card"],
    "mask": {"Shop.Orders.id": "id + 1"},
    "time_columns": {"Shop.Orders": "Placed"},
    "carriers": {"Shop.Orders.Paid": "text"},
}


@pytest.fixture
def shop(tmp_path: Path) -> str:
    """A DuckDB file with names in mixed case."""
    return make_file(tmp_path / "source.duckdb", *STATEMENTS).uri


@pytest.fixture
def location(tmp_path: Path) -> Path:
    """A folder that does not exist yet."""
    return tmp_path / "location"


def plan_of(uri: str, location: Path, **fields: Any) -> Plan:
    return Plan(**{"name": "shop", "source": uri, "to": f"file://{location}", **RANGE, **fields})


def export(plan: Plan) -> None:
    export_plan(plan, store_of(plan.to))


def stored(location: Path) -> tuple[Header, DatabaseSchema]:
    state = Catalog.open(store_of(location)).require_snapshot()
    assert state.header is not None
    return state.header, read_schema(store_of(location), state.schemas[state.schema_id])


def test_a_location_has_the_spelling_of_the_catalog_whatever_the_plan_has(shop: str, location: Path) -> None:
    export(plan_of(shop, location, **UPPER))
    header, schema = stored(location)
    assert header.schemas == header.requested_schemas == ("Shop",)
    assert header.exclude_tables == ("Shop.Tmp", "sHOp.lOg_*"), "a pattern of several tables stays as it is"
    assert header.exclude_columns == ("Shop.Orders.Card",)
    assert header.mask == {"Shop.Orders.id": "id + 1"}
    [table] = schema.tables
    assert [column.name for column in table.columns] == ["id", "Placed", "Paid", "Ünit"]
    assert table.time_index == "Placed"
    assert table.column("Paid").carrier == "text"
    assert "data/" in " ".join(info.path for info in store_of(location).list())
    assert not any(b"4929" in path.read_bytes() for path in location.rglob("*") if path.is_file())


def test_an_export_resumed_in_another_spelling_is_the_same_export(shop: str, location: Path) -> None:
    export(plan_of(shop, location, **UPPER))
    before = stored(location)
    export(plan_of(shop, location, **AS_STORED))
    assert stored(location) == before
    with pytest.raises(SnapshotExistsError, match="exclude_columns"):
        export(plan_of(shop, location, **{**AS_STORED, "exclude_columns": ["Shop.Orders.Ünit"]}))
    with pytest.raises(SnapshotExistsError, match="mask"):
        export(plan_of(shop, location, **{**AS_STORED, "mask": {"Shop.Orders.id": "ID + 1"}}))


def test_a_table_whose_spelling_changes_in_the_catalog_does_not_become_a_second_table(
    shop: str, location: Path
) -> None:
    start = {"kind": "continuous", "end_time": None, "start_time": datetime.now(UTC) - timedelta(days=2)}
    plan = plan_of(shop, location, **start, time_columns={"Shop.Orders": "Placed"})
    export(plan)
    before = contents(location)
    execute(shop, 'ALTER TABLE "Shop"."Orders" RENAME TO orders')
    with pytest.raises(SnapshotExistsError, match=r"Shop\.Orders there is Shop\.orders here, one table in two"):
        export(plan)
    assert contents(location) == before
    execute(shop, 'ALTER TABLE "Shop".orders RENAME TO "Orders"')
    export(plan)


def test_postgresql_compares_names_exactly(postgresql_database: str, location: Path) -> None:
    execute(postgresql_database, *STATEMENTS)
    export(plan_of(postgresql_database, location, **AS_STORED))
    for field, value in UPPER.items():
        wrong = plan_of(postgresql_database, location.with_name(field), **{**AS_STORED, field: value})
        if field == "schemas":
            expected = r"(?s)Schema 'SHOP' does not exist.*Did you mean 'Shop'"
        else:
            expected = r"(?s)does not exist|has no column|no schema"
        with pytest.raises((PlanError, UnknownRelationError), match=expected):
            export(wrong)
        assert not location.with_name(field).exists()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"schemas": ["Shop", "SHOP"]}, "schemas names SHOP and Shop, which are one schema"),
        (
            {"tables": ["Shop.Orders", "shop.orders"]},
            r"tables names Shop\.Orders and shop\.orders, which are one table",
        ),
        (
            {"time_columns": {"Shop.Orders": "Paid", "shop.orders": "Placed"}},
            r"time_columns names Shop\.Orders and shop\.orders",
        ),
        (
            {"exclude_columns": ["Shop.Orders.Card", "shop.orders.card"]},
            r"exclude_columns or mask names Shop\.Orders\.Card and shop\.orders\.card, which are one column",
        ),
        (
            {"exclude_columns": ["Shop.Orders.Card"], "mask": {"shop.orders.card": "'x'"}},
            r"Shop\.Orders\.Card and shop\.orders\.card",
        ),
        (
            {"carriers": {"Shop.Orders.Paid": "text", "shop.orders.paid": "text"}},
            r"carriers names Shop\.Orders\.Paid and shop\.orders\.paid",
        ),
        ({"exclude_tables": ["Shop.Tmp", "shop.tmp"]}, r"exclude_tables names Shop\.Tmp and shop\.tmp"),
        ({"tables": ["shop.tmp"], "exclude_tables": ["Shop.Tmp"]}, r"Shop\.Tmp is named, and exclude_tables leaves"),
        ({"mask": {"shop.orders.placed": "now()"}, "time_columns": {"Shop.Orders": "Placed"}}, "time index"),
        ({"tables": ["shop.orderz"]}, r"'orderz' does not exist in schema 'Shop'. Did you mean 'Orders'"),
        ({"exclude_columns": ["shop.orders.ünit"]}, "has no column 'ünit'"),  # only ASCII letters have two cases
    ],
)
def test_a_plan_that_names_one_thing_twice_is_refused(
    shop: str, location: Path, fields: dict[str, Any], expected: str
) -> None:
    chosen = fields if "tables" in fields else {"time_columns": {"shop.ORDERS": "placed"}} | fields
    with pytest.raises((PlanError, UnknownRelationError), match=expected):
        export(plan_of(shop, location, **chosen))
    assert not location.exists()


def test_the_columns_of_a_copy_are_found_in_any_case(shop: str, location: Path) -> None:
    fields = {"partition_by": ["UNIT"], "split_by": "ID", "carriers": {"main.copied.PAID": "text"}}
    query = 'SELECT id, "Ünit" AS "Unit", "Paid" FROM "Shop"."Orders"'
    copied(shop, query, location, **fields)
    header, schema = stored(location)
    assert header.partition_by == ("Unit",)
    assert schema.tables[0].column("Paid").carrier == "text"
    assert [path.parent.name for path in location.rglob("data/**/*.parquet")] == ["Unit=kg"]


def test_a_copied_table_is_named_as_the_catalog_names_it(shop: str, location: Path) -> None:
    copied(shop, "shop.orders", location, exclude_columns=["SHOP.orders.CARD"])
    header, schema = stored(location)
    assert (header.query, header.exclude_columns) == ("Shop.Orders", ("Shop.Orders.Card",))
    assert [str(table.table_name) for table in schema.tables] == ["Shop.Orders"]


@pytest.mark.parametrize("kind", ["duckdb", "postgresql"])
def test_commands_on_a_snapshot_match_names_as_its_source_does(
    kind: str, request: pytest.FixtureRequest, location: Path
) -> None:
    uri: str = request.getfixturevalue("shop" if kind == "duckdb" else "postgresql_database")
    if kind == "postgresql":
        execute(uri, *STATEMENTS)
    export(plan_of(uri, location, time_columns={"Shop.Orders": "Placed"}))
    catalog, store, upper = Catalog.open(store_of(location)), store_of(location), TableName("SHOP", "ORDERS")
    options = parse_options({"path": location.as_uri(), "table": "shop.orders", "columns": "PAID"}, {})
    wanted = CompactionOptions(tables=(upper,))
    if kind == "postgresql":
        for call in (
            lambda: plan_row_deletion(catalog, upper, "id = 1"),
            lambda: plan_row_deletion(catalog, TableName("Shop", "Orders"), "ID = 1"),
            lambda: plan_compaction(store, catalog.state, wanted),
            lambda: choose_read(store, options),
        ):
            with pytest.raises((PlanError, UnknownRelationError)):
                call()
        return
    deletion = plan_row_deletion(catalog, upper, "ID = 1 AND CARD IS NOT NULL")
    assert (deletion.table, deletion.files) == (TableName("Shop", "Orders"), 1)
    assert set(columns_of(deletion.predicate)) == {"id", "Card"}
    assert {group.table.table_name for group in plan_compaction(store, catalog.state, wanted).groups} == {
        TableName("Shop", "Orders")
    }
    read = choose_read(store, options)
    assert isinstance(read, TableRead)
    assert (read.table.table_name, read.schema.names) == (TableName("Shop", "Orders"), ["Paid"])
