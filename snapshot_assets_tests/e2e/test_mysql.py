"""A database of MariaDB, exported on the command line, goes into DuckDB and PostgreSQL with equal rows."""

from __future__ import annotations

import signal
from datetime import UTC
from pathlib import Path
from typing import Any

import duckdb
import pytest

from snapshot_assets.databases.protocol.source import AllRows, DatabaseAddress, Scan, Selection
from snapshot_assets.format.relations import TableName
from snapshot_assets.testing.restores import read_scan, source
from snapshot_assets_tests.cli.helpers import Snapshots
from snapshot_assets_tests.databases.duckdb.shop import fresh
from snapshot_assets_tests.databases.mysql.bank import ACCOUNTS, TABLES, make_accounts, sessions, transferring
from snapshot_assets_tests.e2e.test_interrupts import started
from snapshot_assets_tests.engine.restore.imports import execute
from snapshot_assets_tests.servers.mariadb import MariadbServer
from snapshot_assets_tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark")]

CUSTOMERS, ORDERS = TableName("shop", "customers"), TableName("shop", "orders")
SHOP = (
    "CREATE TABLE customers (id bigint unsigned AUTO_INCREMENT PRIMARY KEY, name varchar(50) NOT NULL UNIQUE,"
    " note text, ip inet6, KEY by_note (note(9)), CHECK (name <> ''))",
    "INSERT INTO customers (name, note, ip) SELECT CONCAT('c', seq), IF(seq % 3, NULL, 'größe 🦆 \\\\ \"q\"'), '::1'"
    " FROM seq_1_to_300",
    "CREATE TABLE orders (id bigint AUTO_INCREMENT PRIMARY KEY, customer bigint unsigned, amount decimal(12,2),"
    " at timestamp(3) NULL, placed datetime(6), state enum('new','paid'), payload json, raw varbinary(20), dur time(3),"
    " f float, d double, y year, bits bit(12), wide decimal(50,3), KEY (at),"
    " CONSTRAINT fk FOREIGN KEY (customer) REFERENCES customers (id))",
    "INSERT INTO orders SELECT seq, 1 + seq % 300, seq / 7,"
    " IF(seq % 100, '2024-01-01' + INTERVAL seq * 61 SECOND, NULL),"
    " '2024-01-01' + INTERVAL seq MICROSECOND, IF(seq % 2, 'new', 'paid'), '{\"a\": 1}', x'00ff5c27', '-800:00:01.5',"
    " seq / 3, seq / 3, 1990 + seq % 50, seq % 4096, seq FROM seq_1_to_5000",
)


@pytest.fixture
def bank(mariadb_server: MariadbServer, mariadb_database: str) -> str:
    """Accounts in tables that are large enough for a task each."""
    make_accounts(mariadb_server, ", REPEAT('x', 250000) AS filler")
    return mariadb_database


def rows_of(address: DatabaseAddress, table: TableName) -> list[dict[str, Any]]:
    """Return the rows of a table by its key."""
    with source(address) as database:
        selection = Selection(tables=(table,), time_columns={table: None})
        found = read_scan(database, Scan(database.extract(selection).table(table), AllRows()))
    return found.sort_by("id").to_pylist()


@pytest.mark.parametrize("kind", ["duckdb", "postgresql"])
def test_rows_are_equal_in_another_kind_of_database(
    snapshots: Snapshots,
    tmp_path: Path,
    mariadb_server: MariadbServer,
    mariadb_database: str,
    postgresql_database: str,
    kind: str,
) -> None:
    mariadb_server.sql(*SHOP, database="shop")
    target = fresh(tmp_path, "target") if kind == "duckdb" else DatabaseAddress("target", postgresql_database)
    location, times = (tmp_path / "location").as_uri(), ("--time-column", "shop.orders=at")
    created = snapshots("export", "create", "--source", mariadb_database, "--to", location, *times, "--json")
    assert created.status == 0, created.err
    assert (created.json["rows"], created.json["consistency"]) == (5300, "run")
    assert not [each for each in created.json["warnings"] if "states" in each]
    verified = snapshots("export", "verify", "--snapshot", location)
    assert verified.status == 0, verified.err
    imported = snapshots("import", "--snapshot", location, "--target", target.uri, "--json")
    assert imported.status == 0, imported.err
    for table in (CUSTOMERS, ORDERS):
        found = rows_of(target, table)
        assert found == rows_of(DatabaseAddress("shop", mariadb_database), table)
    assert found[0]["at"].tzinfo is not None
    assert found[0]["at"].astimezone(UTC).isoformat() == "2024-01-01T00:01:01+00:00"


def test_a_snapshot_is_restored_into_another_server_and_chunks_are_replaced(
    snapshots: Snapshots,
    tmp_path: Path,
    mariadb_server: MariadbServer,
    mariadb_database: str,
    second_mariadb_server: MariadbServer,
    second_mariadb_database: str,
) -> None:
    mariadb_server.sql(*SHOP, database="shop")
    location, times = (tmp_path / "location").as_uri(), ("--time-column", "shop.orders=at", "--chunk-time-window", "1d")
    export = ("export", "create", "--source", mariadb_database, "--to", location, *times)
    restore = ("import", "--snapshot", location, "--target", second_mariadb_database, "--json")
    for command in (export, restore):
        done = snapshots(*command)
        assert done.status == 0, done.err
    compared = snapshots("compare", "--source", mariadb_database, "--snapshot", location, *times, "--json")
    assert (compared.status, set(compared.json["counts"])) == (0, {"equal"}), compared.err
    sums = "CHECKSUM TABLE shop.customers, shop.orders EXTENDED"
    assert second_mariadb_server.sql(sums) == mariadb_server.sql(sums)
    mariadb_server.sql("UPDATE orders SET amount = 0 WHERE at < '2024-01-02'", database="shop")
    for command in ((*export, "--replace", "2024-01-01/2024-01-02"), (*restore, "--replace")):
        done = snapshots(*command)
        assert done.status == 0, done.err
    assert second_mariadb_server.sql(sums) == mariadb_server.sql(sums)
    again = snapshots(*restore)
    assert again.status == 0, again.err
    assert second_mariadb_server.sql("SELECT COUNT(*) FROM shop.orders") == "5000"


