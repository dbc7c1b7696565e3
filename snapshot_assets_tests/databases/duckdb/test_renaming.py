"""Documents with new names restore everything that a file has, and all that names a table names the new one."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from snapshot_assets.databases.convert.renaming import Renaming
from snapshot_assets.databases.duckdb import define, rename
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.errors import DocumentError
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName
from snapshot_assets.testing.restores import extracted, make, record_of, target
from snapshot_assets_tests.databases.duckdb.files import make_file, path_of
from snapshot_assets_tests.databases.duckdb.shop import SHOP, fresh

pytestmark = pytest.mark.slow


def main(**names: str) -> Renaming:
    """Return the renaming of tables of schema `main`."""
    return Renaming.of((), ((TableName("main", old), TableName("main", new)) for old, new in names.items()))


def made(schema: DatabaseSchema, into: DatabaseAddress) -> None:
    """Create a schema in a file."""
    definition = define(schema)
    record = record_of(definition)
    with target(into) as opened:
        opened.begin(record, "")
        make(opened, record, [*definition.before, *definition.after])


def back(renaming: Renaming) -> Renaming:
    return Renaming.of(((new, old) for old, new in renaming.schemas), ((new, old) for old, new in renaming.tables))


@pytest.mark.parametrize(
    "renaming",
    [
        Renaming.of([("main", "shop2"), ("out.side", "In side"), ('we"ird. ; näme', "x")]),
        main(child="children", z_parent="Parents", a_grandchild="c", employees="staff"),
        main(z_first="seen", a_second="Second"),
        Renaming.of([("main", "moved")], [(TableName("main", "child"), TableName("moved", "kid"))]),
    ],
    ids=str,
)
def test_a_schema_that_is_renamed_restored_and_renamed_back_is_the_same(tmp_path: Path, renaming: Renaming) -> None:
    schema = extracted(make_file(tmp_path / "shop.duckdb", *SHOP))
    new, lost = rename(schema, renaming)
    assert lost == ()
    made(new, fresh(tmp_path))
    found = extracted(fresh(tmp_path))
    views = {view.table_name: view.depends_on for view in found.views}
    assert {view.table_name for view in new.views if view.columns} == set(views)
    assert all(set(view.depends_on) == set(views[view.table_name]) for view in new.views if view.columns)
    made_again, lost = rename(found, back(renaming))
    assert lost == ()
    made(made_again, fresh(tmp_path, "back"))
    again = extracted(fresh(tmp_path, "back"))
    assert list(map(plain, again.tables)) == list(map(plain, extracted(twin(schema, tmp_path)).tables))


def plain(table: Table) -> Table:
    """Return a table without its indexes, whose sequences are named without their schema."""
    columns = tuple(
        column.model_copy(update={"default": (column.default or "").replace('"main".', "").replace('"', "")})
        for column in table.columns
    )
    return table.model_copy(update={"indexes": (), "columns": columns})


def twin(schema: DatabaseSchema, folder: Path) -> DatabaseAddress:
    """Return a file into which documents were restored as they are."""
    made(schema, fresh(folder, "twin"))
    return fresh(folder, "twin")


def test_views_defaults_and_checks_name_the_new_table(tmp_path: Path) -> None:
    file = make_file(
        tmp_path / "source.duckdb",
        "CREATE SCHEMA s",
        "CREATE SEQUENCE s.numbers",
        "CREATE TYPE s.mood AS ENUM ('bad', 'good')",
        "CREATE TABLE s.orders (id INTEGER DEFAULT nextval('s.numbers') CHECK (orders.id > 0), m s.mood"
        " DEFAULT CAST('good' AS s.mood), name VARCHAR)",
        "CREATE INDEX orders_id ON s.orders (id)",
        "CREATE INDEX by_name ON s.orders (lower(name))",
        "CREATE VIEW s.plain AS SELECT orders.id, 'ö' AS o FROM orders",
        "CREATE VIEW main.over AS WITH orders AS (SELECT 1 AS id) SELECT orders.id, o.m FROM orders"
        " JOIN s.orders o USING (id) WHERE o.m = 'good'::s.mood AND EXISTS (FROM s.plain WHERE plain.id = o.id)",
        "CREATE VIEW qualified AS SELECT s.orders.id FROM s.orders",
    )
    renaming = Renaming.of([("s", "t")], [(TableName("s", "orders"), TableName("t", "sold"))])
    schema, lost = rename(extracted(file), renaming)
    assert [sentence.split(":")[0] for sentence in lost] == ["View main.qualified is left out"]
    made(schema, fresh(tmp_path))
    with duckdb.connect(path_of(fresh(tmp_path))) as connection:
        connection.execute("INSERT INTO t.sold (name) VALUES ('X')")
        assert connection.sql("FROM t.plain").fetchall() == [(1, "ö")]
        assert connection.sql("FROM main.over").fetchall() == [(1, "good")]
        with pytest.raises(duckdb.ConstraintException):
            connection.execute("INSERT INTO t.sold (id) VALUES (0)")
        indexes = connection.sql("SELECT schema_name, index_name FROM duckdb_indexes() ORDER BY ALL").fetchall()
        assert indexes == [("t", "sold_by_name"), ("t", "sold_id")]
        assert connection.sql("SELECT DISTINCT schema_name FROM duckdb_sequences()").fetchall() == [("t",)]


def test_an_expression_that_is_not_one_is_refused_by_name(tmp_path: Path) -> None:
    schema = extracted(make_file(tmp_path / "source.duckdb", "CREATE TABLE t (a INTEGER DEFAULT 1)"))
    column = schema.tables[0].columns[0].model_copy(update={"default": "1); DROP TABLE t; --"})
    table = schema.tables[0].model_copy(update={"columns": (column,)})
    with pytest.raises(DocumentError, match=r"default of column main\.t\.a.*cannot be mapped"):
        rename(schema.model_copy(update={"tables": (table,)}), main(t="u"))
