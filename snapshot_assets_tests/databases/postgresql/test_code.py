"""Functions, triggers and other code are restored as they were, if the user asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from snapshot_assets.databases.postgresql.code.kinds import CODE_KINDS
from snapshot_assets.databases.postgresql.ddl import define
from snapshot_assets.databases.source import Selection
from snapshot_assets.databases.target import Definition
from snapshot_assets.errors import RestoreError
from snapshot_assets.format.relations import DatabaseSchema, TableName
from snapshot_assets.format.uncarried import code_by_kind, uncarried_by_kind
from snapshot_assets_tests.databases.postgresql.helpers import EVERYTHING, extracted, run, schema_dump
from snapshot_assets_tests.servers.postgresql import MakeDatabase, PostgresqlServer

CODE = Path(__file__).with_name("code.sql").read_text()
"""A database with code of every kind, used in every place."""


def restore_code(schema: DatabaseSchema, uri: str) -> Definition:
    definition = define(schema, code=True)
    run(uri, definition.before)
    run(uri, definition.after)
    return definition


@pytest.fixture(scope="module")
def source(postgresql_server: PostgresqlServer) -> Iterator[str]:
    uri = postgresql_server.create_database()
    postgresql_server.psql_script(uri, CODE)
    yield uri
    postgresql_server.drop_database(uri)


def test_code_of_every_kind_is_restored_as_pg_dump_prints_it(
    postgresql_server: PostgresqlServer, source: str, postgresql_database: str
) -> None:
    schema = extracted(source)
    assert set(code_by_kind(schema)) == {word for word, kind in CODE_KINDS.items() if not kind.part} | {"type"}
    assert restore_code(schema, postgresql_database).lost == ()
    assert schema_dump(postgresql_server, postgresql_database) == schema_dump(postgresql_server, source)
    assert extracted(postgresql_database) == schema


def test_what_exists_is_left_as_it_is_and_the_rest_is_created(
    postgresql_server: PostgresqlServer, source: str, postgresql_database: str
) -> None:
    schema = extracted(source)
    own = "CREATE SCHEMA util; CREATE FUNCTION util.twice(x int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 3 * x'"
    postgresql_server.psql(postgresql_database, *own.split("; "))
    restore_code(schema, postgresql_database)
    run(postgresql_database, tuple(each for each in define(schema, code=True).before if each.table is None))
    assert postgresql_server.psql(postgresql_database, "SELECT util.twice(1), util.bucket(10)") == "3|3"
