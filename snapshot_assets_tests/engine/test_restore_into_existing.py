"""Imports into tables that are there already: made by an earlier import, or by somebody else."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from snapshot_assets.engine.restore_plan import Filters
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.databases.postgresql.helpers import client
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.imports import Into
from snapshot_assets_tests.servers.postgresql import MakeDatabase


def execute(uri: str, *statements: str) -> None:
    """Run statements in a database of either kind."""
    if uri.startswith("duckdb"):
        with duckdb.connect(uri.removeprefix("duckdb://")) as connection:
            connection.execute("SET TimeZone = 'UTC'; " + "; ".join(statements))
    else:
        with client(uri) as run:
            for statement in statements:
                run(statement)


@pytest.fixture(params=["duckdb", "postgresql"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Place, Into]:
    """A source and a target of the same kind, with an empty schema `s`."""
    if request.param == "duckdb":
        source, target = (f"duckdb://{tmp_path}/{name}.duckdb" for name in ("source", "target"))
    else:
        make: MakeDatabase = request.getfixturevalue("make_postgresql_database")
        source, target = make(), make()
    execute(source, "CREATE SCHEMA s")
    return Place(source, tmp_path / "location"), Into(target)


ORDERS = Filters(tables=(TableName("s", "orders"),))


def test_a_sequence_is_set_past_what_a_later_import_loaded_too(pair: tuple[Place, Into]) -> None:
    place, into = pair
    execute(
        place.source,
        "CREATE SEQUENCE s.numbers",
        "CREATE TABLE s.orders (t TIMESTAMPTZ, id BIGINT DEFAULT nextval('s.numbers'))",
        "INSERT INTO s.orders (t) SELECT '2025-01-01 01:00:00Z' FROM generate_series(1, 100)",
    )
    place.export()
    assert into.restore(place.store, filters=ORDERS).finished
    execute(place.source, "INSERT INTO s.orders (t) SELECT '2025-01-05 01:00:00Z' FROM generate_series(1, 100)")
    place.export(chunks=[5], replace=True)
    assert into.restore(place.store, filters=ORDERS, replace=True).finished
    execute(into.uri, "INSERT INTO s.orders (t) VALUES (NULL)")
    assert sorted(into.tables()["orders"]["id"].to_pylist()) == list(range(1, 202))
