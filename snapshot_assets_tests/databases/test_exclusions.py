"""Views of databases that name no dependencies of columns: their text decides."""

from __future__ import annotations

from pathlib import Path

import pytest

from snapshot_assets.databases.protocol.refusals import Refusals
from snapshot_assets.databases.protocol.source import DatabaseAddress, Selection
from snapshot_assets.databases.selection.exclusions import without_hidden
from snapshot_assets.format.relations import Column, DatabaseSchema, Schema, Table, TableName, View
from snapshot_assets.testing.restores import source
from snapshot_assets_tests.databases.duckdb.files import make_file
from snapshot_assets_tests.databases.postgresql.helpers import execute

T = TableName("main", "t")
HIDING = Selection(exclude_columns=((T, "pin"),), exclude_tables=("main.tmp_*",))


def columns(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name=name, type="INTEGER", arrow_type="int32") for name in names)


def view(name: str, definition: str, reads: str, *names: str) -> View:
    read = (TableName("main", reads),)
    return View(schema="main", name=name, definition=definition, columns=columns(*names), depends_on=read)


def kept(*views: View) -> dict[str, list[str]]:
    schema = DatabaseSchema(
        database="duckdb",
        schemas=(Schema(name="main"),),
        tables=(Table(schema="main", name="t", columns=columns("id")),),
        views=views,
    )
    found = without_hidden(schema, HIDING, Refusals())
    named = " ".join(found.schemas[0].options.get("not_carried", ()))
    assert all(each.name in named for each in views if each.name not in {kept.name for kept in found.views})
    return {each.name: [column.name for column in each.columns] for each in found.views}


@pytest.mark.parametrize(
    ("definition", "names", "expected"),
    [
        ("SELECT id FROM t", ["id"], ["id"]),
        ("SELECT pin FROM t", ["pin"], None),
        ('SELECT id FROM t WHERE "PIN" = 1', ["id"], None),
        ("SELECT id AS spin FROM t", ["spin"], ["spin"]),
        ("SELECT * FROM t", ["id", "pin"], ["id"]),
        ("FROM t", ["id", "pin"], ["id"]),
        ("SELECT * FROM t", ["a", "b"], None),  # its columns have names of their own
        ("SELECT count(*) FROM t", ["count"], ["count"]),
    ],
)
def test_a_view_stays_where_it_works_without_the_column(
    definition: str, names: list[str], expected: list[str] | None
) -> None:
    assert kept(view("v", definition, "t", *names)) == ({} if expected is None else {"v": expected})


def test_views_of_views_and_of_excluded_tables_are_left_out_too() -> None:
    assert kept(
        view("a", "SELECT pin FROM t", "t", "pin"),
        view("b", "SELECT 1 AS one FROM a", "a", "one"),
        view("c", "SELECT x FROM tmp_1", "tmp_1", "x"),
        view("star", "SELECT * FROM t", "t", "id", "pin"),
        view("of_star", "SELECT pin FROM star", "star", "pin"),
        view("also_star", "SELECT * FROM star", "star", "id", "pin"),
        view("fine", "SELECT id FROM star", "star", "id"),
    ) == {"star": ["id"], "also_star": ["id"], "fine": ["id"]}


SCHEMAS = (
    *(f"CREATE SCHEMA {name}" for name in ("hollow", "gone", "kept", "numbered")),
    *(f"CREATE TABLE {name}.t (id int)" for name in ("gone", "kept", "numbered")),
    "CREATE VIEW gone.v AS SELECT id FROM gone.t",
    "CREATE SEQUENCE numbered.s",
)


@pytest.mark.parametrize("kind", ["duckdb", "postgresql", "mysql"])
def test_a_schema_of_nothing_but_excluded_tables_is_left_out_and_an_empty_one_stays(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if kind == "duckdb":
        address = make_file(tmp_path / "source.duckdb", *SCHEMAS)
    elif kind == "postgresql":
        address = DatabaseAddress("source", request.getfixturevalue("postgresql_database"))
        execute(address.uri, *SCHEMAS)
    else:
        server = request.getfixturevalue("mariadb_server")
        request.getfixturevalue("mariadb_database")  # dropped with all others
        server.sql(*SCHEMAS)
        address = DatabaseAddress("source", server.uri())
    with source(address) as database:
        found = database.extract(Selection(exclude_tables=("gone.*", "numbered.*"), time_columns={}))
    assert {each.name for each in found.schemas} - {"main", "public", "shop"} == {"hollow", "kept", "numbered"}
