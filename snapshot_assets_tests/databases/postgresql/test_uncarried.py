"""Nothing of a database that a snapshot does not carry is left unnamed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from snapshot_assets.databases.postgresql.ddl import define
from snapshot_assets.format.kinds import uncarried_by_kind
from snapshot_assets_tests.databases.postgresql.helpers import execute, extracted
from snapshot_assets_tests.servers.postgresql import PostgresqlServer

EXTENSION_ROWS = """
CREATE EXTENSION vector;
CREATE TABLE conf (a int); CREATE TABLE own (a int); CREATE TABLE bare (a int); CREATE SEQUENCE numbers;
INSERT INTO conf VALUES (1); INSERT INTO own VALUES (1); SELECT nextval('numbers');
ALTER EXTENSION vector ADD TABLE conf; ALTER EXTENSION vector ADD TABLE own; ALTER EXTENSION vector ADD TABLE bare;
ALTER EXTENSION vector ADD SEQUENCE numbers;
UPDATE pg_extension SET extconfig = ARRAY['conf', 'own', 'bare', 'numbers']::regclass[]::oid[],
    extcondition = ARRAY['WHERE a = 1', 'WHERE a > 1', '', ''] WHERE extname = 'vector';
"""


def test_rows_of_the_user_in_tables_of_an_extension_are_named(
    postgresql_server: PostgresqlServer, postgresql_database: str
) -> None:
    postgresql_server.psql_script(postgresql_database, EXTENSION_ROWS)
    assert uncarried_by_kind(extracted(postgresql_database)) == {
        "place of extension sequence": ["public.numbers (extension vector)"],
        "rows of extension table": ["public.conf (extension vector)"],
    }


OTHERS = """
CREATE TABLE t (a int, b int); CREATE VIEW v AS SELECT 1 AS x; CREATE SEQUENCE drawn OWNED BY t.a;
CREATE FUNCTION to_sql(internal) RETURNS internal LANGUAGE internal IMMUTABLE AS 'textout';
CREATE TRANSFORM FOR int LANGUAGE plpgsql (FROM SQL WITH FUNCTION to_sql(internal));
CREATE FOREIGN DATA WRAPPER far; CREATE SERVER away FOREIGN DATA WRAPPER far;
CREATE USER MAPPING FOR PUBLIC SERVER away; CREATE FOREIGN TABLE outside (a int) SERVER away;
GRANT USAGE ON FOREIGN DATA WRAPPER far TO pg_monitor; GRANT USAGE ON FOREIGN SERVER away TO pg_monitor;
REVOKE USAGE ON LANGUAGE plpgsql FROM PUBLIC;
CREATE FUNCTION watch() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END';
CREATE EVENT TRIGGER "Watcher" ON ddl_command_start EXECUTE FUNCTION watch(); ALTER EVENT TRIGGER "Watcher" DISABLE;
GRANT SELECT ON t TO pg_monitor; GRANT UPDATE (b) ON t TO pg_monitor; GRANT SELECT ON v TO PUBLIC;
GRANT USAGE ON SEQUENCE drawn TO pg_monitor; REVOKE ALL ON FUNCTION watch() FROM PUBLIC;
CREATE DOMAIN d AS int; REVOKE USAGE ON TYPE d FROM PUBLIC;
CREATE SCHEMA given; GRANT USAGE ON SCHEMA given TO PUBLIC;
CREATE PUBLICATION news; CREATE DEFAULT CONVERSION conv FOR 'LATIN1' TO 'UTF8' FROM iso8859_1_to_utf8;
CREATE ACCESS METHOD pile TYPE TABLE HANDLER heap_tableam_handler;
CREATE TRUSTED LANGUAGE other HANDLER plpgsql_call_handler;
COMMENT ON EVENT TRIGGER "Watcher" IS 'x'; COMMENT ON PUBLICATION news IS 'x'; COMMENT ON SUBSCRIPTION heard IS 'x';
COMMENT ON FOREIGN DATA WRAPPER far IS 'x'; COMMENT ON SERVER away IS 'x'; COMMENT ON CONVERSION conv IS 'x';
COMMENT ON TRANSFORM FOR int LANGUAGE plpgsql IS 'x';
ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO pg_monitor;
ALTER DEFAULT PRIVILEGES IN SCHEMA given GRANT SELECT ON TABLES TO PUBLIC;
SET allow_system_table_mods = on;
INSERT INTO pg_seclabel VALUES ('t'::regclass, 'pg_class'::regclass, 0, 'guard', 'secret');
"""


@pytest.fixture
def subscribed(postgresql_server: PostgresqlServer, postgresql_database: str) -> Iterator[str]:
    """A database with a subscription, which would keep it from being dropped."""
    subscription = "CREATE SUBSCRIPTION heard CONNECTION 'dbname=x' PUBLICATION p WITH (connect = false)"
    execute(postgresql_database, subscription)
    yield postgresql_database
    execute(postgresql_database, "ALTER SUBSCRIPTION heard SET (slot_name = NONE)", "DROP SUBSCRIPTION heard")


def test_everything_else_is_named_by_kind(postgresql_server: PostgresqlServer, subscribed: str) -> None:
    postgresql_server.psql_script(subscribed, OTHERS)
    name = subscribed.rsplit("/", 1)[1]
    execute(
        subscribed,
        f"ALTER ROLE postgres IN DATABASE {name} SET work_mem = '7MB'",
        f"ALTER DATABASE {name} SET work_mem = '7MB'",
        f"GRANT CREATE ON DATABASE {name} TO PUBLIC",
    )
    schema = extracted(subscribed)
    assert uncarried_by_kind(schema) == {
        "access method": ["pile"],
        "comment on": [
            "conversion public.conv",
            'event trigger "Watcher"',
            "foreign data wrapper far",
            "foreign server away",
            "publication news",
            "subscription heard",
            "transform for integer language plpgsql",
        ],
        "conversion": ["public.conv"],
        "database setting": ["work_mem", "work_mem of role postgres"],
        "default privileges": ["of role postgres on tables", "of role postgres on tables in schema given"],
        "event trigger": ['"Watcher"'],
        "foreign data wrapper": ["far"],
        "foreign server": ["away"],
        "foreign table": ["public.outside"],
        "grant on": [
            *(f"database {name}", "foreign data wrapper far", "foreign server away", "function public.watch()"),
            *("language plpgsql", "schema given", "sequence public.drawn", "table public.t", "type public.d"),
            "view public.v",
        ],
        "language": ["other"],
        "publication": ["news"],
        "security label": ["on table public.t"],
        "subscription": ["heard"],
        "transform": ["for integer language plpgsql"],
        "user mapping": ["for public to server away"],
    }
    lost = define(schema).lost
    assert "Default privileges of role postgres on tables are not in a snapshot." in lost
    assert "Comment on publication news is not in a snapshot." in lost


DEPENDENT = """
CREATE EXTENSION vector; CREATE TABLE t (a int); CREATE INDEX i ON t (a); CREATE MATERIALIZED VIEW m AS SELECT 1 AS x;
CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER g AFTER INSERT ON t EXECUTE FUNCTION f();
ALTER FUNCTION f() DEPENDS ON EXTENSION vector; ALTER INDEX i DEPENDS ON EXTENSION vector;
ALTER MATERIALIZED VIEW m DEPENDS ON EXTENSION vector; ALTER TRIGGER g ON t DEPENDS ON EXTENSION vector;
"""


def test_dependencies_on_an_extension_are_named(postgresql_server: PostgresqlServer, postgresql_database: str) -> None:
    postgresql_server.psql_script(postgresql_database, DEPENDENT)
    assert uncarried_by_kind(extracted(postgresql_database)) == {
        "dependency of": [
            f"{each} on extension vector"
            for each in ("function public.f()", "index public.i", "materialized view public.m", "trigger g on public.t")
        ]
    }


OWNED = """
CREATE TABLE t (a int, b int); CREATE STATISTICS st ON a, b FROM t;
CREATE OPERATOR === (FUNCTION = int4eq, LEFTARG = int, RIGHTARG = int);
CREATE OPERATOR FAMILY f USING hash;
CREATE OPERATOR CLASS c FOR TYPE int USING hash FAMILY f AS OPERATOR 1 =;
CREATE COLLATION col FROM "C"; CREATE TYPE based;
CREATE FUNCTION based_in(cstring) RETURNS based LANGUAGE internal IMMUTABLE STRICT AS 'int4in';
CREATE FUNCTION based_out(based) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'int4out';
CREATE TYPE based (INPUT = based_in, OUTPUT = based_out, LIKE = int4);
CREATE CONVERSION conv FOR 'LATIN1' TO 'UTF8' FROM iso8859_1_to_utf8;
CREATE TEXT SEARCH DICTIONARY dict (TEMPLATE = simple); CREATE TEXT SEARCH CONFIGURATION cfg (COPY = simple);
CREATE FOREIGN DATA WRAPPER far; CREATE SERVER away FOREIGN DATA WRAPPER far; CREATE PUBLICATION news;
CREATE TRUSTED LANGUAGE other HANDLER plpgsql_call_handler;
CREATE FUNCTION watch() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END';
CREATE EVENT TRIGGER watcher ON ddl_command_start EXECUTE FUNCTION watch(); ALTER EVENT TRIGGER watcher DISABLE;
"""
OWNED_OBJECTS = (
    *("collation public.col", "conversion public.conv", "event trigger watcher", "foreign data wrapper far"),
    *("foreign server away", "language other", "operator public.===(integer,integer)"),
    *("operator class public.c", "operator family public.f", "publication news", "statistics public.st"),
    *("text search configuration public.cfg", "text search dictionary public.dict", "type public.based"),
)


def test_other_owners_of_every_kind_of_object_are_named(
    postgresql_server: PostgresqlServer, postgresql_database: str
) -> None:
    role = f"owner_of_{postgresql_database.rsplit('/', 1)[1]}"
    postgresql_server.psql_script(postgresql_database, f"{OWNED} CREATE ROLE {role} SUPERUSER;")
    try:
        for each in OWNED_OBJECTS:
            by = " USING hash" if each.startswith(("operator c", "operator f")) else ""
            execute(postgresql_database, f"ALTER {each.replace('foreign server', 'server')}{by} OWNER TO {role}")
        found = uncarried_by_kind(extracted(postgresql_database))
        assert found["owner"] == sorted(f"{role} of {each}" for each in OWNED_OBJECTS)
    finally:
        execute(postgresql_database, f"REASSIGN OWNED BY {role} TO postgres", f"DROP ROLE {role}")
