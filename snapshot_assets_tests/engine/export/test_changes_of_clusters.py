"""Nothing that changed is missed after a failover, a crash, a restore of files or a dump, or `pg_resetwal`."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from snapshot_assets.databases.protocol.source import Verdict
from snapshot_assets_tests.databases.postgresql.exported_rows import answers, export
from snapshot_assets_tests.databases.postgresql.helpers import client, opened
from snapshot_assets_tests.engine.export.test_changes import DAYS, TABLES, Following
from snapshot_assets_tests.servers.postgresql import PostgresqlServer, start_postgresql, start_standby

pytestmark = pytest.mark.slow

ALL = 2 * DAYS + 2
"""As many sets of rows as are compared by value if transaction ids prove nothing."""


@pytest.fixture
def server() -> Iterator[PostgresqlServer]:
    with start_postgresql() as started:
        yield started


@pytest.fixture
def place(server: PostgresqlServer, tmp_path: Path) -> Following:
    place = Following(server.create_database(), tmp_path)
    place.sql(TABLES)
    place.export()
    return place


@pytest.fixture
def standby(server: PostgresqlServer, place: Following) -> Iterator[PostgresqlServer]:
    with start_standby(server) as started:
        yield started


def on(server: PostgresqlServer, place: Following) -> Following:
    """Return the same snapshot as it follows the same database of another server."""
    return replace(place, source=server.uri(place.source.rsplit("/", 1)[1]))


def replay(primary: PostgresqlServer, standby: PostgresqlServer) -> None:
    """Wait until a standby has replayed what its primary has written."""
    lsn = primary.psql(primary.uri(), "SELECT pg_current_wal_flush_lsn()")
    while standby.psql(standby.uri(), f"SELECT pg_last_wal_replay_lsn() >= '{lsn}'") != "t":
        pass


def overtake(server: PostgresqlServer, place: Following) -> None:
    """Write by transactions until their ids are after those of the snapshot's fences."""
    fences = [each.chunk.fence["snapshot"] for each in place.state.chunks.values()]
    newest = max(int(fence.split(":")[1]) for fence in fences)
    while int(server.psql(place.source, "SELECT pg_snapshot_xmin(pg_current_snapshot())")) <= newest:
        server.psql(place.source, "UPDATE prices SET price = price")


def start(server: PostgresqlServer) -> None:
    server.control("start", "-l", str(server.data.parent / "log"))


def assert_equal_by_value_once(place: Following) -> None:
    """Assert that nothing is proved by ids, that nothing has changed, and that what is exported from here is."""
    changes = place.refresh()
    assert (changes.compared, changes.changed) == (ALL, [])
    assert place.look().compared == 0
    place.sql("UPDATE readings SET reading = reading + 1 WHERE reading = 4")
    assert place.found() == {(2, "readings"): "rows newer"}


def test_a_standby_is_followed(server: PostgresqlServer, standby: PostgresqlServer, place: Following) -> None:
    there = on(standby, place)
    replay(server, standby)
    changes = there.refresh()
    assert (changes.compared, changes.changed) == (ALL, [])
    with client(place.source) as run:
        run("BEGIN")
        run("UPDATE readings SET reading = 70 WHERE reading = 7")
        place.sql("UPDATE orders SET status = 'paid' WHERE id = 5")
        replay(server, standby)
        assert there.found() == {(2, "orders"): "rows newer"}
        there.refresh()  # a standby may take transactions for running that have ended
        assert set(there.found()) <= {(2, "orders")}
        run("COMMIT")
    replay(server, standby)
    assert (3, "readings") in there.found()
    there.refresh()
    assert_equal_by_value_once(place)


def test_an_exported_standby_is_promoted(server: PostgresqlServer, standby: PostgresqlServer, place: Following) -> None:
    there = on(standby, place)
    replay(server, standby)
    there.refresh()
    standby.control("promote")
    there.sql("UPDATE customers SET name = 'Ida' WHERE id = 1")
    assert there.found() == {(0, "customers"): "other values"}
    there.sql("UPDATE customers SET name = 'Ada' WHERE id = 1")
    assert_equal_by_value_once(there)


