"""Objects are created in an order in which code finds what it needs, also where objects need each other."""

from __future__ import annotations

import pytest

from snapshot_assets.databases.postgresql.ddl import define
from snapshot_assets.databases.protocol.steps import steps_of
from snapshot_assets.format.kinds import uncarried_by_kind
from snapshot_assets_tests.databases.postgresql.helpers import extracted, restored_alike
from snapshot_assets_tests.servers.postgresql import MakeDatabase, PostgresqlServer


def test_objects_whose_names_read_alike_are_all_created(
    postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase
) -> None:
    script = """
        CREATE SCHEMA "a.b"; CREATE SCHEMA a;
        CREATE TYPE "a.b".d AS ENUM ('x'); CREATE TYPE a."b.d" AS ENUM ('y');
        CREATE TABLE "a.b".c (x int); CREATE TABLE a."b.c" (y text);
        CREATE VIEW "a.b".v AS SELECT * FROM a."b.c"; CREATE VIEW a."b.v" AS SELECT * FROM "a.b".c;
        CREATE FUNCTION a.f() RETURNS SETOF "a.b".v LANGUAGE sql AS 'SELECT * FROM "a.b".v';
        """
    _, _, schema = restored_alike(postgresql_server, make_postgresql_database, script, code=True)
    tables = [step.name for step in steps_of(define(schema, code=True).before) if step.kind == "table"]
    assert tables == ["table a.b.c", "table a.b.c (2)"]


def test_defaults_that_call_code_which_needs_their_table_are_set_later(
    postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase
) -> None:
    script = """
        CREATE TABLE t (id serial, a int DEFAULT 7, b int);
        CREATE FUNCTION next(r t DEFAULT NULL) RETURNS int LANGUAGE sql AS 'SELECT 42';
        ALTER TABLE t ALTER b SET DEFAULT next();
        CREATE TABLE heir (more text DEFAULT 'm') INHERITS (t);
        CREATE TABLE p (a int, b int) PARTITION BY LIST (a);
        CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1);
        CREATE FUNCTION next_p(r p1 DEFAULT NULL) RETURNS int LANGUAGE sql AS 'SELECT 43';
        ALTER TABLE ONLY p1 ALTER b SET DEFAULT next_p();
        CREATE TABLE seen (a int, b int);
        CREATE VIEW v AS SELECT a FROM seen;
        CREATE FUNCTION next_v(r v DEFAULT NULL) RETURNS int LANGUAGE sql AS 'SELECT 44';
        ALTER TABLE seen ALTER b SET DEFAULT next_v();
        """
    _, _, schema = restored_alike(postgresql_server, make_postgresql_database, script, code=True)
    definition = define(schema, code=True)
    made = {str(statement.key) for statement in (*definition.before, *definition.after)}
    assert [need.label for need in definition.needs if need.label not in made] == []
    assert [need.label for need in define(schema).needs] != []


def test_a_view_that_calls_a_function_of_an_extension_needs_nothing_else(
    postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase
) -> None:
    script = "CREATE EXTENSION vector; CREATE VIEW v AS SELECT public.l2_distance('[1]'::vector, '[2]') AS d"
    _, _, schema = restored_alike(postgresql_server, make_postgresql_database, script)  # nothing is lost
    assert uncarried_by_kind(schema) == {}


@pytest.fixture(params=["older_postgresql_server", "postgresql_server"])
def server(request: pytest.FixtureRequest) -> PostgresqlServer:
    """A server of version 16, or 18."""
    found: PostgresqlServer = request.getfixturevalue(request.param)
    return found


def test_checks_and_indexes_that_call_functions_of_their_tables_own_rows_are_restored(server: PostgresqlServer) -> None:
    script = """
        CREATE TABLE t (a int CONSTRAINT plain CHECK (a > 0), b int);
        CREATE FUNCTION ordered(t) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1.a < $1.b; END';
        ALTER TABLE t ADD CONSTRAINT whole CHECK (ordered(t.*)), ADD CONSTRAINT late CHECK (ordered(t.*)) NOT VALID;
        CREATE INDEX by_row ON t (ordered(t.*));
        CREATE TABLE p (a int, b int) PARTITION BY RANGE (a);
        CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (9);
        CREATE FUNCTION ordered(p1) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1.a < $1.b; END';
        ALTER TABLE p1 ADD CONSTRAINT own CHECK (ordered(p1.*));
        """
    for uri in restored_alike(server, server.create_database, script, code=True)[:2]:
        server.drop_database(uri)


def test_a_function_needs_the_transforms_that_it_names_alone(server: PostgresqlServer) -> None:
    source = server.create_database()
    server.psql_script(
        source,
        """
        CREATE TRANSFORM FOR int LANGUAGE sql (
            FROM SQL WITH FUNCTION prsd_lextype(internal), TO SQL WITH FUNCTION int4recv(internal));
        CREATE FUNCTION plain(int) RETURNS int LANGUAGE sql AS 'SELECT $1';
        CREATE FUNCTION named(int) RETURNS int TRANSFORM FOR TYPE int LANGUAGE sql AS 'SELECT $1';
        """,
    )
    assert define(extracted(source), code=True).lost == (
        "Function public.named(integer) needs transform for integer language sql, which is not restored. If the"
        " target does not have it, the function is left out.",
        "Transform for integer language sql is not in a snapshot.",
    )
    server.drop_database(source)
