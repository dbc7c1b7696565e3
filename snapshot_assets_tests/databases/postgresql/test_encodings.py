"""Texts keep their characters, whatever the encodings of source and target are."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from snapshot_assets.databases.protocol.source import AllRows, DatabaseAddress, Selection
from snapshot_assets.engine.export.preflight import checked_schemas
from snapshot_assets.errors import DatabaseError, SnapshotError
from snapshot_assets.format.kinds import uncarried_by_kind
from snapshot_assets.format.relations import TableName
from snapshot_assets.testing.restores import copy
from snapshot_assets_tests.cli.helpers import export, make_plan, store_of
from snapshot_assets_tests.databases.postgresql.helpers import extracted, opened, read
from snapshot_assets_tests.servers.postgresql import MakeDatabase, PostgresqlServer

MakeEncoded = Callable[[str], str]
CHARACTERS = """SELECT ascii(a), ascii("n\u00e9"), ascii(obj_description('t'::regclass)) FROM t"""


@pytest.fixture
def make(make_postgresql_database: MakeDatabase, monkeypatch: pytest.MonkeyPatch) -> MakeEncoded:
    """A function that creates a database of an encoding; the environment gives clients another one."""
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    return lambda encoding: make_postgresql_database(f"ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'")


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


def unfit(uri: str, selection: Selection | None = None) -> list[SnapshotError]:
    with opened(uri) as database:
        return [
            each for t in database.extract(selection or Selection()).tables for each in database.unfit(t, [AllRows()])
        ]


KINDS = {
    "text": "{}",
    "varchar(9)": "{}",
    "char(9)": "{}",
    "json": """('"' || {} || '"')::json""",
    "jsonb": """('"' || {} || '"')::jsonb""",
    "text[]": "ARRAY['a', {}]",
    "named": "{}",
    "pair": "ROW({}, 1)::pair",
    "name": "{}",
    "pair[]": "ARRAY[ROW({}, 1)::pair]",
}
INVALID = (
    *("e9", "61e9", "0ae9", "c3", "c3a90aa9", "eda080", "c080", "f4908080", "e09fbf", "f08fbfbf", "f5808080", "ff"),
    *("c3a9c3", "e282", "f09f98"),
)
VALID = ("", "61", "610a62", "c3a90ae282ac", "f48fbfbf", "efbfbf", "ee8080", "ed9fbf", "e0a080", "f0908080", "09", "01")


def test_every_sequence_that_is_no_utf8_is_found_and_no_other(
    postgresql_server: PostgresqlServer, make: MakeEncoded
) -> None:
    origin = make("SQL_ASCII")
    bad = {f"t{number:02}": text for number, text in enumerate(INVALID)}
    insert = "INSERT INTO {} VALUES (convert_from('\\x{}', 'SQL_ASCII'));"
    postgresql_server.psql_script(
        origin,
        "CREATE TABLE fine (a text); INSERT INTO fine VALUES (NULL);"
        + "".join(insert.format("fine", each) for each in VALID)
        + "".join(f"CREATE TABLE {name} (a text);" + insert.format(name, each) for name, each in bad.items()),
    )
    found = [str(error) for error in unfit(origin)]
    assert len(found) == len(bad)
    for error, name in zip(found, bad, strict=True):
        assert re.search(rf"public\.{name}\.a \(text\) .* 0x[0-9a-f]+ in the row with ctid = \(0,1\)\.", error)


def test_texts_of_every_type_are_checked(postgresql_server: PostgresqlServer, make: MakeEncoded) -> None:
    origin = make("SQL_ASCII")
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(KINDS))
    values = ", ".join(value.format(r"E'\xe9'") for value in KINDS.values())
    postgresql_server.psql(
        origin,
        "CREATE DOMAIN named AS text",
        "CREATE TYPE pair AS (x text, n int)",
        f"CREATE TABLE t (id int PRIMARY KEY, {columns}, fine text, b bytea)",
        rf"INSERT INTO t VALUES (7, {values}, 'fine', '\xe9'), (8, {', '.join(['NULL'] * len(KINDS))}, 'fine', NULL)",
    )
    found = [str(error) for error in unfit(origin)]
    assert [re.findall(r"t\.(c\d+) .* 0xe9[0-9a-f]* in the row with id = 7\. ", each) for each in found] == [
        [f"c{number}"] for number in range(len(KINDS))
    ]


def test_a_hidden_key_is_not_shown_and_keys_show_their_bytes(
    postgresql_server: PostgresqlServer, make: MakeEncoded
) -> None:
    origin = make("SQL_ASCII")
    postgresql_server.psql(
        origin,
        "CREATE TABLE t (k text PRIMARY KEY, a text)",
        "CREATE VIEW v AS SELECT a FROM t",
        r"INSERT INTO t VALUES (E'secret\xe9', E'\xe9')",
    )
    table, column = TableName("public", "t"), (TableName("public", "t"), "k")
    first, _ = unfit(origin)
    assert r"t.k (text) holds bytes that are no UTF-8: 0xe9 in the row with k = secret\351." in str(first)
    for selection in (Selection(exclude_columns=(column,)), Selection(masks={column: "md5(k)"})):
        [error] = unfit(origin, selection)
        assert "t.a (text) holds bytes that are no UTF-8: 0xe9 in the row with ctid = (0,1)." in str(error)
    [error] = unfit(origin, Selection(tables=(table._replace(table="v"),)))
    assert "v.a (text) holds bytes that are no UTF-8: 0xe9. The" in str(error)


def test_a_database_with_an_encoding_is_not_searched(postgresql_server: PostgresqlServer, make: MakeEncoded) -> None:
    origin = make("LATIN1")
    postgresql_server.psql(origin, "CREATE TABLE t (a text)", "INSERT INTO t VALUES (chr(233))")
    assert unfit(origin) == []


def test_the_error_precedes_all_writing_and_its_mask_decodes(
    postgresql_server: PostgresqlServer, make: MakeEncoded, tmp_path: Path
) -> None:
    origin, location = make("SQL_ASCII"), tmp_path / "location"
    postgresql_server.psql(
        origin,
        """CREATE TABLE t (id int PRIMARY KEY, "A, b" text, c text[], d varchar(3))""",
        r"INSERT INTO t VALUES (1, E'na\xefve', ARRAY[E'\xe9', 'b'], 'abc'), (2, NULL, NULL, NULL)",
    )
    plan = make_plan(origin, location.as_uri())
    with opened(origin) as database, pytest.raises(SnapshotError, match="2 things prevent the export") as raised:
        checked_schemas(database, plan, (lambda _: plan, None))
    assert not location.exists()
    masks = [yaml.safe_load(each)["mask"] for each in re.findall(r"`(mask: \{.*?\})`", str(raised.value))]
    assert len(masks) == 2
    masked = make_plan(origin, location.as_uri(), mask=masks[0] | masks[1])
    with opened(origin) as database:
        _, exported = checked_schemas(database, masked, (lambda _: masked, None))
        rows = read(database, exported.tables[0]).to_pylist()
    export(masked, store_of(location))
    assert [row["A, b"] for row in rows] == ["na\u00efve", None]
    assert [row["c"] for row in rows] == ["{\u00e9,b}", None]


def test_no_mask_is_proposed_that_would_cut_values_off(postgresql_server: PostgresqlServer, make: MakeEncoded) -> None:
    origin = make("SQL_ASCII")
    kinds = {"varchar(3)": "{}", "char(3)": "{}", "varchar(3)[]": "ARRAY[{}]", "short": "{}", "name": "{}"}
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(kinds))
    values = ", ".join(value.format(r"E'\xe9bc'") for value in kinds.values())
    postgresql_server.psql(
        origin, "CREATE DOMAIN short AS varchar(3)", f"CREATE TABLE t ({columns})", f"INSERT INTO t VALUES ({values})"
    )
    for number, error in zip(range(len(kinds)), unfit(origin), strict=True):
        assert "mask:" not in str(error)
        assert f"`exclude_columns: [public.t.c{number}]`" in str(error)
