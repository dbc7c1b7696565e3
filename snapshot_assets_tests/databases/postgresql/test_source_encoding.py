"""A source's `encoding`: values of an SQL_ASCII database are decoded from it, and its definitions must be ASCII."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from snapshot_assets.databases.protocol.encodings import parse_encoding, valid_start
from snapshot_assets.databases.protocol.query import Query
from snapshot_assets.databases.protocol.source import AllRows, DatabaseAddress, Selection
from snapshot_assets.databases.sql import literal
from snapshot_assets.errors import DatabaseError, PlanError
from snapshot_assets.format.names import ColumnPath
from snapshot_assets.format.relations import TableName
from snapshot_assets.plan.read_configuration import parse_configuration
from snapshot_assets.testing.restores import copy, extracted, source, target
from snapshot_assets_tests.databases.postgresql.helpers import read
from snapshot_assets_tests.servers.postgresql import MakeDatabase, PostgresqlServer

TABLE = TableName("public", "t")


@pytest.fixture
def ascii_uri(make_postgresql_database: MakeDatabase) -> str:
    return make_postgresql_database("ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'")


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
        f"INSERT INTO t SELECT {bad}, {bad}, ARRAY[{bad}, 'b'], ROW({bad}, 1)::pair, to_jsonb({bad}::text), {bad}",
    )
    origin, into = DatabaseAddress("old", ascii_uri, encoding=encoding), make_postgresql_database()
    with source(origin) as database:
        assert database.unfit(database.extract(Selection()).tables[0], [AllRows()]) == []
    copy(extracted(origin), origin, DatabaseAddress("to", into))
    values = ["a", "d", "l[1]", "(p).x", "j #>> '{}'", "c"]
    query = f"SELECT {', '.join(f'ascii({value})' for value in values)} FROM t"
    assert postgresql_server.psql(into, query) == "|".join([str(point)] * len(values))


PARTS = [f"iso8859-{number}" for number in range(1, 17) if number not in (11, 12)]
ENCODINGS = [*PARTS, *(f"windows-{page}" for page in range(1250, 1259)), "koi8-r", "koi8-u"]


def test_every_byte_of_every_encoding_becomes_its_character(
    postgresql_server: PostgresqlServer, ascii_uri: str
) -> None:
    postgresql_server.psql(
        ascii_uri,
        "CREATE TABLE t (id int PRIMARY KEY, a text)",
        "INSERT INTO t SELECT n, convert_from(set_byte('a', 0, n), 'SQL_ASCII') FROM generate_series(1, 255) n",
    )
    for encoding in ENCODINGS:
        assert parse_encoding(encoding) == encoding
        defined = f"""SELECT id, a FROM t WHERE a COLLATE "C" ~ {literal(valid_start(encoding) + "$")}"""
        with source(DatabaseAddress("old", ascii_uri, encoding=encoding)) as database:
            rows = read(database, database.extract(Selection(query=Query("q", defined))).tables[0]).to_pylist()
        characters = {byte: bytes([byte]).decode(encoding, errors="ignore") for byte in range(1, 256)}
        assert {row["id"]: row["a"] for row in rows} == {byte: each for byte, each in characters.items() if each}


def test_masks_are_not_decoded_and_undefined_bytes_are_named(
    postgresql_server: PostgresqlServer, ascii_uri: str
) -> None:
    postgresql_server.psql(
        ascii_uri, "CREATE TABLE t (id int PRIMARY KEY, a text)", r"INSERT INTO t VALUES (1, E'\xe9'), (7, E'\x81')"
    )
    origin = DatabaseAddress("old", ascii_uri, encoding="windows-1252")
    with source(origin) as database:
        [error] = database.unfit(database.extract(Selection()).tables[0], [AllRows()])
        assert "no windows-1252, the source's `encoding`: 0x81 in the row with id = 7." in str(error)
        [mask] = yaml.safe_load(re.findall(r"`(mask: \{.*?\})`", str(error))[0])["mask"].values()
        masked = database.extract(Selection(masks={ColumnPath(TABLE, "a"): mask})).tables[0]
        assert database.unfit(masked, [AllRows()]) == []
        assert read(database, masked)["a"].to_pylist() == ["\u00e9", "\x81"]


REFUSED = {
    "name": r"CREATE TABLE caf\xe9 (a int)",
    "column": r"CREATE TABLE t (caf\xe9 int)",
    "comment": r"CREATE TABLE t (a int); COMMENT ON TABLE t IS 'caf\xe9'",
    "default": r"CREATE TABLE t (a text DEFAULT 'caf\xe9')",
    "label": r"CREATE TYPE mood AS ENUM ('caf\xe9'); CREATE TABLE t (a mood)",
    "view": r"CREATE VIEW t AS SELECT 'caf\xe9'::text AS a",
}


@pytest.mark.parametrize("definition", REFUSED)
def test_definitions_that_are_not_ascii_are_refused_and_shown(
    postgresql_server: PostgresqlServer, ascii_uri: str, definition: str
) -> None:
    """Those in UTF-8 are read from a source without an encoding."""
    postgresql_server.psql_script(ascii_uri, REFUSED[definition].replace(r"\xe9", "\u00e9"))
    assert extracted(DatabaseAddress("old", ascii_uri))
    with pytest.raises(DatabaseError, match=r"Definitions that are not ASCII: .*caf\xe9.*The source has"):
        extracted(DatabaseAddress("old", ascii_uri, encoding="iso8859-1"))
    other = f"DO $$ BEGIN EXECUTE E'{REFUSED[definition].replace(chr(39), chr(39) * 2)}'; END $$"
    postgresql_server.psql(ascii_uri, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public", other)
    for encoding in (None, "iso8859-1"):
        with pytest.raises(DatabaseError, match=r"failed: a row is no UTF-8: .*caf\\351.* Change that name, comment"):
            extracted(DatabaseAddress("old", ascii_uri, encoding=encoding))


def test_sql_of_a_plan_is_ascii(postgresql_server: PostgresqlServer, ascii_uri: str) -> None:
    postgresql_server.psql(ascii_uri, "CREATE TABLE t (a text)", r"INSERT INTO t VALUES (E'\xe9')")
    mask = {ColumnPath(TABLE, "a"): "CASE WHEN a = '\u00e9' THEN 'x' END"}
    query = Query("q", "SELECT a FROM t WHERE a = '\u00e9'")
    with source(DatabaseAddress("old", ascii_uri, encoding="iso8859-1")) as database:
        for selection in (Selection(masks=mask), Selection(query=query)):
            with pytest.raises(DatabaseError, match=r"not ASCII: public\.[tq] \(.*\u00e9.*compare bytes: convert_to"):
                database.extract(selection)
        mask = {ColumnPath(TABLE, "a"): r"CASE WHEN convert_to(a, 'SQL_ASCII') = '\xe9' THEN 'x' END"}
        masked = database.extract(Selection(masks=mask)).tables[0]
        assert read(database, masked)["a"].to_pylist() == ["x"]
        [table] = database.extract(
            Selection(query=Query("q", r"SELECT a FROM t WHERE convert_to(a, 'SQL_ASCII') = '\xe9'"))
        ).tables
        assert read(database, table)["a"].to_pylist() == ["\u00e9"]


def test_databases_that_cannot_have_an_encoding_are_refused(
    postgresql_server: PostgresqlServer, ascii_uri: str
) -> None:
    with pytest.raises(
        PlanError, match="'shop': the source has `encoding: iso8859-1`, but the database has an encoding"
    ):
        extracted(DatabaseAddress("shop", postgresql_server.uri(), encoding="iso8859-1"))
    with (
        pytest.raises(PlanError, match="'old' has `encoding`, which is for sources"),
        target(DatabaseAddress("old", ascii_uri, encoding="iso8859-1")),
    ):
        pass


def test_sources_are_written_with_an_encoding() -> None:
    def parsed(written: str) -> DatabaseAddress:
        text = f"sources: {{shop: {written}}}"
        return parse_configuration(text, Path("s.yaml"), {"DB": "postgresql://h/db"}).source("shop")

    assert parsed("{uri: '${DB}', encoding: iso-8859-1}") == DatabaseAddress(
        "shop", "postgresql://h/db", encoding="iso8859-1"
    )
    assert parsed("postgresql://h/db").encoding is None
    assert parsed("{uri: 'postgresql://h/db'}").encoding is None
    for wrong, message in (
        ("{uri: 'postgresql://h/db', encoding: latin11}", "encoding: is 'latin11', not an encoding of one byte"),
        ("{uri: 'postgresql://h/db', encoding: utf8}", "encoding: is 'utf8', not an encoding of one byte"),
        ("{uri: 'postgresql://h/db', encoding: null}", "encoding: is None, not an encoding of one byte"),
        ("{uri: 'duckdb:///x', encoding: latin1}", "`encoding` is for PostgreSQL"),
        ("{uri: 'postgresql://h/db', code: x}", "is not a field of a source"),
        ("{encoding: latin1}", "uri: is not a URI"),
    ):
        with pytest.raises(PlanError, match=message):
            parsed(wrong)


@pytest.mark.parametrize(
    ("written", "encoding"),
    [
        ("latin1", "iso8859-1"),
        ("LATIN9", "iso8859-15"),
        ("WIN1252", "windows-1252"),
        ("cp1251", "windows-1251"),
        ("KOI8-R", "koi8-r"),
        ("ISO_8859_5", "iso8859-5"),
        ("LATIN2", "iso8859-2"),
    ],
)
def test_encodings_are_known_by_all_their_names(written: str, encoding: str) -> None:
    assert parse_encoding(written) == encoding
