"""A source's `encoding`: values of an SQL_ASCII database are decoded from it, and its definitions must be ASCII."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from snapshot_assets.databases.encodings import parse_encoding
from snapshot_assets.databases.query import Query
from snapshot_assets.databases.source import AllRows, DatabaseAddress, Selection
from snapshot_assets.errors import DatabaseError, PlanError
from snapshot_assets.format.names import ColumnPath
from snapshot_assets.format.relations import TableName
from snapshot_assets.plan.read_configuration import parse_configuration
from snapshot_assets_tests.databases.postgresql.helpers import read
from snapshot_assets_tests.databases.restores import copy, extracted, source, target
from snapshot_assets_tests.servers.postgresql import MakeDatabase, PostgresqlServer

TABLE = TableName("public", "t")


@pytest.fixture
def ascii_uri(postgresql_server: PostgresqlServer) -> Iterator[str]:
    template = "ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
    postgresql_server.psql(postgresql_server.uri(), f"CREATE DATABASE decoded {template}")
    yield postgresql_server.uri("decoded")
    postgresql_server.drop_database(postgresql_server.uri("decoded"))


@pytest.mark.parametrize(("encoding", "byte", "point"), [("iso8859-1", "e9", 0xE9), ("windows-1252", "80", 0x20AC)])
def test_texts_of_every_type_are_restored_with_their_characters(
    postgresql_server: PostgresqlServer,
    ascii_uri: str,
    make_postgresql_database: MakeDatabase,
    encoding: str,
    byte: str,
    point: int,
) -> None:
    bad = rf"E'\x{byte}'"
    postgresql_server.psql(
        ascii_uri,
        "CREATE TYPE pair AS (x text, n int)",
        "CREATE DOMAIN named AS text",
        "CREATE TABLE t (a varchar(1), d named, l text[], p pair, j jsonb, c char(2), PRIMARY KEY (a))",
        f"INSERT INTO t SELECT {bad}, {bad}, ARRAY[{bad}, 'b'], ROW({bad}, 1), to_jsonb({bad}::text), {bad}",
    )
    origin, into = DatabaseAddress("old", ascii_uri, encoding=encoding), make_postgresql_database()
    with source(origin) as database:
        assert database.unfit(database.extract(Selection()).tables[0], [AllRows()]) == []
    copy(extracted(origin), origin, DatabaseAddress("to", into))
    values = ["a", "d", "l[1]", "(p).x", "j #>> '{}'", "c"]
    query = f"SELECT {', '.join(f'ascii({value})' for value in values)} FROM t"
    assert postgresql_server.psql(into, query) == "|".join([str(point)] * len(values))


ENCODINGS = [*(f"iso8859-{n}" for n in range(1, 17) if n not in (11, 12)), *(f"windows-{n}" for n in range(1250, 1259))]


@pytest.mark.parametrize("encoding", [*ENCODINGS, "koi8-r", "koi8-u"])
def test_every_byte_of_an_encoding_becomes_its_character_and_every_other_is_found(
    postgresql_server: PostgresqlServer, ascii_uri: str, encoding: str
) -> None:
    assert parse_encoding(encoding) == encoding
    postgresql_server.psql(
        ascii_uri,
        "CREATE TABLE t (id int PRIMARY KEY, a text)",
        "INSERT INTO t SELECT n, convert_from(set_byte('a', 0, n), 'SQL_ASCII') FROM generate_series(1, 255) n",
    )
    origin = DatabaseAddress("old", ascii_uri, encoding=encoding)
    characters = {n: bytes([n]).decode(encoding, errors="ignore") for n in range(1, 256)}
    with source(origin) as database:
        table = database.extract(Selection()).tables[0]
        for byte in [n for n, character in characters.items() if not character]:
            [error] = database.unfit(table, [AllRows()])
            assert f"no {encoding}, the source's `encoding`: 0x{byte:02x} in the row with id = {byte}." in str(error)
            postgresql_server.psql(ascii_uri, f"UPDATE t SET a = '' WHERE id = {byte}")
            with source(origin) as database:
                pass
