"""MariaDB as a source beyond the suite: parts, masks, queries, unfit values, changes and states."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from snapshot_assets.databases.mysql import source
from snapshot_assets.databases.mysql.source import MysqlDatabase
from snapshot_assets.databases.protocol.query import Query
from snapshot_assets.databases.protocol.source import (
    AllRows,
    DatabaseAddress,
    ExportedRows,
    KeyRows,
    Rows,
    Scan,
    Selection,
    TimelessRows,
    Verdict,
    WindowRows,
)
from snapshot_assets.errors import CarrierError, DatabaseError, PlanError
from snapshot_assets.format.relations import TableName
from snapshot_assets.testing.restores import read_scan, utc
from snapshot_assets_tests.databases.mysql.helpers import SHOP, table_of, values_of
from snapshot_assets_tests.servers.mariadb import MariadbServer

NUMBERS = "CREATE TABLE t (id int PRIMARY KEY, at datetime, x varchar(9)) AS SELECT seq * seq AS id,"
NUMBERS += " '2024-01-01' + INTERVAL seq MINUTE AS at, CONCAT('x', seq % 7) AS x FROM seq_1_to_1000"


def opened(uri: str) -> closing[MysqlDatabase]:
    return closing(MysqlDatabase(DatabaseAddress("shop", uri)))


def test_ranges_of_the_key_have_as_many_rows_each(mariadb_server: MariadbServer, mariadb_database: str) -> None:
    mariadb_server.sql(NUMBERS, database="shop")
    table = table_of(mariadb_database)
    with opened(mariadb_database) as database:
        ranges = database.divide(Scan(table, AllRows()), 4)
        read = [read_scan(database, Scan(table, KeyRows(each))).num_rows for each in ranges]
        assert read == database.count_rows([(table, [KeyRows(each) for each in ranges])], thorough=True)[0] == [250] * 4
        parts = database.split(Scan(table, KeyRows(ranges[1])), 2)
        assert [read_scan(database, each).num_rows for each in parts] == [125, 125]
        assert database.quantiles(Scan(table, AllRows()), "id", 2).values == ("1", str(501**2))


@pytest.mark.parametrize("charset", ["utf8mb4 COLLATE utf8mb4_general_ci", "latin1", "utf8mb4 COLLATE utf8mb4_bin"])
def test_tasks_divide_a_table_by_a_key_of_texts(
    monkeypatch: pytest.MonkeyPatch, mariadb_server: MariadbServer, mariadb_database: str, charset: str
) -> None:
    monkeypatch.setattr(source, "SAMPLE_ROWS", 40)  # of a large table
    texts = "CONCAT(CHAR(65 + seq % 26 + 32 * (seq % 2)), 'ä''\\\\', seq)"
    create = f"CREATE TABLE t (id varchar(20) PRIMARY KEY) CHARSET {charset}"
    fill = f"INSERT INTO t SELECT {texts} FROM seq_1_to_1000"
    mariadb_server.sql(create, fill, "ANALYZE TABLE t", database="shop")
    table = table_of(mariadb_database)
    with opened(mariadb_database) as database:
        parts = [read_scan(database, each)["id"].to_pylist() for each in database.split(Scan(table, AllRows()), 4)]
        assert [0 < len(part) < 900 for part in parts] == [True] * 4
        whole = read_scan(database, Scan(table, AllRows()))["id"].to_pylist()
        assert sorted(value for part in parts for value in part) == sorted(whole)
        assert len(set(whole)) == 1000
        assert database.quantiles(Scan(table, AllRows()), "id", 4).rows in range(4, 200)


def test_a_key_of_uuids_divides_too(mariadb_server: MariadbServer, mariadb_database: str) -> None:
    mariadb_server.sql(
        "CREATE TABLE t (id uuid PRIMARY KEY) AS SELECT UUID() AS id FROM seq_1_to_1000", database="shop"
    )
    with opened(mariadb_database) as database:
        parts = database.split(Scan(table_of(mariadb_database), AllRows()), 4)
        assert [read_scan(database, each).num_rows for each in parts] == [250] * 4


@pytest.mark.parametrize("key", ["", ", ADD KEY (at)"])
def test_a_window_is_estimated_with_and_without_an_index(
    mariadb_server: MariadbServer, mariadb_database: str, key: str
) -> None:
    mariadb_server.sql(NUMBERS, f"ALTER TABLE t FORCE{key}", "ANALYZE TABLE t", database="shop")
    with opened(mariadb_database) as database:
        table = database.extract(Selection()).table(SHOP)
        whole = database.estimate(Scan(table, AllRows()))
        tenth = WindowRows(utc(2024, 1, 1, 0, 1), utc(2024, 1, 1, 1, 41))
        assert whole / 15 < database.estimate(Scan(table, tenth)) < whole / 7
        assert database.estimate(Scan(table, WindowRows(utc(2025, 1, 1), utc(2026, 1, 1)))) < whole / 100


def test_windows_that_were_counted_are_not_estimated(mariadb_server: MariadbServer, mariadb_database: str) -> None:
    mariadb_server.sql(NUMBERS, "UPDATE t SET at = '2024-01-01' WHERE id > 1", "ANALYZE TABLE t", database="shop")
    noon = utc(2024, 1, 1, 12)
    early, late = (WindowRows(*ends) for ends in ((utc(2024, 1, 1), noon), (noon, utc(2024, 1, 2))))
    with opened(mariadb_database) as database:
        table = database.extract(Selection()).table(SHOP)
        database.count_rows([(table, [early, late])], thorough=False)
        day = database.estimate(Scan(table, replace(early, end=late.end)))
        assert day == database.estimate(Scan(table, early)) + database.estimate(Scan(table, late))
        assert database.estimate(Scan(table, late)) < day / 100


def test_rows_are_sorted_by_the_bytes_of_their_texts(mariadb_server: MariadbServer, mariadb_database: str) -> None:
    mariadb_server.sql("CREATE TABLE t (c varchar(9) COLLATE utf8mb4_general_ci)", database="shop")
    mariadb_server.sql("INSERT INTO t VALUES ('b'), ('B'), ('a'), ('ä'), (''), (' '), ('a '), (NULL)", database="shop")
    found = values_of(mariadb_database, table_of(mariadb_database), order_by=("c",))["c"]
    assert found == [None, "", " ", "B", "a", "a ", "b", "ä"]


def test_a_mask_is_read_in_the_type_of_its_column(mariadb_server: MariadbServer, mariadb_database: str) -> None:
    mariadb_server.sql("CREATE TABLE t (id int, mail varchar(5), n int unsigned)", database="shop")
    mariadb_server.sql("INSERT INTO t VALUES (1, 'a@b', 7)", database="shop")
    masks = {(SHOP, "mail"): "'x' || upper(mail) || 'long'", (SHOP, "n"): "n + 0.4"}
    with opened(mariadb_database) as database:
        table = database.extract(Selection(masks=masks)).table(SHOP)
        assert read_scan(database, Scan(table, AllRows())).to_pylist() == [{"id": 1, "mail": "xA@Bl", "n": 7}]
        with pytest.raises(PlanError, match=r"The mask of shop.t.mail is refused: .*Unknown column"):
            database.extract(Selection(masks={(SHOP, "mail"): "missing"}))


def test_a_query_has_the_types_that_the_server_sends(mariadb_server: MariadbServer, mariadb_database: str) -> None:
    mariadb_server.sql(NUMBERS, database="shop")
    columns = "id, at, x, id / 3 AS third, id + 0e0 AS d, CAST(x AS BINARY) AS b"
    text = f"SELECT {columns} FROM t WHERE at >= :start AND at < :end"
    with opened(mariadb_database) as database:
        schema = database.extract(Selection(query=Query("copied", text)))
        [table] = schema.tables
        kinds = {column.name: column.type for column in table.columns}
        assert kinds == {
            "id": "int",
            "at": "datetime",
            "x": "longtext",
            "third": "decimal(14,4)",
            "d": "double",
            "b": "longblob",
        }
        window = WindowRows(utc(2024, 1, 1, 0, 2), utc(2024, 1, 1, 0, 4))
        rows = read_scan(database, Scan(table, window)).to_pylist()
        assert [(row["id"], row["at"], row["b"]) for row in rows] == [
            (4, datetime(2024, 1, 1, 0, 2), b"x2"),
            (9, datetime(2024, 1, 1, 0, 3), b"x3"),
        ]
        assert table.table_name == TableName("shop", "copied")


def test_values_that_do_not_fit_are_named_before_the_export(
    mariadb_server: MariadbServer, mariadb_database: str
) -> None:
    mariadb_server.sql(
        "CREATE TABLE t (a date, b datetime(6), c timestamp NULL, e enum('x',''),"
        " s varchar(9) CHARACTER SET sjis, ok date)",
        "SET sql_mode = ''",
        "INSERT INTO t VALUES ('2024-00-01', '0000-00-00', '0000-00-00', 'y', x'8790', '2024-01-01')",
        database="shop",
    )
    table = table_of(mariadb_database)
    with opened(mariadb_database) as database:
        errors = {error.attributes["column"]: error for error in database.unfit(table, [AllRows()])}
        assert set(errors) == {f"shop.t.{name}" for name in "abces"}
        assert isinstance(errors["shop.t.a"], CarrierError)
        assert "a date that is none" in str(errors["shop.t.b"])
        assert "the number 0, an invalid value's" in str(errors["shop.t.e"])
        assert "characters of sjis" in str(errors["shop.t.s"])
        with pytest.raises(CarrierError, match=r"shop.t.a .*a date that is none"):
            read_scan(database, Scan(table, AllRows()))
    mariadb_server.sql("DELETE FROM t", "INSERT INTO t (ok) VALUES ('2024-01-01')", database="shop")
    with opened(mariadb_database) as database:
        assert database.unfit(table, [AllRows()]) == []


def test_bytes_that_are_no_text_are_named_with_what_helps(mariadb_server: MariadbServer, mariadb_database: str) -> None:
    mariadb_server.sql("CREATE TABLE t (c varchar(9) CHARACTER SET utf8mb4)", database="shop")
    mariadb_server.sql("INSERT INTO t VALUES (_utf8mb4 x'EDA0BDEDB880')", database="shop")  # two halves, as of UTF-16
    with opened(mariadb_database) as database:
        for selection in (Selection(), Selection(query=Query("copied", "SELECT c FROM t"))):
            [table] = database.extract(selection).tables
            with pytest.raises(DatabaseError, match="holds bytes that are no UTF-8") as refused:
                read_scan(database, Scan(table, AllRows()))
            assert "carrier" not in str(refused.value)
            assert ("mask:" in str(refused.value)) is (selection.query is None)


def test_changed_numbers_of_rows_are_known_and_other_changes_are_not(
    mariadb_server: MariadbServer, mariadb_database: str
) -> None:
    mariadb_server.sql(NUMBERS, database="shop")
    table = table_of(mariadb_database)
    with opened(mariadb_database) as database:
        parts = [ExportedRows(table, AllRows(), count, database.fence()) for count in (1000, 999)]
        same, other = database.changes_since(parts)
    assert (same.verdict, same.found, same.lasting) == (Verdict.UNKNOWN, 1000, True)
    assert (other.verdict, other.found) == (Verdict.CHANGED, 1000)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
@pytest.mark.parametrize("kind", ["datetime", "timestamp NULL", "date"])
def test_the_rows_of_many_sets_are_counted_by_one_query(
    mariadb_server: MariadbServer, mariadb_database: str, monkeypatch: pytest.MonkeyPatch, kind: str, zone: str
) -> None:
    mariadb_server.sql(
        f"CREATE TABLE t (n int PRIMARY KEY, at {kind}, found int)",
        "INSERT INTO t SELECT seq, '2024-03-30' + INTERVAL seq * 7 MINUTE, 1 FROM seq_1_to_600",
        "INSERT INTO t VALUES (0, NULL, 1)",
        database="shop",
    )
    first, hour = datetime(2024, 3, 30, 2, tzinfo=UTC), timedelta(hours=1)
    windows = [WindowRows(first + n * hour, first + (n + 1) * hour, zone) for n in range(70) if n % 11]
    sets: list[Rows] = [*windows[::-1], TimelessRows()]
    with opened(mariadb_database) as database:
        table = database.extract(Selection(time_columns={SHOP: "at"})).table(SHOP)
        each = [read_scan(database, Scan(table, rows)).num_rows for rows in sets]
        assert database.count_rows([(table, sets)], thorough=True) == [each]
        monkeypatch.setattr(source, "_WINDOWS", 9)
        assert database.count_rows([(table, sets)], thorough=True) == [each]
    assert sum(each) > 1


def test_rows_without_transactions_are_not_counted(mariadb_server: MariadbServer, mariadb_database: str) -> None:
    mariadb_server.sql("CREATE TABLE t (id int) ENGINE=MyISAM", "INSERT INTO t VALUES (1)", database="shop")
    mariadb_server.sql("CREATE VIEW v AS SELECT * FROM t", database="shop")
    with opened(mariadb_database) as database:
        reads = [(table_of(mariadb_database, name), [AllRows()]) for name in ("t", "v")]
        assert database.count_rows(reads, thorough=True) == [None, None]


def test_exported_tables_without_transactions_are_named(mariadb_server: MariadbServer, mariadb_database: str) -> None:
    tables = ("t (id int)", "u (id int) ENGINE=MyISAM", "v (id int) ENGINE=Aria", "s (id int) ENGINE=MyISAM")
    mariadb_server.sql(*(f"CREATE TABLE {table}" for table in tables), database="shop")
    with opened(mariadb_database) as database:
        found = database.stateless(database.extract(Selection(exclude_tables=("shop.s",))))
        assert found.startswith("The engines of shop.u, shop.v have no transactions")
        assert database.stateless(database.extract(Selection(tables=(TableName("shop", "t"),)))) == ""


def test_a_column_that_changed_its_type_is_refused(mariadb_server: MariadbServer, mariadb_database: str) -> None:
    mariadb_server.sql("CREATE TABLE t (id int)", database="shop")
    table = table_of(mariadb_database)
    mariadb_server.sql("ALTER TABLE t MODIFY id bigint", database="shop")
    with opened(mariadb_database) as database, pytest.raises(DatabaseError, match=r"was int.* and is now bigint"):
        read_scan(database, Scan(table, AllRows()))
