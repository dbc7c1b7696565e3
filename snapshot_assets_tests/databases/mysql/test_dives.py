"""Tables that are divided by estimates of ranges of the key."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from snapshot_assets.databases.mysql import source
from snapshot_assets.databases.mysql.source import MysqlDatabase
from snapshot_assets.databases.protocol.source import (
    AllRows,
    DatabaseAddress,
    KeyRows,
    Scan,
    Selection,
    TimelessRows,
    WindowRows,
)
from snapshot_assets.format.relations import Table, TableName
from snapshot_assets.testing.restores import read_scan, utc
from snapshot_assets_tests.databases.mysql.helpers import SHOP, table_of
from snapshot_assets_tests.servers.mariadb import MariadbServer

ROWS = 20_000
KEYS = {
    "far apart": ("bigint", "IF(seq = 1, -9223372036854775808, IF(seq = 20000, 9223372036854775807, seq))"),
    "unsigned": ("bigint unsigned", "18446744073709551615 - seq * seq"),
    "two crowds": ("int", "IF(seq % 10, seq, 2000000000 + seq)"),
    "days": ("date", "DATE'9999-12-31' - INTERVAL seq DAY"),
    "times": ("datetime(6)", "TIMESTAMP'9999-12-31 23:59:59.999999' - INTERVAL seq * seq MICROSECOND"),
    "seconds": ("timestamp", "TIMESTAMP'2024-01-01 00:00:00' + INTERVAL seq SECOND"),
}


def opened(uri: str, consistency: str | None = None) -> closing[MysqlDatabase]:
    return closing(MysqlDatabase(replace(DatabaseAddress("shop", uri), consistency=consistency)))


def filled(server: MariadbServer, columns: str, values: str, more: str = "") -> None:
    create = f"CREATE TABLE t ({columns}) {more}"
    server.sql(create, f"INSERT INTO t SELECT {values} FROM seq_1_to_{ROWS}", "ANALYZE TABLE t", database="shop")


@pytest.mark.parametrize(("type_", "value"), KEYS.values(), ids=list(KEYS))
@pytest.mark.parametrize("more", ["", "PARTITION BY KEY (k) PARTITIONS 3"])
def test_parts_of_a_table_have_about_as_many_rows(
    monkeypatch: pytest.MonkeyPatch,
    mariadb_server: MariadbServer,
    mariadb_database: str,
    type_: str,
    value: str,
    more: str,
) -> None:
    monkeypatch.delattr(source.MysqlDatabase, "_quantiles")  # no sample is taken
    filled(mariadb_server, f"k {type_} PRIMARY KEY, x char(100) DEFAULT 'x'", f"{value}, 'x'", more)
    table = table_of(mariadb_database)
    with opened(mariadb_database) as database:
        ranges = database.divide(Scan(table, AllRows()), 4)
        parts = database.split(Scan(table, KeyRows(ranges[2])), 2)
        sizes = [read_scan(database, Scan(table, KeyRows(each))).num_rows for each in ranges]
        assert sum(sizes) == ROWS
        assert all(ROWS / 8 < size < ROWS / 2.5 for size in sizes), sizes
        smaller = [read_scan(database, each).num_rows for each in parts]
        assert sum(smaller) == sizes[2]
        assert all(size > sizes[2] / 4 for size in smaller), smaller


def test_a_value_that_most_rows_have_is_one_part(mariadb_server: MariadbServer, mariadb_database: str) -> None:
    filled(mariadb_server, "k int, id int, PRIMARY KEY (k, id)", "IF(seq % 5, 7, 9), seq")
    table = table_of(mariadb_database)
    with opened(mariadb_database) as database:
        parts = [read_scan(database, each).num_rows for each in database.split(Scan(table, AllRows()), 8)]
        assert parts == [ROWS * 4 // 5, ROWS // 5]


@pytest.mark.parametrize("rows", ["", "INSERT INTO t VALUES ('0000-00-00'), ('2024-01-01'), ('2024-01-02')"])
def test_a_table_without_rows_or_with_dates_that_are_none_is_sampled(
    mariadb_server: MariadbServer, mariadb_database: str, rows: str
) -> None:
    mariadb_server.sql("SET sql_mode = ''", "CREATE TABLE t (k date PRIMARY KEY)", rows or "DO 0", database="shop")
    with opened(mariadb_database) as database:
        parts = database.split(Scan(table_of(mariadb_database), AllRows()), 3)
        assert len(parts) == (3 if rows else 1)


@pytest.mark.parametrize(("time", "sampled"), [("k", False), ("at", True)])
def test_windows_are_divided_by_estimates_of_their_own_column_only(
    monkeypatch: pytest.MonkeyPatch, mariadb_server: MariadbServer, mariadb_database: str, time: str, sampled: bool
) -> None:
    samples = list[str]()
    quantiles = MysqlDatabase._quantiles

    def sample(self: MysqlDatabase, scan: Scan, column: object, *rest: int) -> object:
        samples.append(str(scan.table.table_name))
        return quantiles(self, scan, column, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(MysqlDatabase, "_quantiles", sample)
    at = "TIMESTAMP'2024-01-01 00:00:00' + INTERVAL seq MINUTE"
    filled(mariadb_server, "k datetime PRIMARY KEY, at datetime NOT NULL", f"{at}, {at}")
    with opened(mariadb_database) as database:
        table = database.extract(Selection(time_columns={SHOP: time})).table(SHOP)
        day = Scan(table, WindowRows(utc(2024, 1, 3), utc(2024, 1, 4)))
        with monkeypatch.context() as unknown:
            unknown.setattr(MysqlDatabase, "_sizes", lambda *_: (0, 0, "innodb"))  # of a table without statistics
            parts = [read_scan(database, each).num_rows for each in database.split(day, 2)]
        assert sum(parts) == 1440
        assert min(parts) > 400
        assert bool(samples) == sampled
        # A window that is known to have nearly all rows is divided as the table is.
        samples.clear()
        year = WindowRows(utc(2024, 1, 1), utc(2025, 1, 1))
        assert database.count_rows([(table, [year])], thorough=False) == [[ROWS]]
        assert min(read_scan(database, each).num_rows for each in database.split(Scan(table, year), 2)) > ROWS / 4
        assert samples == []


@pytest.mark.parametrize(
    ("key", "connections"), [("id int PRIMARY KEY", 3), ("id varchar(20) PRIMARY KEY", 1), ("id int", 1)]
)
def test_several_connections_count_the_rows_of_the_held_state(
    monkeypatch: pytest.MonkeyPatch, mariadb_server: MariadbServer, mariadb_database: str, key: str, connections: int
) -> None:
    monkeypatch.setattr(source, "_COUNTED_AT_ONCE", 1000)
    counting = set[int]()
    rows_of = MysqlDatabase.rows_of

    def noted(self: MysqlDatabase, table: Table, values: str, *rest: str) -> list[dict[str, object]]:
        if "COUNT(*)" in values:
            counting.add(self.session.thread_id)
        return rows_of(self, table, values, *rest)

    monkeypatch.setattr(MysqlDatabase, "rows_of", noted)
    filled(mariadb_server, f"{key}, at datetime", "seq, IF(seq % 100, '2024-01-01' + INTERVAL seq MINUTE, NULL)")
    days = [WindowRows(utc(2024, 1, day), utc(2024, 1, day + 1)) for day in (1, 2, 5, 7, 8, 9, 30)]
    wheres = ["at IS NULL", *(f"DATE(at) = '{day.start.date()}'" for day in days)]
    query = ", ".join(f"COUNT(IF({where}, 1, NULL))" for where in wheres)
    before = [int(count) for count in mariadb_server.sql(f"SELECT {query} FROM t", database="shop").split()]
    with opened(mariadb_database) as holder, holder.hold(lambda: 3) as held:
        mariadb_server.sql("DELETE FROM t WHERE at < '2024-01-06'", database="shop")
        with opened(mariadb_database, held.token) as database:
            table = database.extract(Selection(tables=(SHOP,), time_columns={SHOP: "at"})).table(TableName("shop", "t"))
            read = [read_scan(database, Scan(table, each)).num_rows for each in days]
            assert database.count_rows([(table, [TimelessRows(), *days])], thorough=False) == [[200, *read]]
            assert [200, *read] == before
            assert len(counting) == connections
