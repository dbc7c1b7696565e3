"""A source's `encoding`: texts of an SQL_ASCII database are decoded from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from snapshot_assets.databases.encodings import parse_encoding
from snapshot_assets.databases.source import AllRows, DatabaseAddress, Selection
from snapshot_assets.errors import DatabaseError, PlanError
from snapshot_assets.format.relations import TableName
from snapshot_assets.plan.read_configuration import parse_configuration
from snapshot_assets_tests.databases.postgresql.helpers import read
from snapshot_assets_tests.databases.restores import copy, extracted, source
from snapshot_assets_tests.servers.postgresql import MakeDatabase, PostgresqlServer


@pytest.fixture
def ascii_uri(postgresql_server: PostgresqlServer) -> Iterator[str]:
    template = "ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
    postgresql_server.psql(postgresql_server.uri(), f"CREATE DATABASE decoded {template}")
    yield postgresql_server.uri("decoded")
    postgresql_server.drop_database(postgresql_server.uri("decoded"))


@pytest.mark.parametrize(("encoding", "byte", "point"), [("LATIN1", "e9", 0xE9), ("WIN1252", "80", 0x20AC)])
def test_texts_and_definitions_are_restored_with_their_characters(
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
        f"DO $$ BEGIN EXECUTE format('CREATE TYPE mood AS ENUM (%L)', {bad}); END $$",
        "CREATE TYPE pair AS (x text, n int)",
        f"CREATE TABLE t (a varchar(1) DEFAULT {bad}, m mood, l text[], p pair, j jsonb)",
        f"DO $$ BEGIN EXECUTE format('COMMENT ON TABLE t IS %L', {bad}); END $$",
        f"INSERT INTO t SELECT {bad}, {bad}::mood, ARRAY[{bad}, 'b'], ROW({bad}, 1), to_jsonb({bad}::text)",
    )
    origin, into = DatabaseAddress("old", ascii_uri, encoding=encoding), make_postgresql_database()
    with source(origin) as database:
        assert database.unfit(database.extract(Selection()).tables[0], [AllRows()]) == []
    copy(extracted(origin), origin, DatabaseAddress("to", into))
    default = "substr((SELECT column_default FROM information_schema.columns WHERE column_name = 'a'), 2)"
    values = ["a", "m::text", "l[1]", "(p).x", "j #>> '{}'", "obj_description('t'::regclass)", default]
    query = f"SELECT {', '.join(f'ascii({value})' for value in values)} FROM t"
    assert postgresql_server.psql(into, query) == "|".join([str(point)] * 7)


def test_masks_are_not_decoded_and_undefined_bytes_are_named(
    postgresql_server: PostgresqlServer, ascii_uri: str
) -> None:
    postgresql_server.psql(
        ascii_uri, "CREATE TABLE t (id int PRIMARY KEY, a text)", r"INSERT INTO t VALUES (1, E'\xe9'), (7, E'\x81')"
    )
    origin = DatabaseAddress("old", ascii_uri, encoding="WIN1252")
    mask = "convert_from(convert(convert_to(a, 'SQL_ASCII'), 'LATIN1', 'UTF8'), 'UTF8')"
    with source(origin) as database:
        [error] = database.unfit(database.extract(Selection()).tables[0], [AllRows()])
        assert "no WIN1252, the source's `encoding`: 0x81 in the row with id = 7." in str(error)
        masked = database.extract(Selection(masks={(TableName("public", "t"), "a"): mask})).tables[0]
        assert read(database, masked)["a"].to_pylist() == ["\u00e9", "\x81"]
        with pytest.raises(DatabaseError, match="a statement has"):
            database.extract(Selection(masks={(TableName("public", "t"), "a"): "a || '\u00e9'"}))


def test_what_cannot_have_an_encoding_is_refused(postgresql_server: PostgresqlServer, ascii_uri: str) -> None:
    with pytest.raises(PlanError, match="the database's own is UTF8"):
        extracted(DatabaseAddress("shop", postgresql_server.uri(), encoding="LATIN1"))
    postgresql_server.psql(ascii_uri, r"DO $$ BEGIN EXECUTE E'CREATE TABLE n\xe9 (a int)'; END $$")
    with pytest.raises(DatabaseError, match=r"Names that are not ASCII: public\.n\xe9"):
        extracted(DatabaseAddress("shop", ascii_uri, encoding="LATIN1"))


def test_sources_are_written_with_an_encoding() -> None:
    def parsed(written: str) -> DatabaseAddress:
        environment = {"DB": "postgresql://h/db", "ENC": "iso-8859-1"}
        return parse_configuration(f"sources: {{shop: {written}}}", Path("s.yaml"), environment).source("shop")

    assert parsed("{uri: '${DB}', encoding: '${ENC}'}").encoding == "LATIN1"
    assert parsed("postgresql://h/db").encoding is None
    assert parse_encoding("windows-1252") == "WIN1252"
    for wrong, message in (
        ("{uri: 'postgresql://h/db', encoding: latin11}", "not one of the encodings LATIN1, "),
        ("{uri: 'duckdb:///x', encoding: latin1}", "is for PostgreSQL"),
        ("{uri: 'postgresql://h/db', code: x}", "is not a field of a source"),
        ("{encoding: latin1}", "is not a URI"),
    ):
        with pytest.raises(PlanError, match=message):
            parsed(wrong)
