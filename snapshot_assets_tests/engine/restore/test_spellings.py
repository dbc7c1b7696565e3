"""Filters of a restore in another spelling than the snapshot's: its source decides how names are compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from snapshot_assets.databases.convert.renaming import Renaming
from snapshot_assets.engine.restore.settings import Filters
from snapshot_assets.errors import PlanError, UnknownRelationError
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import Into, execute
from snapshot_assets_tests.servers.postgresql import MakeDatabase

STATEMENTS = (
    'CREATE SCHEMA "Shop"',
    'CREATE TABLE "Shop"."Orders" (id int)',
    'INSERT INTO "Shop"."Orders" VALUES (1), (2)',
    'CREATE TABLE "Shop".items (id int)',
)
ORDERS = TableName("Shop", "Orders")


@pytest.fixture
def shop(tmp_path: Path) -> Place:
    """A snapshot of a DuckDB file with names in mixed case."""
    place = Place(f"duckdb://{tmp_path}/source.duckdb", tmp_path / "location")
    execute(place.source, *STATEMENTS)
    place.export()
    return place


def chosen(*tables: str, schemas: tuple[str, ...] = (), new_schemas: Any = (), new_tables: Any = ()) -> Filters:
    named = tuple(TableName(*name.split(".")) for name in tables)
    return Filters(schemas=schemas, tables=named, renaming=Renaming.of(new_schemas, new_tables))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["duckdb", "postgresql"])
def test_names_of_a_duckdb_snapshot_are_found_in_any_case_in_any_target(
    shop: Place, kind: str, make_postgresql_database: MakeDatabase, tmp_path: Path
) -> None:
    target = Into(make_postgresql_database() if kind == "postgresql" else f"duckdb://{tmp_path}/target.duckdb")
    schemas, tables = [("SHOP", "restored")], [(TableName("SHOP", "orders"), TableName("restored", "Bills"))]
    restored = target.restore(
        shop.store,
        finish=False,
        filters=chosen("shop.ORDERS", schemas=("sHOP",), new_schemas=schemas, new_tables=tables),
    )
    assert restored.rows == 2
    [record] = target.imports()
    filters = json.loads(record.filters)
    assert (filters["schemas"], filters["tables"]) == (["Shop"], [["Shop", "Orders"]])
    assert filters["renaming"] == {
        "schemas": [["Shop", "restored"]],
        "tables": [[["Shop", "Orders"], ["restored", "Bills"]]],
    }
    assert record.tables == (TableName("restored", "Bills"),)
    again = target.restore(
        shop.store, filters=chosen("Shop.Orders", schemas=("SHOP",), new_schemas=schemas, new_tables=tables)
    )
    assert again.finished
    assert again.rows == 0, "another spelling resumes the same import"
    assert len(target.imports()) == 1


def test_new_names_are_compared_as_the_target_compares_them(shop: Place, tmp_path: Path) -> None:
    target = Into(f"duckdb://{tmp_path}/target.duckdb")
    for new in ("Archive", "ARCHIVE"):
        assert target.restore(shop.store, filters=chosen(new_schemas=[("shop", new)])).finished
    assert len(target.imports()) == 1
    assert target.tables()["Orders"].num_rows == 2


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (chosen("Shop.Orders", "shop.orders"), r"tables names Shop\.Orders and shop\.orders, which are one"),
        (chosen(schemas=("Shop", "SHOP")), "schemas names Shop and SHOP"),
        (chosen(new_schemas=[("Shop", "a"), ("shop", "b")]), "map_schemas names Shop and shop"),
        (
            chosen(new_tables=[(ORDERS, TableName("a", "b")), (TableName("shop", "orders"), TableName("a", "c"))]),
            r"map_tables names Shop\.Orders and shop\.orders",
        ),
        (chosen("shop.orderz"), "'orderz' does not exist in schema 'Shop'. Did you mean 'Orders'"),
    ],
)
def test_filters_that_name_one_table_twice_are_refused(
    shop: Place, tmp_path: Path, filters: Filters, expected: str
) -> None:
    with pytest.raises((PlanError, UnknownRelationError), match=expected):
        Into(f"duckdb://{tmp_path}/target.duckdb").run(shop.store, filters=filters).prepare()
    assert not (tmp_path / "target.duckdb").exists()


def test_names_of_a_postgresql_snapshot_are_compared_exactly_in_any_target(
    make_postgresql_database: MakeDatabase, tmp_path: Path
) -> None:
    place = Place(make_postgresql_database(), tmp_path / "location")
    execute(place.source, *STATEMENTS)
    place.export()
    duck = Into(f"duckdb://{tmp_path}/target.duckdb")
    for wrong in (
        chosen("shop.Orders"),
        chosen("Shop.orders"),
        chosen(schemas=("shop",)),
        chosen(new_schemas=[("shop", "a")]),
    ):
        with pytest.raises(UnknownRelationError, match=r"Did you mean '(Shop|Orders)'"):
            duck.run(place.store, filters=wrong).prepare()
    assert duck.restore(place.store, filters=chosen("Shop.Orders")).rows == 2
