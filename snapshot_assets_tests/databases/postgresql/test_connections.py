"""Connections of one process share the driver's object for a database, whatever became of its types and its server."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import pytest

from snapshot_assets.databases.postgresql.session import PostgresqlConnection
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.errors import DatabaseDeniedError
from snapshot_assets_tests.databases.postgresql.helpers import client, execute, opened, read, table_of
from snapshot_assets_tests.servers.postgresql import MakeDatabase, PostgresqlServer, start_postgresql
from snapshot_assets_tests.waiting import until

SESSIONS = "SELECT sessions FROM pg_stat_database WHERE datname = '{name}'"
"""How many sessions a database has had."""


def connect(uri: str) -> PostgresqlConnection:
    return PostgresqlConnection(DatabaseAddress("shop", uri))


def answers(uri: str) -> bool:
    with closing(connect(uri)) as connection:
        return connection.rows("SELECT 1 AS one", "asking") == [{"one": 1}]


def test_only_the_first_connection_reads_the_types_of_the_database(
    postgresql_server: PostgresqlServer, postgresql_database: str
) -> None:
    sessions = SESSIONS.format(name=postgresql_database.rpartition("/")[2])
    with client(postgresql_server.uri()) as run:
        for expected in (2, 3, 4):  # the first one is the driver's
            assert answers(postgresql_database)
            until(lambda expected=expected: run(sessions) == [(expected,)])


def test_connections_at_one_time_have_objects_of_their_own(postgresql_database: str) -> None:
    def many(_: int) -> bool:
        return all(answers(postgresql_database) for _ in range(10))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(many, range(4)))
    with ExitStack() as stack:
        open_ = [stack.enter_context(closing(connect(postgresql_database))) for _ in range(3)]
        assert len({each.rows("SELECT pg_backend_pid() AS pid", "asking")[0]["pid"] for each in open_}) == 3
    assert answers(postgresql_database)


TYPES = (
    "CREATE TYPE mood AS ENUM ('sad', 'happy')",
    "CREATE TYPE pair AS (a int, b mood)",
    "CREATE DOMAIN few AS int CHECK (VALUE < 10)",
    "CREATE TABLE t (id int PRIMARY KEY, m mood, p pair, f few, ms mood[])",
    "INSERT INTO t VALUES (1, 'happy', (2, 'sad'), 3, '{sad,happy}')",
)
RECREATED = (
    "DROP TABLE t",
    "DROP DOMAIN few",
    "DROP TYPE pair",
    "DROP TYPE mood",
    "CREATE TYPE pair AS (b text)",
    "CREATE DOMAIN few AS text",
    "CREATE TYPE mood AS ENUM ('0', '1')",
    "CREATE TABLE t (id int PRIMARY KEY, m mood, p pair, f few, ms mood[])",
    "INSERT INTO t VALUES (2, '1', ROW('x'), 'y', '{0,1}')",
)


def test_types_that_are_newer_than_the_object_are_read(postgresql_database: str) -> None:
    assert answers(postgresql_database)
    for statements, row in (
        (TYPES, {"id": 1, "m": "happy", "p": "(2,sad)", "f": 3, "ms": "{sad,happy}"}),
        (RECREATED, {"id": 2, "m": "1", "p": "(x)", "f": "y", "ms": "{0,1}"}),
    ):
        execute(postgresql_database, *statements)
        with opened(postgresql_database) as database:
            assert read(database, table_of(database)).to_pylist() == [row]


def test_databases_of_one_server_are_read_in_turn(
    postgresql_database: str, make_postgresql_database: MakeDatabase
) -> None:
    other = make_postgresql_database()
    for uri in (postgresql_database, other, postgresql_database):
        with closing(connect(uri)) as connection:
            [row] = connection.rows("SELECT current_database() AS name", "asking")
        assert row["name"] == uri.rpartition("/")[2]


def test_a_server_that_was_started_again_is_reached() -> None:
    with start_postgresql() as server:
        assert answers(server.uri())
        server.control("restart", "-m", "immediate", "-l", str(server.data.parent / "log"))
        assert answers(server.uri())


def test_a_password_that_was_changed_is_refused_and_the_new_one_taken(
    postgresql_server: PostgresqlServer, postgresql_database: str
) -> None:
    execute(postgresql_database, "CREATE ROLE moved LOGIN PASSWORD 'before'")
    before, after = (
        f"postgresql://moved:{word}@{postgresql_database.partition('@')[2]}" for word in ("before", "after")
    )
    try:
        assert answers(before)
        execute(postgresql_database, "ALTER ROLE moved PASSWORD 'after'")
        for _ in range(2):
            with pytest.raises(DatabaseDeniedError, match="moved"):
                connect(before)
        assert answers(after)
    finally:
        execute(postgresql_database, "DROP ROLE moved")


FORKED = """
import os, sys
from snapshot_assets_tests.databases.postgresql.test_connections import answers

assert answers(sys.argv[1])
child = os.fork()
assert answers(sys.argv[1]) and answers(sys.argv[1])
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert answers(sys.argv[1])
"""


def test_a_forked_process_and_its_parent_have_connections_of_their_own(postgresql_database: str) -> None:
    done = subprocess.run([sys.executable, "-c", FORKED, postgresql_database], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
