"""What is read of a partitioned table is what pg_dump reads, whatever a SELECT from it would return."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta

import adbc_driver_manager
import pytest

from snapshot_assets.databases.protocol.source import Scan, TimelessRows, WindowRows
from snapshot_assets.errors import ConsistencyLostError
from snapshot_assets.testing.restores import utc as at
from snapshot_assets_tests.databases.postgresql.helpers import (
    client,
    contents,
    execute,
    extracted,
    opened,
    read,
    read_scan,
    restore,
    table_of,
)
from snapshot_assets_tests.servers.postgresql import MakeDatabase, PostgresqlServer

HOURS = """
CREATE TABLE m (id int, at timestamptz NOT NULL, x numeric(8,2)) PARTITION BY RANGE (at);
CREATE TABLE m1 PARTITION OF m FOR VALUES FROM ('2026-01-01') TO ('2026-01-02');
CREATE TABLE m2 (x numeric(8,2), at timestamptz NOT NULL, id int) PARTITION BY LIST (id);
ALTER TABLE m ATTACH PARTITION m2 FOR VALUES FROM ('2026-01-02') TO ('2026-01-03');
CREATE TABLE m2_odd PARTITION OF m2 FOR VALUES IN (25, 27, 29, 31, 33, 35, 37, 39, 41, 43, 45, 47);
CREATE TABLE m2_rest PARTITION OF m2 DEFAULT;
INSERT INTO m SELECT i, '2026-01-01'::timestamptz + i * interval '1 hour', i FROM generate_series(0, 47) i;
"""
FOREIGN = """
CREATE FOREIGN DATA WRAPPER nothing; CREATE SERVER far FOREIGN DATA WRAPPER nothing;
CREATE FOREIGN TABLE m0 PARTITION OF m FOR VALUES FROM ('2025-01-01') TO ('2026-01-01') SERVER far;
"""


def leave_pending(uri: str, table: str, partition: str) -> None:
    """Interrupt a `DETACH … CONCURRENTLY` that waits for a reader."""
    pending = f"SELECT inhdetachpending FROM pg_inherits WHERE inhrelid = '{partition}'::regclass"
    with client(uri) as reader, client(uri) as run:
        reader("BEGIN")
        reader(f"LOCK TABLE {table} IN ACCESS SHARE MODE")
        run("SET statement_timeout = '100ms'")
        while run(pending) != [(True,)]:
            with suppress(adbc_driver_manager.Error):
                run(f"ALTER TABLE {table} DETACH PARTITION {partition} CONCURRENTLY")
        reader("COMMIT")


def ids(uri: str, names: Sequence[str] = ("m",)) -> list[int]:
    """Return the ids of all rows, read in windows of six hours and in parts."""
    found: list[int] = []
    with opened(uri) as database:
        for table in (table_of(database, name, time="at") for name in names):
            starts = [at(2025, 12, 31, 18) + timedelta(hours=6 * step) for step in range(12)]
            rows = [TimelessRows(), *(WindowRows(each, each + timedelta(hours=6)) for each in starts)]
            scans = [part for each in rows for part in database.split(Scan(table, each), 3)]
            found += [id_ for scan in scans for id_ in read_scan(database, scan)["id"].to_pylist()]
            everything = (at(1, 1, 1), at(9999, 1, 1))
            assert database.count_outside(table, *everything) == 0
            assert database.time_bounds((table,)) == (at(2026, 1, 1), at(2026, 1, 2, 23))
            assert database.unfit(table, [WindowRows(*everything)]) == []
            assert sorted(read(database, table)["id"].to_pylist()) == sorted(found)
    return sorted(found)


@pytest.mark.parametrize(
    ("pending", "script"),
    [
        ([("m", "m2")], HOURS),
        ([("m", "m1")], HOURS),
        ([("m2", "m2_odd")], HOURS),
        ([("m2", "m2_odd"), ("m", "m2")], HOURS),
        ([("m", "m1")], HOURS + FOREIGN),
        ([("m2", "m2_odd")], HOURS + FOREIGN),
        ([], HOURS + FOREIGN),
    ],
)
def test_all_local_rows_are_read_also_of_partitions_that_a_select_leaves_out_or_cannot_reach(
    postgresql_server: PostgresqlServer, postgresql_database: str, pending: list[tuple[str, str]], script: str
) -> None:
    if any(table == "m2" for table, _ in pending):  # a DETACH CONCURRENTLY is refused beside a default partition
        script = script.replace("PARTITION OF m2 DEFAULT", f"PARTITION OF m2 FOR VALUES IN ({', '.join(REST)})")
    postgresql_server.psql_script(postgresql_database, script)
    for table, partition in pending:
        leave_pending(postgresql_database, table, partition)
    assert ids(postgresql_database) == list(range(48))


REST = [str(number) for number in range(48) if number < 24 or number % 2 == 0]


def test_a_partition_that_is_being_detached_is_restored_as_pg_dump_restores_it(
    postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase
) -> None:
    source, ours, theirs = (make_postgresql_database() for _ in range(3))
    postgresql_server.psql_script(source, HOURS)
    leave_pending(source, "m", "m1")
    postgresql_server.psql_script(theirs, postgresql_server.pg_dump(source, "--schema-only"))
    assert restore(extracted(source), ours).lost == ()
    assert contents(postgresql_server, ours) == contents(postgresql_server, theirs)
    assert postgresql_server.pg_dump(ours, "--no-owner").count("ATTACH PARTITION") == 4


@pytest.mark.parametrize("own", [True, False])
def test_rows_are_read_by_users_who_may_read_only_columns(
    postgresql_server: PostgresqlServer, postgresql_database: str, own: bool
) -> None:
    postgresql_server.psql_script(postgresql_database, HOURS)
    leave_pending(postgresql_database, "m", "m1")
    role = f"reader_{int(own)}"
    grants = "m, m1" if own else "m"
    password = f"CREATE ROLE {role} LOGIN PASSWORD 'x'; GRANT SELECT (id, at) ON {grants} TO {role}"
    execute(postgresql_database, *password.split("; "))
    server, database = postgresql_database.partition("@")[2].split("/")
    uri = f"postgresql://{role}:x@{server}/{database}"
    try:
        with opened(postgresql_database) as owner:
            table = table_of(owner, "m", time="at")
            table = table.model_copy(update={"columns": table.columns[:2]})
        with opened(uri) as reader:
            if own:
                assert read(reader, table).num_rows == 48
            else:
                with pytest.raises(Exception, match="permission denied for table m1"):
                    read(reader, table)
    finally:
        execute(postgresql_database, f"DROP OWNED BY {role}", f"DROP ROLE {role}")


CHANGES = {
    "ALTER TABLE m DETACH PARTITION m1": "m1 was detached from",
    "ALTER TABLE m DETACH PARTITION m1 CONCURRENTLY": "m1 was detached from",
    "DROP TABLE m1": r"m1 was detached from public\.m, or dropped",
    "ALTER TABLE m ATTACH PARTITION later FOR VALUES FROM ('2026-02-01') TO ('2026-02-02')": "later was attached to",
}


@pytest.mark.parametrize("command", CHANGES)
def test_partitions_changed_after_the_state_are_refused(
    postgresql_server: PostgresqlServer, postgresql_database: str, command: str
) -> None:
    postgresql_server.psql_script(postgresql_database, HOURS)
    execute(postgresql_database, "CREATE TABLE later (LIKE m INCLUDING ALL)")
    with opened(postgresql_database) as holder, holder.hold(lambda: 1) as held:
        table = table_of(holder, "m", time="at")
        execute(postgresql_database, command)
        with (
            opened(postgresql_database, held.token) as database,
            pytest.raises(ConsistencyLostError, match=CHANGES[command]),
        ):
            read(database, table)


def during_a_read(change: Callable[[], None], uri: str) -> None:
    with opened(uri) as database:
        table = table_of(database, "m", time="at")
        assert read(database, table).num_rows == 48
        with database.scan(Scan(table, WindowRows(at(1, 1, 1), at(9999, 1, 1)))) as batches:
            change()
            list(batches)


def test_a_partition_attached_while_rows_are_read_fails_the_read(
    postgresql_server: PostgresqlServer, postgresql_database: str
) -> None:
    postgresql_server.psql_script(postgresql_database, HOURS)
    execute(postgresql_database, "CREATE TABLE later (LIKE m INCLUDING ALL)")
    attach = next(command for command in CHANGES if "ATTACH" in command)
    with pytest.raises(ConsistencyLostError, match="later was attached to"):
        during_a_read(lambda: execute(postgresql_database, attach), postgresql_database)


def test_a_detach_that_begins_after_the_state_changes_nothing(
    postgresql_server: PostgresqlServer, postgresql_database: str
) -> None:
    postgresql_server.psql_script(postgresql_database, HOURS)
    during_a_read(lambda: leave_pending(postgresql_database, "m", "m1"), postgresql_database)
    assert ids(postgresql_database) == list(range(48))
