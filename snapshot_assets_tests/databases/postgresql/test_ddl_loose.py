"""Types and sequences that no table uses are restored; those that cannot be are named."""

from __future__ import annotations

from snapshot_assets.databases import duckdb
from snapshot_assets.databases.convert.schema import converted
from snapshot_assets.databases.postgresql.ddl import define
from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.engine.restore.settings import Filters
from snapshot_assets.engine.restore.source import _select
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.databases.postgresql.helpers import extracted, restore, restored_alike
from snapshot_assets_tests.servers.postgresql import MakeDatabase, PostgresqlServer

LOOSE = """
CREATE SCHEMA a; CREATE TABLE t (n int); CREATE SEQUENCE lonely START 5; SELECT nextval('lonely'), nextval('lonely');
CREATE TYPE mood AS ENUM ('ok'); CREATE DOMAIN a.feeling AS mood DEFAULT 'ok';
CREATE TYPE a.about AS (f a.feeling[], t t); COMMENT ON SEQUENCE lonely IS 'nobody draws';
"""
FUNCTION = "CREATE FUNCTION even(int) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT $1 % 2 = 0'"
TYPES = "SELECT typname FROM pg_type WHERE typnamespace = 'public'::regnamespace AND typtype = 'd' ORDER BY 1"


def test_types_and_sequences_without_a_table_are_restored(
    postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase
) -> None:
    _, target, schema = restored_alike(postgresql_server, make_postgresql_database, LOOSE)
    assert extracted(target) == schema
    assert postgresql_server.psql(target, "SELECT nextval('lonely')") == "7"
    restore(schema.model_copy(update={"tables": ()}), target)  # existing ones do not change
    assert postgresql_server.psql(target, "SELECT nextval('lonely')") == "8"


def test_a_type_is_left_out_if_a_table_or_a_function_that_it_needs_is_missing(
    postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase
) -> None:
    source, without, having = (make_postgresql_database() for _ in range(3))
    domain = "CREATE DOMAIN even_number AS int CHECK (even(VALUE))"
    postgresql_server.psql_script(source, f"{LOOSE}; {FUNCTION}; {domain}; CREATE DOMAIN plain AS int")
    schema = extracted(source)
    lost = define(schema.model_copy(update={"tables": ()})).lost
    assert "Type a.about is left out: it needs public.t, which is not restored." in lost
    calls = "Type public.even_number calls function public.even(integer), which is not in a snapshot."
    assert any(each.startswith(calls) for each in lost)
    restore(schema, without)
    assert postgresql_server.psql(without, TYPES) == "plain"
    postgresql_server.psql(having, FUNCTION)
    restore(schema, having)
    assert postgresql_server.psql(having, TYPES) == "even_number\nplain"


def test_only_whole_schemas_have_types_and_sequences_without_a_table(
    postgresql_server: PostgresqlServer, postgresql_database: str
) -> None:
    postgresql_server.psql_script(postgresql_database, LOOSE)
    [public] = extracted(postgresql_database, Selection(tables=(TableName("public", "t"),))).schemas
    assert public.options["not_carried"] == ["sequence public.lonely", "type public.mood"]
    schema = extracted(postgresql_database)
    known = [table.table_name for table in schema.tables]
    narrowed, _ = _select(schema, Filters(tables=(TableName("public", "t"),)), known)
    assert "sequence public.lonely" not in [str(each.key) for each in define(narrowed).before]
    assert "sequence public.lonely" in [str(each.key) for each in define(schema).before]


def test_a_sequence_that_the_user_may_not_read_is_named(
    postgresql_server: PostgresqlServer, postgresql_database: str
) -> None:
    postgresql_server.psql(
        postgresql_database, "CREATE SEQUENCE secret", "CREATE ROLE fidelity_reader LOGIN PASSWORD 'x'"
    )
    try:
        reader = postgresql_server.uri(postgresql_database.rsplit("/", 1)[1], "fidelity_reader", "x")
        [public] = extracted(reader).schemas
        assert public.options["not_carried"] == ["sequence public.secret"]
    finally:
        postgresql_server.psql(postgresql_database, "DROP ROLE fidelity_reader")


def test_another_database_names_them_as_left_out(postgresql_server: PostgresqlServer, postgresql_database: str) -> None:
    postgresql_server.psql_script(postgresql_database, LOOSE)
    _, lost = converted(extracted(postgresql_database), "duckdb", duckdb)
    for what in ("Type a.about", "Type a.feeling", "Type public.mood", "Sequence public.lonely"):
        assert f"{what} is left out: no column needs it." in lost