def test_changes_that_a_failover_lost_are_found(
    server: PostgresqlServer, standby: PostgresqlServer, place: Following
) -> None:
    replay(server, standby)
    standby.psql(standby.uri(), "ALTER SYSTEM SET primary_conninfo = ''")
    standby.control("restart", "-l", str(standby.data.parent / "standby.log"))
    place.sql("UPDATE orders SET status = 'lost' WHERE id = 5")
    place.refresh()
    standby.control("promote")
    there = on(standby, place)
    overtake(standby, there)
    assert there.found() == {(2, "orders"): "other values"}
    there.sql("UPDATE customers SET name = 'Ida' WHERE id = 1")
    assert there.found() == {(2, "orders"): "other values", (0, "customers"): "other values"}


def test_changes_that_a_restore_of_older_files_lost_are_found(server: PostgresqlServer, place: Following) -> None:
    older = server.data.with_name("older")
    server.control("stop")
    subprocess.run(["cp", "-a", str(server.data), str(older)], check=True)
    start(server)
    place.sql("UPDATE orders SET status = 'lost' WHERE id = 5")
    place.refresh()
    server.control("stop")
    shutil.rmtree(server.data)
    older.rename(server.data)
    start(server)
    overtake(server, place)
    assert place.found() == {(2, "orders"): "other values"}


def test_changes_that_a_crash_of_a_backend_lost_are_found(server: PostgresqlServer, place: Following) -> None:
    """Commits that did not wait for the disk; the postmaster goes on, and gives their ids to others."""
    server.psql(place.source, "CHECKPOINT")
    writer = server.psql(place.source, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'")
    server.psql(place.source, f"COPY (SELECT) TO PROGRAM 'cat; kill -STOP {writer}'")
    server.psql(place.source, "SET synchronous_commit = off; UPDATE orders SET status = 'lost' WHERE id = 5")
    place.refresh()
    # One statement, in which the backend waits: it ends before psql could send another one.
    with pytest.raises(AssertionError, match="server closed the connection"):
        server.psql(place.source, f"COPY (SELECT) TO PROGRAM 'cat; kill -KILL {writer}; sleep 600'")
    status = ""
    while not status:
        with suppress(AssertionError):
            status = server.psql(place.source, "SELECT status FROM orders WHERE id = 5")
    assert status == "new"
    overtake(server, place)
    assert place.found() == {(2, "orders"): "other values"}
    place.sql("UPDATE orders SET status = 'lost' WHERE id = 5")
    assert_equal_by_value_once(place)


@pytest.mark.parametrize(
    "options",
    [("-x", (1 << 30) + (1 << 20)), ("-x", (1 << 31) - (1 << 20)), ("-x", (1 << 31) + (1 << 20)), ("-e", 1)],
    ids=str,
)
def test_ids_far_ahead_prove_nothing(server: PostgresqlServer, place: Following, options: tuple[str, int]) -> None:
    server.run("vacuumdb", "--all", "--freeze", "--quiet", "--maintenance-db", server.uri())
    parts = export(place.source, "orders", "customers", time=None)
    server.control("stop")
    server.as_owner("pg_resetwal", *map(str, options), "-D", str(server.data))
    start(server)
    changes = place.look()
    assert (changes.compared, changes.changed) == (ALL, [])
    with opened(place.source) as database:
        started = database.fence()["started"]
    without_restart = [replace(each, fence={**each.fence, "started": started}) for each in parts]
    found = answers(place.source, without_restart)
    assert {each.verdict for each in found} == {Verdict.UNKNOWN}
    assert "more than 2^30 transactions" in found[0].reason


def test_a_restored_dump_is_another_database(server: PostgresqlServer, place: Following) -> None:
    restored = replace(place, source=server.create_database())
    server.psql_script(restored.source, server.pg_dump(place.source))
    assert_equal_by_value_once(restored)
