"""A wait for a lock of another session is reported early."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta

import pyarrow as pa
import pytest

from snapshot_assets.databases.postgresql.lock_waits import describe_wait
from snapshot_assets.databases.postgresql.session import PostgresqlConnection
from snapshot_assets.databases.protocol import lock_waits
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.databases.postgresql.helpers import client, execute
from snapshot_assets_tests.waiting import until

ROW = pa.table({"id": pa.array([1], pa.int32())})
LOCK = "LOCK TABLE t IN ACCESS EXCLUSIVE MODE"


@pytest.mark.parametrize(
    ("holding", "waits", "shown"),
    [
        (LOCK, lambda c: c.execute("TRUNCATE public.t", "emptying"), "AccessExclusiveLock on public.t"),
        (LOCK, lambda c: c.rows("SELECT * FROM public.t", "reading"), "AccessShareLock on public.t"),
        (LOCK, lambda c: c.copy(TableName("public", "t"), ROW), "RowExclusiveLock on public.t"),
        ("INSERT INTO t VALUES (1)", lambda c: c.copy(TableName("public", "t"), ROW), "ShareLock on transactionid"),
    ],
)
def test_a_wait_for_a_lock_is_reported_early_with_its_holder(
    postgresql_database: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    holding: str,
    waits: Callable[[PostgresqlConnection], None],
    shown: str,
) -> None:
    monkeypatch.setattr(lock_waits, "REPORTED_AFTER", 0.5)
    execute(postgresql_database, "CREATE TABLE t (id int PRIMARY KEY)")
    with (
        ThreadPoolExecutor(1) as pool,
        client(postgresql_database) as holder,
        closing(PostgresqlConnection(DatabaseAddress("shop", postgresql_database))) as waiting,
    ):
        [(pid,)] = holder("SELECT pg_backend_pid()")
        holder("BEGIN")
        holder(holding)
        waited = pool.submit(waits, waiting)
        doing = " ".join(holding.split()[:3])
        holds = f"held by session {pid} (user postgres, idle in transaction, {doing})"
        until(lambda: f"takes long: Waiting for {shown}, {holds}" in caplog.text)
        holder("ROLLBACK")
        waited.result(60)


def test_a_wait_is_described_by_the_server_that_has_the_session_alone(postgresql_database: str) -> None:
    execute(postgresql_database, "CREATE TABLE t (id int PRIMARY KEY)")
    with ThreadPoolExecutor(1) as pool, client(postgresql_database) as holder, client(postgresql_database) as waiting:
        [(pid, started)] = waiting("SELECT pg_backend_pid(), pg_postmaster_start_time()")
        holder("BEGIN")
        holder(LOCK)
        waited = pool.submit(waiting, "TABLE t")
        until(lambda: "AccessShareLock on public.t" in describe_wait(postgresql_database, pid, started))
        assert describe_wait(postgresql_database, pid, started + timedelta(microseconds=1)) == ""
        holder("ROLLBACK")
        waited.result(60)
