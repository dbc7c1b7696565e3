"""The server's error of a query that fails before its first row is reported, and decides about a retry."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import version

import pytest

from snapshot_assets.databases.definition import ObjectKey, Statement
from snapshot_assets.databases.protocol.source import AllRows, Scan
from snapshot_assets.errors import (
    DatabaseDeniedError,
    DatabaseError,
    DatabaseUnavailableError,
    SnapshotError,
    TransientError,
)
from snapshot_assets_tests.databases.postgresql.helpers import opened, read, run, table_of
from snapshot_assets_tests.servers.postgresql import PostgresqlServer

VIEWS = """
CREATE TABLE base (ts timestamptz, v int);
INSERT INTO base SELECT '2025-01-01Z'::timestamptz + i * interval '1h', i FROM generate_series(1, 100) i;
CREATE VIEW first AS SELECT ts, v / (CASE WHEN v < 10 THEN 0 ELSE 1 END) v FROM base;
CREATE VIEW late AS SELECT ts, v / (CASE WHEN v > 90 THEN 0 ELSE 1 END) v FROM base;
CREATE VIEW times AS SELECT ts + interval '1s' * (1 / (v - v)) AS ts FROM base;
CREATE FUNCTION fail(state text) RETURNS int LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION 'error % of the server', state USING errcode = state; END $$;
CREATE VIEW deadlock AS SELECT public.fail('40P01') v FROM base;
CREATE VIEW denied AS SELECT public.fail('42501') v FROM base;
CREATE FUNCTION once() RETURNS int LANGUAGE plpgsql AS $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()) THEN
        PERFORM pg_advisory_lock(1);
        RAISE EXCEPTION 'only once'; END IF;
    RETURN 1; END $$;
CREATE VIEW passing AS SELECT public.once() v FROM base;
"""


@pytest.fixture(scope="module")
def database(postgresql_server: PostgresqlServer, postgresql_module_database: str) -> Iterator[str]:
    postgresql_server.psql_script(postgresql_module_database, VIEWS)
    return postgresql_module_database


def failure(uri: str, view: str) -> SnapshotError:
    with opened(uri) as opened_database:
        table = table_of(opened_database, view)
        with pytest.raises(SnapshotError) as caught, opened_database.scan(Scan(table, AllRows())) as batches:
            list(batches)
        # The session still reads its state.
        assert read(opened_database, table_of(opened_database, "base")).num_rows == 100
    return caught.value


def test_the_servers_error_is_reported_and_its_sqlstate_decides_whether_it_is_transient(database: str) -> None:
    for view in ("first", "late"):
        error = failure(database, view)
        assert re.search(f"reading public.{view} .*division by zero", str(error))
        assert (type(error), error.attributes.get("sqlstate", "22012")) == (DatabaseError, "22012")
    deadlock, denied = failure(database, "deadlock"), failure(database, "denied")
    assert (type(deadlock), deadlock.attributes["sqlstate"]) == (DatabaseUnavailableError, "40P01")
    assert (type(denied), denied.attributes["sqlstate"]) == (DatabaseDeniedError, "42501")
    assert "error 42501 of the server" in str(denied)


def test_an_error_that_does_not_recur_is_transient(database: str) -> None:
    error = failure(database, "passing")
    kept = "only once" in str(error)  # from 1.9 on
    assert kept == (tuple(map(int, version("adbc-driver-postgresql").split("."))) >= (1, 9))
    assert isinstance(error, TransientError)
    lost = "reading public.passing failed: the server ended the query before its first row"
    assert (lost in str(error)) is not kept


@pytest.mark.parametrize(("column", "first"), [("bytea", ""), ("text", "short")])
def test_the_error_of_a_value_that_explain_does_not_read_is_reported(
    postgresql_server: PostgresqlServer, postgresql_database: str, column: str, first: str
) -> None:
    """The TOAST table lost the value; EXPLAIN ANALYZE neither fetches nor prints it."""
    postgresql_server.psql(
        postgresql_database,
        "CREATE TABLE base AS SELECT i FROM generate_series(1, 100) i",
        f"CREATE TABLE torn (v {column})",
        "ALTER TABLE torn ALTER v SET STORAGE EXTERNAL",
        f"INSERT INTO torn SELECT v::{column} FROM (VALUES ('{first}')) t (v) WHERE v <> ''",
        f"INSERT INTO torn SELECT repeat('x', 9000)::{column} FROM generate_series(1, 3)",
        """DO $$ DECLARE aside regclass; BEGIN
            SELECT reltoastrelid INTO aside FROM pg_class WHERE oid = 'torn'::regclass;
            UPDATE pg_class SET relkind = 'r' WHERE oid = aside;
            EXECUTE 'DELETE FROM ' || aside;
            UPDATE pg_class SET relkind = 't' WHERE oid = aside; END $$""",
    )
    error = failure(postgresql_database, "torn")
    assert "for toast value" in str(error)
    assert type(error) is DatabaseError


def test_other_queries_fail_with_the_servers_error(database: str) -> None:
    with opened(database) as opened_database:
        table = table_of(opened_database, "times", time="ts")
        with pytest.raises(DatabaseError, match=r"division by zero.*SQLSTATE 22012"):
            opened_database.time_bounds((table,))


@pytest.mark.parametrize("sql", ["SELECT 1 / (v - v) FROM base", "SELECT setval(fail('22000')::text, 1)"])
def test_a_statement_of_a_restore_fails_with_the_servers_error(database: str, sql: str) -> None:
    with pytest.raises(DatabaseError, match=r"making it failed: .*(division by zero|error 22000 of the server)"):
        run(
            database, (Statement(ObjectKey("it"), sql.replace("base", "public.base").replace("fail(", "public.fail(")),)
        )
