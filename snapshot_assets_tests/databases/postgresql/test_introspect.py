"""PostgreSQL's system tables are read into documents, whose text is fixed by `everything.json`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from snapshot_assets.databases.source import Selection
from snapshot_assets.format.relations import DatabaseSchema
from snapshot_assets_tests.databases.postgresql.helpers import EVERYTHING, ROWS, client, opened
from snapshot_assets_tests.servers.postgresql import PostgresqlServer

NOT_CARRIED = """
CREATE TYPE unused AS ENUM ('a');
CREATE SEQUENCE lonely;
CREATE FUNCTION f(int) RETURNS int LANGUAGE sql AS 'SELECT $1';
CREATE FUNCTION trg() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TRIGGER tr BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION trg();
CREATE POLICY pol ON orders;
CREATE RULE ru AS ON DELETE TO orders DO ALSO NOTHING;
CREATE VIEW calls AS SELECT f(1) AS x;
"""


@pytest.fixture(scope="module")
def everything_uri(postgresql_server: PostgresqlServer, postgresql_module_database: str) -> str:
    postgresql_server.psql_script(postgresql_module_database, EVERYTHING + ROWS + NOT_CARRIED)
    return postgresql_module_database


@pytest.fixture(scope="module")
def everything(everything_uri: str) -> DatabaseSchema:
    with opened(everything_uri) as database:
        return database.extract(Selection())


def test_the_documents_of_everything_do_not_change(everything: DatabaseSchema) -> None:
    documents = json.loads(everything.model_dump_json(by_alias=True, exclude_defaults=True))
    assert documents == json.loads(Path(__file__).with_name("everything.json").read_text())


def test_a_selected_schema_includes_its_tables_and_views(everything_uri: str, everything: DatabaseSchema) -> None:
    with opened(everything_uri) as database:
        document = database.extract(Selection(schemas=("sales",)))
    assert [schema.name for schema in document.schemas] == ["sales"]
    assert document.tables == tuple(table for table in everything.tables if table.schema_name == "sales")
    assert document.views == tuple(view for view in everything.views if view.schema_name == "sales")


def test_tables_of_extensions_are_not_exported(postgresql_database: str) -> None:
    with client(postgresql_database) as run:
        run("CREATE EXTENSION vector")
        run("CREATE TABLE theirs (id int)")
        run("ALTER EXTENSION vector ADD TABLE theirs")
    with opened(postgresql_database) as database:
        document = database.extract(Selection())
    assert document.tables == ()
    assert dict(document.schemas[0].options) == {}
