"""Functions, triggers and other code are restored as they were, if the user asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import adbc_driver_postgresql.dbapi as adbc
import pytest

from snapshot_assets.databases.definition import Unchecked
from snapshot_assets.databases.postgresql.code.kinds import CODE_KINDS
from snapshot_assets.databases.postgresql.ddl import define
from snapshot_assets.databases.postgresql.session import PostgresqlConnection
from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.errors import DocumentError
from snapshot_assets.format.kinds import code_by_kind, uncarried_by_kind
from snapshot_assets.format.relations import DatabaseSchema, Schema, Table
from snapshot_assets_tests.databases.postgresql.helpers import EVERYTHING, client, extracted, restore, run, schema_dump
from snapshot_assets_tests.servers.postgresql import PostgresqlServer

CODE = Path(__file__).with_name("code.sql").read_text()
"""A database with code of every kind, used in every place."""


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
    assert set(code_by_kind(schema)) == {word for word, kind in CODE_KINDS.items() if not kind.part}
    assert restore(schema, postgresql_database, code=True).lost == ()
    assert schema_dump(postgresql_server, postgresql_database) == schema_dump(postgresql_server, source)
    assert extracted(postgresql_database) == schema


@pytest.mark.slow
def test_what_exists_is_left_as_it_is_and_the_rest_is_created(
    postgresql_server: PostgresqlServer, source: str, postgresql_database: str
) -> None:
    schema = extracted(source)
    own = "CREATE SCHEMA util; CREATE FUNCTION util.twice(x int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 3 * x'"
    postgresql_server.psql(postgresql_database, *own.split("; "))
    restore(schema, postgresql_database, code=True)
    run(postgresql_database, tuple(each for each in define(schema, code=True).before if each.table is None))
    assert postgresql_server.psql(postgresql_database, "SELECT util.twice(1), util.bucket(10)") == "3|3"


def test_without_being_asked_a_restore_runs_no_code_and_names_all_of_it(source: str) -> None:
    schema = extracted(source)
    definition = define(schema)
    made = " ".join(each.sql for each in (*definition.before, *definition.after))
    kinds = ("FUNCTION", "PROCEDURE", "AGGREGATE", "OPERATOR", "CAST", "COLLATION", "TRIGGER", "RULE", "POLICY")
    assert not [kind for kind in kinds if f"CREATE {kind} " in made or f"CREATE OR REPLACE {kind} " in made]
    for name in ("Function util.twice(integer)", "Trigger noted of public.things", "Policy narrow of public.things"):
        assert f"{name} is not restored: it is code of the snapshot. Give --with-code." in definition.lost
    kinds = code_by_kind(schema)
    named = {(kind.removeprefix("base "), name) for kind, names in kinds.items() for name in names}
    lost = " ".join(definition.lost).lower()
    assert [(kind, name) for kind, name in named if f"{kind} {name} is not restored".lower() not in lost] == []
    assert not [sentence for sentence in definition.lost if sentence.endswith("is not in a snapshot.")]


def test_a_selection_has_the_code_that_it_needs(
    postgresql_server: PostgresqlServer, source: str, postgresql_database: str
) -> None:
    schema = extracted(source, Selection(schemas=("public",)))
    code = code_by_kind(schema)
    assert "util.twice(integer)" in code["function"]
    assert "util.log_it(integer)" not in code.get("procedure", [])
    restore(schema, postgresql_database, code=True)
    count = "SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal AND tgrelid = 'public.things'::regclass"
    assert postgresql_server.psql(postgresql_database, count) == "4"


def test_a_statement_of_another_kind_is_refused_alone(source: str) -> None:
    schema = extracted(source)
    for sql in ("DROP TABLE things", "CREATE TABLE x ()", " CREATE OR REPLACE FUNCTION x"):
        hostile = schema.model_copy(
            update={
                "schemas": (
                    Schema(name="public", options={"code": [{"kind": "function", "name": "public.f()", "sql": sql}]}),
                )
            }
        )
        [refused] = [each for each in define(hostile, code=True).before if isinstance(each, Unchecked)]
        assert (str(refused.key), refused.sql) == ("function public.f()", "")
        assert refused.reason.startswith("function public.f() is refused: the snapshot gives ")
    unknown = Schema(name="public", options={"code": [{"kind": "spell", "name": "x", "sql": "SELECT 1"}]})
    assert define(DatabaseSchema(database="postgresql", schemas=(unknown,)), code=True).lost == ()


def test_documents_cannot_add_queries_to_code() -> None:
    entry = {"kind": "function", "name": "f()", "sql": "CREATE OR REPLACE FUNCTION f()", "lacking": ["DROP TABLE x"]}
    schema = DatabaseSchema(database="postgresql", schemas=(Schema(name="public", options={"code": [entry]}),))
    assert "DROP" not in str(define(schema, code=True).before)


@pytest.mark.parametrize(
    "entries",
    [5, [5], [{}], [{"kind": "function"}], [{"kind": "rule", "name": [], "on": [1]}], [{"kind": "type", "name": "t"}]],
)
def test_entries_of_another_form_are_refused(entries: Any) -> None:
    schema = DatabaseSchema(database="postgresql", schemas=(Schema(name="public", options={"code": entries}),))
    for read in (code_by_kind, define):
        with pytest.raises(DocumentError, match=r"schemas\.json is malformed: options\.code.* of schema public is "):
            read(schema)


@pytest.mark.parametrize("holder", ["table", "schema"])
def test_only_the_comment_of_an_extension_that_a_restore_creates_is_lost(holder: str) -> None:
    entry = {"kind": "extension", "name": '"uuid-ossp"', "sql": 'CREATE EXTENSION IF NOT EXISTS "uuid-ossp"'}
    used = {"extensions": ["uuid-ossp"]}
    public = Schema(name="public", options={"code": [entry | {"comment": "x"}], **(used if holder == "schema" else {})})
    tables = (Table(schema="public", name="t", columns=(), options=used),) if holder == "table" else ()
    lost = define(DatabaseSchema(database="postgresql", schemas=(public,), tables=tables)).lost
    assert lost == ('Comment on extension "uuid-ossp" is not restored. Give --with-code.',)


ONLY_A_WHOLE_DUMP_HAS = """
SELECT lo_create(71), lo_create(72), lo_create(73);
GRANT SELECT ON LARGE OBJECT 72 TO pg_monitor;
ALTER LARGE OBJECT 73 OWNER TO pg_monitor;
CREATE TABLE t (a int PRIMARY KEY, b serial); CREATE TABLE u (a int); CREATE TYPE mood AS ENUM ('sad');
CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1';
ALTER TABLE t OWNER TO pg_monitor; ALTER TYPE mood OWNER TO pg_monitor; ALTER FUNCTION f() OWNER TO pg_monitor;
INSERT INTO u VALUES (1), (1);
"""


def test_owners_invalid_indexes_and_what_belongs_to_large_objects_are_named(
    postgresql_server: PostgresqlServer, postgresql_database: str
) -> None:
    postgresql_server.psql_script(postgresql_database, ONLY_A_WHOLE_DUMP_HAS)
    name = postgresql_database.rsplit("/", 1)[1]
    postgresql_server.psql(postgresql_database, f"COMMENT ON DATABASE {name} IS 'x'")
    with client(postgresql_database) as execute, pytest.raises(adbc.Error, match="could not create unique index"):
        execute("CREATE UNIQUE INDEX CONCURRENTLY half ON u (a)")
    found = uncarried_by_kind(extracted(postgresql_database))
    assert found["comment on"] == [f"database {name}"]
    assert found["grant on"] == ["1 large objects"]
    assert found["index"] == ["public.half of public.u, which is invalid"]
    assert found["owner"] == [
        f"pg_monitor of {each}"
        for each in ("1 large objects", "function public.f()", "sequence public.t_b_seq", "table public.t")
    ] + ["pg_monitor of type public.mood"]


def test_a_database_without_code_has_the_documents_of_before(
    postgresql_server: PostgresqlServer, postgresql_database: str
) -> None:
    postgresql_server.psql_script(postgresql_database, EVERYTHING)
    options = {key for each in extracted(postgresql_database).schemas for key in each.options}
    assert not options & {"code", "code_needs"}


def test_a_database_is_asked_only_for_the_kinds_that_it_has(
    postgresql_server: PostgresqlServer, postgresql_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, str] = {}
    rows = PostgresqlConnection.rows

    def record(self: PostgresqlConnection, sql: str, doing: str, *args: Any, **options: Any) -> list[dict[str, Any]]:
        asked[doing] = sql
        return rows(self, sql, doing, *args, **options)

    monkeypatch.setattr(PostgresqlConnection, "rows", record)
    postgresql_server.psql_script(postgresql_database, "CREATE TABLE t (a int, b text[], c pg_catalog.pg_class[]);")
    [table] = extracted(postgresql_database).tables
    assert table.options["row_types"] == [["pg_catalog", "pg_class"]]
    assert "reading types" in asked
    asked.clear()
    postgresql_server.psql_script(postgresql_database, "ALTER TABLE t DROP COLUMN c;")
    assert "row_types" not in extracted(postgresql_database).tables[0].options
    assert not {"reading types", "reading code"} & set(asked)
    assert "pg_seclabels" not in asked["listing objects of the database"]
    postgresql_server.psql_script(postgresql_database, "CREATE POLICY p ON t;")
    assert code_by_kind(extracted(postgresql_database)) == {"policy": ["p of public.t"]}
    assert [kind for kind in CODE_KINDS if f"'{kind}' AS kind" in asked["reading code"]] == ["policy"]
