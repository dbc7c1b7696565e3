"""Database calls of the main thread end at once when a signal arrives, and its handler's exception is raised."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import adbc_driver_postgresql.dbapi as adbc
import duckdb
import pytest

from snapshot_assets.databases.duckdb.session import DuckDBSession
from snapshot_assets.databases.mysql.session import MysqlConnection
from snapshot_assets.databases.postgresql.session import PostgresqlConnection
from snapshot_assets.databases.protocol.interruptible import abandonable, interruptible
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets_tests.databases.postgresql.helpers import client, queries_that_run
from snapshot_assets_tests.servers.mariadb import MariadbServer
from snapshot_assets_tests.waiting import until

FOR_HOURS = "SELECT count(*) AS n FROM generate_series(1, 100000000000) AS g(n)"


class Interrupted(Exception):
    """Raised by the handler of SIGINT."""


@pytest.fixture(autouse=True)
def _handler() -> Iterator[None]:
    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGINT, interrupt)
    yield
    signal.signal(signal.SIGINT, before)


@contextmanager
def interrupted_when(ready: Callable[[], object]) -> Iterator[None]:
    """Send SIGINT to this process once something is so; expect the handler's exception."""

    def send() -> None:
        until(ready)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=send)
    thread.start()
    with pytest.raises(Interrupted):
        yield
    thread.join()


@pytest.mark.parametrize("call", ["rows", "execute"])
def test_of_postgresql(postgresql_database: str, call: str) -> None:
    with closing(PostgresqlConnection(Configuration().source(postgresql_database))) as connection:
        with interrupted_when(lambda: queries_that_run(postgresql_database)):
            getattr(connection, call)(FOR_HOURS, "counting")
        assert queries_that_run(postgresql_database) == 0
    with client(postgresql_database) as run:
        assert run("SELECT 1") == [(1,)]


@pytest.mark.parametrize("call", ["rows", "execute"])
def test_of_mysql(mariadb_server: MariadbServer, mariadb_database: str, call: str) -> None:
    def runs() -> bool:
        return "seq_1_to_1000000000" in mariadb_server.sql("SHOW FULL PROCESSLIST")

    with closing(MysqlConnection(DatabaseAddress("shop", mariadb_database))) as connection:
        with interrupted_when(runs):
            getattr(connection, call)("SELECT COUNT(*) FROM seq_1_to_1000000000 a, seq_1_to_1000000000 b", "counting")
        assert not runs()
        assert connection.rows("SELECT 1 AS one", "reading") == [{"one": 1}]


@pytest.mark.parametrize("call", ["rows", "records"])
def test_of_duckdb(tmp_path_factory: pytest.TempPathFactory, call: str) -> None:
    path = tmp_path_factory.mktemp("duckdb") / "source.duckdb"
    duckdb.connect(path).close()
    started = time.monotonic()
    with closing(DuckDBSession(DatabaseAddress("source", f"duckdb:///{path}"))) as session:
        with interrupted_when(lambda: time.monotonic() > started + 1):
            getattr(session, call)("SELECT count(*) FROM range(100000000000) a, range(1000) b")
        assert session.rows("SELECT 1") == [(1,)]


def test_a_call_that_begins_after_it_was_cancelled_is_cancelled_again() -> None:
    cancelled = threading.Semaphore(0)

    def call() -> None:
        for _ in range(2):
            assert cancelled.acquire(timeout=60)

    started = time.monotonic()
    with interrupted_when(lambda: time.monotonic() > started + 0.2):
        interruptible(call, cancelled.release)


def test_a_call_whose_cancelling_fails_is_interrupted() -> None:
    cancelled = threading.Event()

    def fail() -> None:
        cancelled.set()
        raise adbc.OperationalError("could not send data to server", status_code=0)

    with pytest.raises(Interrupted):
        interruptible(lambda: (signal.raise_signal(signal.SIGINT), cancelled.wait(60)), fail)


def test_a_call_that_begins_while_the_signal_arrives_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, cancelled, ended = threading.Event(), threading.Event(), threading.Event()
    start = threading.Thread.start

    def interrupted_start(thread: threading.Thread) -> None:
        start(thread)
        assert begun.wait(60)
        signal.raise_signal(signal.SIGINT)

    def call() -> None:
        begun.set()
        assert cancelled.wait(60)
        ended.set()

    monkeypatch.setattr(threading.Thread, "start", interrupted_start)
    with pytest.raises(Interrupted):
        interruptible(call, cancelled.set)
    assert ended.is_set()


def test_a_connection_that_is_interrupted_while_a_cursor_opens_is_closed(
    postgresql_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = adbc.Cursor.__init__

    def interrupted(cursor: adbc.Cursor, *arguments: Any, **named: Any) -> None:
        opened(cursor, *arguments, **named)
        signal.raise_signal(signal.SIGINT)

    address = Configuration().source(postgresql_database)
    monkeypatch.setattr(adbc.Cursor, "__init__", interrupted)
    with pytest.raises(Interrupted), closing(PostgresqlConnection(address)) as connection:
        connection.rows("SELECT 1", "counting")
    monkeypatch.undo()
    with client(postgresql_database) as run:
        sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        until(lambda: run(sessions) == [(1,)])  # the server notices a closed connection later


def test_a_server_that_never_answers_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = DatabaseAddress("shop", f"postgresql://127.0.0.1:{server.getsockname()[1]}/shop")
        with interrupted_when(lambda: select.select([server], [], [], 0)[0]):
            PostgresqlConnection(address)
        client, _ = server.accept()
        client.close()
    for thread in threading.enumerate():
        if thread.name == "database":
            thread.join(60)


def test_a_result_that_nobody_waits_for_is_discarded() -> None:
    answered, discarded = threading.Event(), threading.Event()

    def call() -> int:
        signal.raise_signal(signal.SIGINT)
        assert answered.wait(60)
        return 3

    with pytest.raises(Interrupted):
        abandonable(call, lambda result: discarded.set() if result == 3 else None)
    answered.set()
    assert discarded.wait(60)


def test_results_and_errors_are_those_of_the_call() -> None:
    assert interruptible(lambda: 3, lambda: pytest.fail("cancelled")) == 3
    with pytest.raises(ZeroDivisionError):
        interruptible(lambda: 1 // 0, lambda: pytest.fail("cancelled"))


WAITS_FOR_HOURS = """
import os, signal, sys, threading
from snapshot_assets.databases.open import import_drivers, kind_named

import_drivers(kind_named("postgresql"))
print("polars" in sys.modules, flush=True)
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
threading.Event().wait()
"""


def test_waits_of_the_main_thread_end_although_a_driver_imports_polars() -> None:
    """Its handler of SIGINT lets the system resume what was interrupted."""
    ended = subprocess.run([sys.executable, "-c", WAITS_FOR_HOURS], capture_output=True, text=True, timeout=100)
    assert ended.stdout == "True\n"
    assert ended.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in ended.stderr
