from __future__ import annotations

from contextlib import closing
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from snapshot_assets.databases.postgresql.session import PostgresqlSession
from snapshot_assets.databases.postgresql.time_predicates import PostgresqlTimeColumn
from snapshot_assets.databases.protocol.source import Database, DatabaseAddress, Scan, TimelessRows, WindowRows
from snapshot_assets.errors import DatabaseError, PlanError
from snapshot_assets.format.relations import Carrier, Table
from snapshot_assets.testing.restores import utc as at
from snapshot_assets_tests.databases.postgresql.helpers import client, opened, read, table_of


def make(uri: str, kind: str, *values: str) -> None:
    with client(uri) as run:
        run("DROP TABLE IF EXISTS t")
        run(f"CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY, at {kind})")
        run("CREATE INDEX ON t (at)")
        run(f"INSERT INTO t (at) SELECT v::{kind} FROM (VALUES {', '.join(f'({value})' for value in values)}) q (v)")


def window(database: Database, table: Table, start: datetime, end: datetime, zone: str = "UTC") -> list[int]:
    """Return the ids of a window's rows, sorted."""
    return sorted(read(database, table, WindowRows(start, end, zone))["id"].to_pylist())


def test_a_date_is_its_midnight(postgresql_database: str) -> None:
    make(postgresql_database, "date", "'2025-01-01'", "'2025-01-02'", "'5874897-12-31'", "'infinity'")
    with opened(postgresql_database) as database:
        table = table_of(database, time="at")
        assert window(database, table, at(2025, 1, 1), at(2025, 1, 2)) == [1]
        assert window(database, table, at(2025, 1, 1, 0, 0, 0, 1), at(2025, 1, 2, 0, 0, 0, 1)) == [2]
        assert window(database, table, at(2025, 1, 1, 12), at(2025, 1, 1, 13)) == []
        madrid = (at(2024, 12, 31, 23), at(2024, 12, 31, 23, 0, 0, 1))
        assert window(database, table, *madrid, "Europe/Madrid") == [1]
        assert window(database, table, at(2025, 1, 1), at(9999, 12, 31, 23, 59, 59)) == [1, 2]
        assert database.count_outside(table, at(2025, 1, 1), at(2025, 1, 2)) == 2
        assert database.count_outside(table, at(2025, 1, 1), at(2025, 1, 2), "Europe/Madrid") == 2


@pytest.mark.parametrize("kind", ["timestamptz", "timestamp", "date"])
def test_rows_without_a_finite_time_are_timeless_and_in_no_window(postgresql_database: str, kind: str) -> None:
    make(postgresql_database, kind, "NULL", "'infinity'", "'-infinity'", "'2025-01-01'", "'0044-03-15 BC'")
    with opened(postgresql_database) as database:
        table = table_of(database, time="at", carriers={"at": Carrier.TEXT})
        assert sorted(read(database, table, TimelessRows())["id"].to_pylist()) == [1, 2, 3]
        for zone in ("UTC", "America/New_York"):
            assert window(database, table, at(1, 1, 1), at(9999, 12, 31), zone) == [4]
            assert database.count_outside(table, at(2025, 1, 2), at(2025, 1, 3), zone) == 2
            assert database.count_outside(table, at(2024, 1, 2), at(2025, 1, 3), zone) == 1


@pytest.mark.parametrize(
    ("zone", "starts"),
    [
        ("Europe/Madrid", (at(2025, 3, 29), at(2025, 10, 25))),
        ("Pacific/Apia", (at(2011, 12, 28),)),
        ("Australia/Lord_Howe", (at(2025, 4, 4), at(2025, 10, 3))),
    ],
)
def test_windows_of_local_times_neither_gap_nor_overlap_when_clocks_change(
    postgresql_database: str, zone: str, starts: tuple[datetime, ...]
) -> None:
    """This includes local times that do not exist, or exist twice."""
    series = [
        f"SELECT '{start:%Y-%m-%d}'::timestamp + i * interval '10 min' FROM generate_series(0, 600) i"
        for start in starts
    ]
    with client(postgresql_database) as run:
        run(
            "CREATE TABLE t AS SELECT row_number() OVER ()::int AS id, at FROM ("
            + " UNION ALL ".join(series)
            + ") q (at)"
        )
        expected = run(f"SELECT id, date_part('epoch', at AT TIME ZONE '{zone}')::int8 FROM t")
    with opened(postgresql_database) as database:
        table = table_of(database, time="at")
        ids: list[int] = []
        for start in starts:
            edges = [start - timedelta(days=1) + timedelta(minutes=90) * step for step in range(97)]
            for low, high in pairwise(edges):
                in_window = window(database, table, low, high, zone)
                assert in_window == sorted(
                    row for row, second in expected if low.timestamp() <= second < high.timestamp()
                )
                ids += in_window
    assert len(ids) == len(set(ids)) == len(expected)


