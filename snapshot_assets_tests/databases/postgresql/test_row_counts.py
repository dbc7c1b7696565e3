"""The rows that a source counts are those that its scans read, for all types of time, zones, plans and relations."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise, product

import pytest

from snapshot_assets.databases.postgresql import row_counts
from snapshot_assets.databases.protocol.source import AllRows, Database, Rows, Scan, Selection, TimelessRows, WindowRows
from snapshot_assets.format.relations import Carrier, Table, TableName
from snapshot_assets.testing.restores import read_scan
from snapshot_assets.testing.restores import utc as at
from snapshot_assets_tests.databases.postgresql.helpers import execute, opened, table_of
from snapshot_assets_tests.databases.postgresql.test_partitions import FOREIGN, HOURS, leave_pending
from snapshot_assets_tests.servers.postgresql import PostgresqlServer

EXTREMES = ("NULL", "'infinity'", "'-infinity'", "'4713-01-01 BC'", "'294276-12-30'", "'0001-01-01'", "'9999-12-31'")
PLANS = (0.0, 2.0, float("inf"))
"""Greatest costs of a count without indexes: never without, as usual, and always over the whole table."""


def windows(first: datetime, step: timedelta, number: int, zone: str) -> list[Rows]:
    edges = [first + step * each for each in range(number + 1)]
    return [WindowRows(start, end, zone) for start, end in pairwise(edges)]


def scanned(database: Database, table: Table, rows: list[Rows]) -> list[int]:
    return [read_scan(database, Scan(table, each)).num_rows for each in rows]


def counted(database: Database, table: Table, rows: list[Rows], *, thorough: bool) -> Sequence[int] | None:
    [numbers] = database.count_rows([(table, rows)], thorough=thorough)
    return numbers


def assert_counted(database: Database, table: Table, rows: list[Rows], monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that all forms of the count agree with the scans."""
    expected = scanned(database, table, rows)
    for few in (0, 2):
        for most in PLANS:
            monkeypatch.setattr(row_counts, "FEW_SETS", few)
            monkeypatch.setattr(row_counts, "MOST_COST", most)
            assert counted(database, table, rows, thorough=False) == expected
            assert counted(database, table, [rows[-1], rows[1]], thorough=False) == [expected[-1], expected[1]]


