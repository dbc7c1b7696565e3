"""Errors of PostgreSQL as a user reads them: the server's reason, its fields, a remedy by SQLSTATE, and the SQL."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pyarrow as pa
import pytest

from snapshot_assets.databases.definition import ObjectKey, Statement
from snapshot_assets.databases.postgresql.session import PostgresqlConnection, PostgresqlSession
from snapshot_assets.databases.postgresql.target import PostgresqlTarget
from snapshot_assets.databases.protocol.source import AllRows, Database, DatabaseAddress, Scan
from snapshot_assets.errors import (
    DatabaseDeniedError,
    DatabaseError,
    DatabaseUnavailableError,
    SnapshotError,
    TransientError,
)
from snapshot_assets.format.relations import Table, TableName
from snapshot_assets_tests.databases.postgresql.helpers import load, opened, read, table_of
from snapshot_assets_tests.servers.postgresql import (
    PostgresqlServer,
    binaries,
    start_postgresql,
    start_speaking,
    start_standby,
)

FAIL = """
CREATE TABLE base AS SELECT i FROM generate_series(1, 100) i;
CREATE FUNCTION fail(state text, at int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN
    IF at = 60 THEN
        RAISE EXCEPTION E'a reason\\nof two lines' USING errcode = state, detail = 'a detail', hint = 'a hint';
    END IF;
    RETURN at; END $$;
"""
SECRET = "zzz-secret"


@pytest.fixture(scope="module")
def database(postgresql_server: PostgresqlServer, postgresql_module_database: str) -> str:
    postgresql_server.psql_script(postgresql_module_database, FAIL)
    return postgresql_module_database


def failure(database: Database, table: Table) -> SnapshotError:
    with pytest.raises(SnapshotError) as caught, database.scan(Scan(table, AllRows())) as batches:
        list(batches)
    return caught.value


def failure_of(uri: str, name: str) -> SnapshotError:
    with opened(uri) as database:
        return failure(database, table_of(database, name))


def offers_another_run(error: SnapshotError) -> bool:
    return re.search("run(ning)? again|try again", str(error), re.IGNORECASE) is not None


@contextmanager
def role(server: PostgresqlServer, uri: str, options: str = "") -> Iterator[str]:
    """Create a role with options; yield the URI of a database as this role."""
    name = f"role_{time.monotonic_ns()}"
    server.psql(uri, f"CREATE ROLE {name} LOGIN PASSWORD '{SECRET}' {options}")
    try:
        yield server.uri(uri.rsplit("/", 1)[1], name, SECRET)
    finally:
        server.psql(uri, f"DROP OWNED BY {name}", f"DROP ROLE {name}")


@pytest.mark.parametrize(
    ("state", "kind", "remedy"),
    [
        ("08001", DatabaseUnavailableError, "foreign server .*exclude the table"),
        ("HV000", DatabaseError, "foreign server.*exclude the table"),
        ("HV00N", DatabaseUnavailableError, "foreign server.*exclude the table"),
        ("40001", DatabaseUnavailableError, ""),
        ("40P01", DatabaseUnavailableError, ""),
        ("42501", DatabaseDeniedError, "Grant the role .*exclude the table"),
        ("53100", DatabaseError, "Free space on the database server's disk"),
        ("53300", DatabaseUnavailableError, "fewer tasks at a time, or raise max_connections"),
        ("53400", DatabaseError, "temp_file_limit"),
        ("55P03", DatabaseUnavailableError, "Another session holds a conflicting lock"),
        ("57014", DatabaseError, "time limit or an administrator cancelled"),
        ("57P01", DatabaseUnavailableError, "administrator ended the session"),
        ("57P04", DatabaseError, ""),
        ("XX001", DatabaseError, "pg_amcheck .*exclude the table"),
        ("22012", DatabaseError, ""),
    ],
)
def test_reason_fields_and_remedy_precede_the_sql(
    state: str, kind: type[SnapshotError], remedy: str, postgresql_server: PostgresqlServer, database: str
) -> None:
    view, many = f"fails_{state}".lower(), ", ".join(f"i AS a_column_{number}" for number in range(30))
    postgresql_server.psql(database, f"CREATE VIEW {view} AS SELECT fail('{state}', i), {many} FROM base")
    error = failure_of(database, view)
    assert type(error) is kind
    text, _, sql = str(error).rpartition(" SQL: ")
    reason = (
        f"PostgreSQL 'shop': reading public.{view} failed: a reason of two lines. DETAIL: a detail. HINT: a hint."
        rf" CONTEXT: PL/pgSQL function [\w.]+\(text,integer\) line 3 at RAISE \(SQLSTATE {state}\)\."
    )
    again = r" Running again continues\." if issubclass(kind, TransientError) else ""
    assert re.fullmatch(f"{reason}{f' .*{remedy}.*' if remedy else ''}{again}", text)
    assert offers_another_run(error) is issubclass(kind, TransientError)
    assert sql.startswith("SELECT")
    assert len(sql) <= 160
    assert "\n" not in sql
    assert error.attributes["sqlstate"] == state


def test_every_way_to_run_sql_gives_the_same_text(database: str) -> None:
    sql = "SELECT public.fail('42501', 60)"
    with closing(PostgresqlConnection(DatabaseAddress("shop", database))) as connection:
        texts = []
        for run in (connection.execute, connection.rows):
            with pytest.raises(DatabaseDeniedError) as caught:
                run(sql, "counting public.base")
            texts.append(str(caught.value))
    assert texts[0] == texts[1]
    assert texts[0].startswith("PostgreSQL 'shop': counting public.base failed: a reason of two lines. DETAIL:")
    assert texts[0].endswith(f"SQL: {sql}")


def test_a_refused_table_is_named_with_the_right_that_is_missing(
    postgresql_server: PostgresqlServer, database: str
) -> None:
    postgresql_server.psql(database, "CREATE TABLE closed (i int)")
    with role(postgresql_server, database) as uri, opened(uri) as limited, opened(database) as owner:
        error = failure(limited, table_of(owner, "closed"))
    assert type(error) is DatabaseDeniedError
    assert re.search("public.closed failed: permission denied for table closed .*Grant .*exclude the table", str(error))
    assert not offers_another_run(error)


def test_an_import_that_violates_a_constraint_names_table_and_column(
    postgresql_server: PostgresqlServer, database: str
) -> None:
    postgresql_server.psql(database, "CREATE TABLE nulls (i int)", "CREATE TABLE strict (i int NOT NULL)")
    with opened(database) as opened_database:
        table = table_of(opened_database, "nulls")
    with pytest.raises(DatabaseError) as caught:
        load(database, table, pa.table({"i": pa.array([None], pa.int32())}), "strict")
    assert re.search(r'loading public.strict failed: null value in column "i"', str(caught.value))
    assert str(caught.value).endswith('SQL: COPY "public"."strict" FROM STDIN')
    found = {name: caught.value.attributes[name] for name in ("table", "column", "sqlstate")}
    assert found == {"table": "public.strict", "column": "i", "sqlstate": "23502"}


def test_a_table_that_only_a_field_names_is_named(postgresql_server: PostgresqlServer, database: str) -> None:
    postgresql_server.psql(database, "CREATE TABLE keyed (i int PRIMARY KEY)", "INSERT INTO keyed VALUES (1)")
    with (
        closing(PostgresqlTarget(DatabaseAddress("shop", database))) as target,
        pytest.raises(DatabaseError, match=r'constraint "keyed_pkey" \(table public.keyed\)\. DETAIL: Key \(i\)=\(1\)'),
    ):
        target.execute("INSERT INTO public.keyed VALUES (1)", "recording steps in the ledger")


def test_a_limit_of_temporary_files_is_named(postgresql_server: PostgresqlServer, database: str) -> None:
    postgresql_server.psql(
        database,
        "CREATE VIEW sorted AS SELECT i, repeat(i::text, 9) AS t FROM generate_series(1, 200000) i ORDER BY t",
    )
    with role(postgresql_server, database) as uri:
        name = uri.partition("://")[2].partition(":")[0]
        postgresql_server.psql(
            database, f"ALTER ROLE {name} SET temp_file_limit = '1MB'", f"GRANT SELECT ON sorted TO {name}"
        )
        error = failure_of(uri, "sorted")
    assert error.attributes["sqlstate"] == "53400"
    assert re.search("public.sorted failed: temporary file size exceeds .*such as temp_file_limit", str(error))
    assert not offers_another_run(error)


def test_a_full_server_is_tried_again(postgresql_server: PostgresqlServer, database: str) -> None:
    message = r"too many connections for role .*raise max_connections .*Running again continues"
    with (
        role(postgresql_server, database, "CONNECTION LIMIT 0") as uri,
        pytest.raises(DatabaseUnavailableError, match=message),
    ):
        PostgresqlConnection(DatabaseAddress("shop", uri))


@pytest.fixture(scope="module")
def primary() -> Iterator[PostgresqlServer]:
    with start_postgresql() as server:
        server.psql(
            server.uri(),
            "CREATE TABLE long AS SELECT i, repeat('x', 200) AS x FROM generate_series(1, 300000) i",
            "CREATE UNLOGGED TABLE volatile (i int)",
            "CREATE VIEW over AS SELECT i FROM volatile",
        )
        yield server


@pytest.fixture(scope="module")
def standby(primary: PostgresqlServer) -> Iterator[PostgresqlServer]:
    with start_standby(primary, max_standby_streaming_delay="0") as server:
        yield server


@pytest.mark.parametrize("name", ["volatile", "over"])
def test_an_unlogged_table_is_not_read_on_a_standby(name: str, standby: PostgresqlServer) -> None:
    error = failure_of(standby.uri(), name)
    assert error.attributes["sqlstate"] == "0A000"
    assert re.search(rf"public.{name} failed: cannot access temporary or unlogged relations", str(error))
    assert re.search("standby.* unlogged .*`exclude_tables`.* or read the primary", str(error))
    assert not offers_another_run(error)


def test_a_standby_is_not_imported_into(standby: PostgresqlServer) -> None:
    with (
        closing(PostgresqlTarget(DatabaseAddress("target", standby.uri()))) as target,
        pytest.raises(DatabaseError, match=r"read-only transaction .*is a standby.*address of the primary") as caught,
    ):
        target.execute("CREATE SCHEMA s", "making schema s")
    assert not offers_another_run(caught.value)


def test_a_conflict_with_recovery_names_the_settings_of_the_standby(
    primary: PostgresqlServer, standby: PostgresqlServer
) -> None:
    """The server ends a session between its statements, and the driver has no field of the error.

    One that waits for its client to take rows is not ended, and replay then waits for it.
    """
    with opened(standby.uri()) as database:
        table = table_of(database, "long")
        primary.psql(primary.uri(), "DELETE FROM long", "VACUUM long")
        written = primary.psql(primary.uri(), "SELECT pg_current_wal_insert_lsn()")
        while standby.psql(standby.uri(), f"SELECT pg_last_wal_replay_lsn() >= '{written}'::pg_lsn") != "t":
            time.sleep(0.05)
        with pytest.raises(DatabaseUnavailableError) as caught, database.scan(Scan(table, AllRows())) as batches:
            list(batches)
    text = str(caught.value)
    assert re.search("looking up public.long failed: the session ended, .*the reason off.* in the server's log", text)
    assert "hot_standby_feedback = on there, raise max_standby_streaming_delay, or read the primary." in text
    assert "Running again continues. SQL: SELECT" in text


@pytest.fixture(scope="module")
def speaking() -> Iterator[PostgresqlServer]:
    """A server whose messages are Russian: not even those for the severities are ASCII."""
    with start_speaking("ru_RU.UTF-8") as server:
        server.psql_script(
            server.uri(),
            f"{FAIL} CREATE TABLE closed (i int); CREATE VIEW late AS SELECT fail('40001', i) FROM base;",
        )
        yield server


def test_the_sqlstate_decides_in_another_language(speaking: PostgresqlServer) -> None:
    with role(speaking, speaking.uri()) as uri, opened(uri) as limited, opened(speaking.uri()) as owner:
        denied = failure(limited, table_of(owner, "closed"))
        late = failure(owner, table_of(owner, "late"))
    assert type(denied) is DatabaseDeniedError
    assert "permission denied" not in str(denied)
    assert re.search(r"public.closed failed: \w.* closed \(SQLSTATE 42501\)\. Grant .*exclude the table", str(denied))
    assert (type(late), late.attributes["sqlstate"]) == (DatabaseUnavailableError, "40001")
    assert "failed: a reason of two lines. DETAIL: a detail. HINT: a hint." in str(late)


def test_an_ended_session_may_run_again_in_another_language(speaking: PostgresqlServer) -> None:
    with closing(PostgresqlSession(DatabaseAddress("shop", speaking.uri()))) as session:
        [row] = session.rows("SELECT pg_catalog.pg_backend_pid() AS pid", "reading public.base")
        speaking.psql(speaking.uri(), f"SELECT pg_terminate_backend({row['pid']}, 10000)")
        with pytest.raises(DatabaseUnavailableError, match=r"reading public.base failed: \w.*Running again continues"):
            session.rows("SELECT i FROM public.base", "reading public.base")


def test_a_rehearsal_finds_what_is_lacking_and_what_belongs_to_it_in_another_language(
    speaking: PostgresqlServer,
) -> None:
    made, seen = TableName("public", "made"), TableName("public", "seen")
    schema = Statement(ObjectKey("schema", "pg_mine"), "CREATE SCHEMA pg_mine")
    mine = TableName("pg_mine", "t")
    in_schema = Statement(ObjectKey("table", mine), "CREATE TABLE pg_mine.t (i int)", mine)
    table = Statement(ObjectKey("table", made), "CREATE TABLE public.made (i public.nowhere)", made)
    key = ObjectKey("index", "i", made)
    index = Statement(key, "CREATE INDEX i ON public.made (i)", made)
    comment = Statement(ObjectKey("comment", of=key), "COMMENT ON INDEX public.i IS 'x'", made)
    view = Statement(ObjectKey("view", seen), "CREATE VIEW public.seen AS SELECT 1 FROM public.made", seen)
    with closing(PostgresqlTarget(DatabaseAddress("target", speaking.uri()))) as target:
        found = target.rehearse([schema, in_schema, table, index, comment, view])
    assert [each.statement for each in found.failed] == [schema, table, view]
    assert [each.lacks for each in found.failed] == [False, True, True]
    assert [each.holds_rows for each in found.failed] == [True, True, False]
    assert "public.nowhere" in found.failed[1].message
    assert found.following == {in_schema, index, comment}


def test_an_unreachable_foreign_server_is_named_in_another_language(speaking: PostgresqlServer) -> None:
    if not (binaries(15).parent / "lib/postgres_fdw.so").exists():
        pytest.skip("needs postgres_fdw: apt-get install postgresql-15")
    speaking.psql(
        speaking.uri(),
        "CREATE EXTENSION postgres_fdw",
        "CREATE SERVER elsewhere FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '127.0.0.1', port '1')",
        "CREATE USER MAPPING FOR PUBLIC SERVER elsewhere OPTIONS (user 'u', password 'p')",
        "CREATE FOREIGN TABLE far (i int) SERVER elsewhere",
    )
    with opened(speaking.uri()) as database:
        error = failure(database, table_of(database, "far"))
        assert read(database, table_of(database, "base")).num_rows == 100
    assert (type(error), error.attributes["sqlstate"]) == (DatabaseUnavailableError, "08001")
    assert re.search("reading public.far failed: .*elsewhere.*foreign server .*or exclude the table", str(error))