def test_values_that_the_server_cannot_hold_are_refused_before_the_first_row(
    snapshots: Snapshots, tmp_path: Path, mariadb_server: MariadbServer, mariadb_database: str
) -> None:
    duck = fresh(tmp_path, "source")
    execute(
        duck.uri,
        "CREATE TABLE far AS SELECT DATE '10000-01-01' AS d",
        "CREATE TABLE wide AS SELECT repeat('x', 1 << 20) AS v",
    )
    location = (tmp_path / "location").as_uri()
    assert snapshots("export", "create", "--source", duck.uri, "--to", location).status == 0
    call = ("import", "--from", location, "--target", mariadb_database, "--map-schema", "main=shop")
    mariadb_server.sql("SET GLOBAL max_allowed_packet = 1048576")
    try:
        planned = snapshots(*call, "--dry-run")
        assert "rows of shop.far: column d has 1 value before the year 0000 or after the year 9999" in planned.out
        assert "rows of shop.wide: column v has 1 value of more than 1047552 bytes" in planned.out
        refused = snapshots(*call)
        assert refused.status != 0
        assert "Column shop.far.d has values before the year 0000 or after the year 9999" in refused.err
        assert mariadb_server.sql("SHOW TABLES", database="shop") == ""
    finally:
        mariadb_server.sql("SET GLOBAL max_allowed_packet = DEFAULT")


def test_code_is_restored_on_request_and_triggers_refuse_later_imports_until_they_are_dropped(
    snapshots: Snapshots,
    tmp_path: Path,
    mariadb_server: MariadbServer,
    mariadb_database: str,
    second_mariadb_server: MariadbServer,
    second_mariadb_database: str,
) -> None:
    code = (
        "CREATE TABLE t (id int PRIMARY KEY, note text)",
        "CREATE FUNCTION twice(x int) RETURNS int DETERMINISTIC RETURN 2 * x",
        "CREATE TRIGGER named BEFORE INSERT ON t FOR EACH ROW SET NEW.note = NEW.id",
        "CREATE EVENT sweep ON SCHEDULE EVERY 1 DAY DO DELETE FROM t",
    )
    mariadb_server.sql(*code, database="shop")
    location = (tmp_path / "location").as_uri()
    export = ("export", "create", "--source", mariadb_database, "--to", location)
    created = snapshots(*export, "--json")
    assert created.json["code"] == {
        "event": ["shop.sweep"],
        "function": ["shop.twice"],
        "trigger": ["named of shop.t"],
    }
    restore = ("import", "--snapshot", location, "--target", second_mariadb_database, "--with-code", "--json")
    imported = snapshots(*restore)
    assert imported.status == 0, imported.err
    assert any(each.startswith("Event shop.sweep is created disabled") for each in imported.json["lost"])
    shown = "SELECT shop.twice(2), status FROM information_schema.events"
    assert second_mariadb_server.sql(shown) == "4\tDISABLED"
    mariadb_server.sql("INSERT INTO t (id) VALUES (7)", database="shop")
    assert snapshots(*export, "--changed").status == 0
    refused = snapshots(*restore, "--replace")
    assert "Trigger named of shop.t acts on each INSERT" in refused.err
    second_mariadb_server.sql("DROP TRIGGER named", database="shop")
    again = snapshots(*restore, "--replace")
    assert again.status == 0, again.err
    triggers = "SELECT trigger_name FROM information_schema.triggers"
    assert second_mariadb_server.sql(triggers) == "named"
    assert second_mariadb_server.sql("SELECT note FROM shop.t") == "7"


def test_money_that_is_transferred_meanwhile_is_in_each_snapshot_once(
    snapshots: Snapshots, tmp_path: Path, bank: str
) -> None:
    with transferring(bank):
        for number in range(4):
            location = tmp_path / str(number)
            created = snapshots("export", "create", "--source", bank, "--to", location.as_uri(), "--json")
            assert created.status == 0, created.err
            assert created.json["consistency"] == "run"
            assert created.json["files"] == len(TABLES)
            [total] = duckdb.sql(f"SELECT sum(money) FROM '{location}/data/**/*.parquet'").fetchall()[0]
            assert total == 1000 * ACCOUNTS * len(TABLES)


def test_an_interrupted_export_leaves_no_session_and_no_lock(
    tmp_path: Path, mariadb_server: MariadbServer, mariadb_database: str
) -> None:
    slow = "CREATE VIEW v AS SELECT a.seq AS id, SLEEP(0.01) AS slept FROM seq_1_to_1000000 a"
    mariadb_server.sql("CREATE TABLE t (id int)", slow, database="shop")
    call = ("export", "create", "--source", mariadb_database, "--tables", "shop.v,shop.t", "--to", tmp_path.as_uri())
    with started(tmp_path, *call) as command:
        command.until("chunks_running")
        assert len(sessions(mariadb_server)) > 1
        command.interrupt(signal.SIGINT)
    until(lambda: not sessions(mariadb_server))
    mariadb_server.sql("INSERT INTO t VALUES (1)", "ALTER TABLE t ADD COLUMN n int", database="shop")