def test_a_window_uses_the_index_of_the_time_column(postgresql_database: str) -> None:
    with client(postgresql_database) as run:
        run(
            "CREATE TABLE t AS SELECT i AS id, timestamp '2025-01-01' + i * interval '1 min' AS at"
            " FROM generate_series(1, 50000) i"
        )
        run("CREATE INDEX ON t (at)")
        run("ANALYZE t")
    with opened(postgresql_database) as database:
        table = table_of(database, time="at")
        for zone in ("UTC", "Europe/Madrid"):
            scan = Scan(table, WindowRows(at(2025, 1, 3), at(2025, 1, 4), zone))
            parts = database.split(scan, 4)
            assert [each.part for each in parts] == [None] * 4, "divided by time, because an index serves the window"
            ids = [id_ for each in parts for id_ in window(database, table, each.rows.start, each.rows.end, zone)]  # type: ignore[union-attr]
            assert sorted(ids) == window(database, table, at(2025, 1, 3), at(2025, 1, 4), zone)
            assert len(ids) == 24 * 60
            assert 500 * 12 < database.estimate(scan) < 15000 * 12  # a row has 12 bytes


def test_time_bounds_are_the_finite_extremes_of_all_timed_tables(postgresql_database: str) -> None:
    make(postgresql_database, "timestamptz", "NULL", "'infinity'", "'-infinity'", "'2025-01-01 00:00:00.000001+00'")
    with client(postgresql_database) as run:
        run("CREATE TABLE u (day date, v int)")
        run("INSERT INTO u VALUES ('2025-02-01', 1), ('2024-01-31', 1)")
        run("CREATE TABLE empty (at timestamp)")
    with opened(postgresql_database) as database:
        tables = (
            table_of(database, time="at"),
            table_of(database, "u", time="day"),
            table_of(database, "empty", time="at"),
        )
        assert database.time_bounds(tables) == (at(2024, 1, 31), at(2025, 2, 1))
        assert database.time_bounds(tables[:1]) == (at(2025, 1, 1, 0, 0, 0, 1),) * 2
        assert database.time_bounds(tables[2:]) is None
        assert database.time_bounds((table_of(database, "u"),)) is None, "untimed"


@pytest.mark.parametrize("moment", ["'20000-01-01 00:00:00+00'", "'0044-03-15 00:00+00 BC'"])
def test_times_that_python_cannot_hold_are_named_with_their_column(postgresql_database: str, moment: str) -> None:
    make(postgresql_database, "timestamptz", moment)
    message = r"earliest or latest public\.\w+\.at is outside the years 1 to 9999.*`start_time`"
    with opened(postgresql_database) as database, pytest.raises(DatabaseError, match=message):
        database.time_bounds((table_of(database, time="at"),))


def test_the_earliest_instant_need_not_be_the_earliest_local_time(postgresql_database: str) -> None:
    """02:30 did not exist in Madrid that night, and is read as an instant after 03:00."""
    make(postgresql_database, "timestamp", "'2025-03-30 02:30'", "'2025-03-30 03:00'", "'2025-03-30 03:10'")
    with opened(postgresql_database) as database:
        table = table_of(database, time="at")
        assert database.time_bounds((table,), "Europe/Madrid") == (at(2025, 3, 30, 1), at(2025, 3, 30, 1, 30))


def test_a_zone_that_does_not_exist_and_a_window_of_an_untimed_table_are_refused(postgresql_database: str) -> None:
    make(postgresql_database, "timestamp", "'2025-01-01'")
    with opened(postgresql_database) as database:
        with pytest.raises(PlanError, match="'Foo\\+3' is not a time zone"):
            window(database, table_of(database, time="at"), at(2025, 1, 1), at(2025, 1, 2), "Foo+3")
        with pytest.raises(DatabaseError, match="no time index"):
            window(database, table_of(database), at(2025, 1, 1), at(2025, 1, 2))


@pytest.mark.parametrize("kind", ["timestamptz", "timestamp", "date"])
def test_an_index_serves_windows_timeless_rows_and_rows_outside(postgresql_database: str, kind: str) -> None:
    """Each export of a continuous plan asks for all three: on a large table, none may read the whole of it."""
    make(postgresql_database, kind, "'2025-01-01'")
    days = f"'2025-01-01'::{kind} + i % 9 * interval '1 day'"
    with client(postgresql_database) as run:
        run(f"INSERT INTO t (at) SELECT {days} FROM generate_series(1, 20000) i")
        run("ANALYZE t")
    with (
        opened(postgresql_database) as database,
        closing(PostgresqlSession(DatabaseAddress("shop", postgresql_database))) as session,
    ):
        time = PostgresqlTimeColumn.of(table_of(database, time="at"))
        for condition in (
            f"{time.within(at(2025, 2, 1), at(2025, 2, 2))} OR {time.timeless}",
            time.timeless,
            time.outside(at(2024, 1, 1), at(2026, 1, 1)),
        ):
            lines = session.rows(f"EXPLAIN SELECT * FROM public.t WHERE {condition}", "planning")
            plan = "\n".join(line["QUERY PLAN"] for line in lines)
            assert "Index" in plan, plan
            assert "Seq Scan" not in plan, plan
