"""Texts keep their characters, whatever the encodings of source and target are."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from snapshot_assets.databases.source import DatabaseAddress
from snapshot_assets.errors import DatabaseError
from snapshot_assets.format.uncarried import uncarried_by_kind
from snapshot_assets_tests.databases.postgresql.helpers import extracted, opened, read
from snapshot_assets_tests.databases.restores import copy
from snapshot_assets_tests.servers.postgresql import PostgresqlServer

MakeEncoded = Callable[[str], str]
CHARACTERS = """SELECT ascii(a), ascii("n\u00e9"), ascii(obj_description('t'::regclass)) FROM t"""


@pytest.fixture
def make(postgresql_server: PostgresqlServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeEncoded]:
    """A function that creates a database of an encoding; the environment gives clients another one."""
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    made: list[str] = []

    def create(encoding: str) -> str:
        name = f"encoded_{len(made)}"
        template = f"ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
        postgresql_server.psql(postgresql_server.uri(), f"CREATE DATABASE {name} {template}")
        made.append(postgresql_server.uri(name))
        return made[-1]

    yield create
    for uri in made:
        postgresql_server.drop_database(uri)


@pytest.mark.parametrize("encodings", [("LATIN1", "UTF8"), ("UTF8", "LATIN1"), ("LATIN1", "LATIN1")])
def test_characters_are_restored_into_another_encoding(
    postgresql_server: PostgresqlServer, make: MakeEncoded, encodings: tuple[str, str]
) -> None:
    origin, into = (make(encoding) for encoding in encodings)
    postgresql_server.psql_script(
        origin,
        "SET client_encoding = UTF8; CREATE TABLE t (a varchar(1), \"n\u00e9\" text); COMMENT ON TABLE t IS '\u00e9';"
        " INSERT INTO t VALUES (chr(233), chr(233));",
    )
    schema = extracted(origin)
    other = {"database setting": [f"encoding {encodings[0]}"]} if encodings[0] != "UTF8" else {}
    assert uncarried_by_kind(schema) == other
    copy(schema, DatabaseAddress("from", origin), DatabaseAddress("to", into))
    assert postgresql_server.psql(into, "SET client_encoding = UTF8", CHARACTERS) == "233|233|233"


def test_bytes_without_an_encoding_are_exported_only_if_they_are_utf8(
    postgresql_server: PostgresqlServer, make: MakeEncoded
) -> None:
    origin, into = make("SQL_ASCII"), make("UTF8")
    postgresql_server.psql(origin, "CREATE TABLE t (a text)", r"INSERT INTO t VALUES (E'\xc3\xa9')")
    schema = extracted(origin)
    copy(schema, DatabaseAddress("from", origin), DatabaseAddress("to", into))
    assert postgresql_server.psql(into, "SELECT ascii(a) FROM t") == "233"
    postgresql_server.psql(origin, r"INSERT INTO t VALUES (E'\xe9')")
    with opened(origin) as database, pytest.raises(DatabaseError, match='invalid byte sequence for encoding "UTF8"'):
        read(database, schema.tables[0])