@pytest.mark.parametrize(
    ("kind", "zone"),  # a zone does not matter for instants
    [
        ("timestamptz", "UTC"),
        *product(("timestamp(3)", "date"), ("UTC", "America/New_York")),
        ("moment", "America/New_York"),
    ],
)
def test_counts_are_those_of_the_scans(
    postgresql_database: str, kind: str, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(
        postgresql_database,
        "CREATE DOMAIN moment AS timestamp",
        f"CREATE TABLE t (at {kind}, number int, rows int)",
        "INSERT INTO t SELECT '2025-11-01 12:00Z'::timestamptz + i * interval '7 minutes', i"
        " FROM generate_series(0, 500) i",
        *(f"INSERT INTO t VALUES ({each})" for each in EXTREMES),
        "CREATE INDEX ON t (at)",
        "VACUUM ANALYZE t",
    )
    with opened(postgresql_database) as database:
        table = database.extract(
            Selection(
                tables=(TableName("public", "t"),),
                time_columns={TableName("public", "t"): "at"},
                carriers={(TableName("public", "t"), "at"): Carrier.TEXT},
            )
        ).table(TableName("public", "t"))
        rows = [*windows(at(2025, 11, 1, 20), timedelta(hours=3, minutes=30), 12, zone), TimelessRows()]
        assert_counted(database, table, rows, monkeypatch)
        ends = [WindowRows(at(1, 1, 1), at(2025, 11, 2), zone), WindowRows(at(2025, 11, 2), at(9999, 12, 31), zone)]
        assert_counted(database, table, [TimelessRows(), *ends], monkeypatch)


@pytest.mark.parametrize(("pending", "script"), [(False, HOURS), (True, HOURS), (True, HOURS + FOREIGN)])
def test_partitions_are_counted_as_they_are_read(
    postgresql_server: PostgresqlServer,
    postgresql_database: str,
    pending: bool,
    script: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    postgresql_server.psql_script(postgresql_database, script)
    if pending:
        leave_pending(postgresql_database, "m", "m1")
    with opened(postgresql_database) as database:
        rows = [*windows(at(2025, 12, 31, 18), timedelta(hours=6), 12, "UTC"), TimelessRows()]
        assert_counted(database, table_of(database, "m", time="at"), rows, monkeypatch)
        assert counted(database, table_of(database, "m"), [AllRows()], thorough=True) == [48]


def test_only_rows_that_are_stored_in_the_state_are_counted(
    postgresql_server: PostgresqlServer, postgresql_database: str
) -> None:
    script = """
    CREATE TABLE t AS SELECT 1 AS id FROM generate_series(1, 5); CREATE TABLE child () INHERITS (t);
    INSERT INTO child VALUES (2); CREATE VIEW v AS TABLE t; CREATE MATERIALIZED VIEW m AS TABLE t;
    """
    postgresql_server.psql_script(postgresql_database, script)
    with opened(postgresql_database) as database:
        tables = [table_of(database, name) for name in "tmv"]
        alone = [counted(database, table, [AllRows()], thorough=False) for table in tables]
        together = database.count_rows([(table, [AllRows()]) for table in tables], thorough=False)
    assert alone == together == [[5], [6], None]


def test_a_narrow_window_is_counted_by_its_index_unless_thoroughly_and_settings_stay(postgresql_database: str) -> None:
    ready = "UPDATE pg_index SET indisready = {} WHERE indexrelid = 't_at_idx'::regclass"
    execute(
        postgresql_database,
        "CREATE TABLE t AS SELECT i AS id, '2025-01-01Z'::timestamptz + i * interval '1 s' AS at, repeat('x', 90) AS x"
        " FROM generate_series(0, 49999) i",
        "CREATE INDEX ON t (at)",
        "VACUUM ANALYZE t",
        ready.format(False),
        "INSERT INTO t VALUES (-1, '2025-01-01Z')",
        ready.format(True),
    )
    with opened(f"{postgresql_database}?options=-cenable_bitmapscan%3Doff") as database:
        table = table_of(database, time="at")
        minutes = windows(at(2025, 1, 1), timedelta(minutes=1), 3, "UTC")
        assert counted(database, table, minutes, thorough=False) == [60, 60, 60]
        assert counted(database, table, minutes, thorough=True) == [61, 60, 60]
        shown = "SELECT current_setting(name) AS value FROM pg_settings WHERE name ~ '^enable_(index|bitmap).*scan$'"
        settings = database.rows_of(table, shown, "reading settings")
    assert sorted(row["value"] for row in settings) == ["off", "on", "on"]


def test_columns_that_a_user_may_read_suffice(postgresql_server: PostgresqlServer, postgresql_database: str) -> None:
    postgresql_server.psql_script(
        postgresql_database,
        "CREATE TABLE t (id int, at timestamptz, secret text);"
        " INSERT INTO t SELECT i, '2025-01-01Z' FROM generate_series(1, 4) i;"
        " CREATE ROLE counter LOGIN PASSWORD 'x'; GRANT SELECT (id, at) ON t TO counter;",
    )
    name = postgresql_database.rsplit("/", 1)[1]
    with opened(postgresql_server.uri(name, "counter", "x")) as database:
        selection = Selection(
            tables=(TableName("public", "t"),),
            time_columns={TableName("public", "t"): "at"},
            exclude_columns=((TableName("public", "t"), "secret"),),
        )
        table = database.extract(selection).table(TableName("public", "t"))
        rows = [*windows(at(2025, 1, 1), timedelta(days=1), 3, "UTC"), TimelessRows()]
        assert counted(database, table, rows, thorough=False) == [4, 0, 0, 0]
    postgresql_server.psql(postgresql_database, "DROP OWNED BY counter; DROP ROLE counter")
