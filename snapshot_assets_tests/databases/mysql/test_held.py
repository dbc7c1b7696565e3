"""All tasks of a run read one state of MariaDB, over connections that the driver's process lends them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from snapshot_assets.databases.mysql import held as held_module
from snapshot_assets.databases.mysql.session import MysqlConnection, MysqlSession
from snapshot_assets.databases.protocol.source import AllRows, Database, DatabaseAddress, HeldState, Scan, Selection
from snapshot_assets.errors import ConsistencyLostError, DatabaseUnavailableError, UnknownRelationError
from snapshot_assets.format.relations import Table
from snapshot_assets.testing.restores import read_scan, source
from snapshot_assets_tests.databases.mysql.bank import ACCOUNTS, TABLES, make_accounts, sessions, transferring
from snapshot_assets_tests.databases.mysql.helpers import SHOP, table_of
from snapshot_assets_tests.servers.certificates import certificates
from snapshot_assets_tests.servers.mariadb import MariadbServer, start_mariadb
from snapshot_assets_tests.waiting import until

LARGE = "CREATE TABLE t (id int PRIMARY KEY, filler varchar(1000)) AS SELECT seq AS id, REPEAT('x', 1000) AS filler"
FTWRL = ("FLUSH TABLES WITH READ LOCK", "UNLOCK TABLES")


@contextmanager
def holding(uri: str, readers: int = 1) -> Iterator[HeldState]:
    with source(DatabaseAddress("shop", uri)) as holder, holder.hold(lambda: readers) as held:
        yield held


@contextmanager
def reading(uri: str, held: HeldState) -> Iterator[Database]:
    with source(DatabaseAddress("shop", uri, held.token)) as database:
        yield database


def ids(database: Database, table: Table) -> int:
    return read_scan(database, Scan(table, AllRows())).num_rows


@pytest.fixture
def bank(mariadb_server: MariadbServer, mariadb_database: str) -> str:
    make_accounts(mariadb_server)
    return mariadb_database


@pytest.mark.parametrize("locks", [None, FTWRL])
def test_money_is_neither_lost_nor_there_twice_in_any_state(
    bank: str, monkeypatch: pytest.MonkeyPatch, locks: tuple[str, ...] | None
) -> None:
    if locks is not None:  # what MySQL has
        monkeypatch.setattr(held_module, "lock_statements", lambda connection: locks)
    tables = [table_of(bank, name) for name in TABLES]

    def total(table: Table, held: HeldState) -> int:
        with reading(bank, held) as database:
            return sum(read_scan(database, Scan(table, AllRows()))["money"].to_pylist())

    with transferring(bank), ThreadPoolExecutor(3) as pool:
        for _ in range(10):
            with holding(bank, 2) as held:
                first = [pool.submit(total, table, held) for table in tables * 2]
                totals = [each.result(60) for each in first]
            assert totals[:3] == totals[3:]
            assert sum(totals[:3]) == 1000 * ACCOUNTS * len(TABLES)


def test_planning_reads_the_state_too_and_names_its_place_in_the_binary_log(tmp_path: Path) -> None:
    with start_mariadb(tmp_path / "server", log_bin="1") as server:
        uri = server.create_database("shop")
        server.sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)", database="shop")
        with holding(uri) as held:
            server.sql("INSERT INTO t VALUES (2)", "ALTER TABLE t COMMENT 'later'", database="shop")
            with reading(uri, held) as one, reading(uri, held) as other:
                table = one.extract(Selection()).table(SHOP)
                assert one.count_rows([(table, [AllRows()])], thorough=True) == [[1]]
                fence = one.fence()
                assert fence == other.fence()
                server.sql("ALTER TABLE t COMMENT 'not blocked by the count'", database="shop")
        place = f"SELECT BINLOG_GTID_POS('{fence['binlog_snapshot_file']}', {fence['binlog_snapshot_position']})"
        assert server.sql(place) == fence["gtid_binlog_pos"]
        assert not sessions(server)


def test_on_a_server_that_lacks_the_lock_connections_read_states_of_their_own(
    mariadb_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_module, "lock_statements", lambda connection: ("LOCK THE SERVER", "UNLOCK TABLES"))
    with holding(mariadb_database) as held:
        assert held.token is None
        assert "cannot be locked" in held.unshared


@pytest.mark.parametrize(
    ("user", "readers", "why"), [("clerk", 1, "cannot be locked .*RELOAD"), ("root", 0, "machines")]
)
def test_without_the_right_or_on_other_machines_connections_read_states_of_their_own(
    mariadb_server: MariadbServer, mariadb_database: str, user: str, readers: int, why: str
) -> None:
    mariadb_server.sql("CREATE TABLE t (id int)", "CREATE OR REPLACE USER clerk IDENTIFIED BY 'x'", database="shop")
    mariadb_server.sql("GRANT SELECT ON shop.* TO clerk")
    uri = mariadb_server.uri("shop", "clerk", "x") if user == "clerk" else mariadb_database
    with holding(uri, readers) as held:
        assert held.token is None
        assert re.search(f"states of their own, because .*{why}", held.unshared)
        mariadb_server.sql("INSERT INTO t VALUES (1)", database="shop")
        with reading(uri, held) as database:
            assert ids(database, table_of(uri)) == 1
        held.check()
    mariadb_server.sql("DROP USER clerk")


def test_a_task_that_is_killed_while_it_reads_leaves_its_connection_to_others(
    mariadb_server: MariadbServer, mariadb_database: str
) -> None:
    mariadb_server.sql(f"{LARGE} FROM seq_1_to_200000", database="shop")
    table = table_of(mariadb_database)
    with holding(mariadb_database) as held:
        mariadb_server.sql("DELETE FROM t WHERE id > 7", database="shop")
        before = sessions(mariadb_server)
        assert len(before) == 3  # the holder's, and those that are lent
        for _ in range(2):
            with _dying_task(DatabaseAddress("shop", mariadb_database, held.token), table) as task:
                os.kill(task.pid, signal.SIGKILL)
        held.check()
        with reading(mariadb_database, held) as one, reading(mariadb_database, held) as other:
            assert (ids(one, table), ids(other, table)) == (200_000, 200_000)
        assert sessions(mariadb_server) == before
    until(lambda: not sessions(mariadb_server))


@contextmanager
def _dying_task(address: DatabaseAddress, table: Table) -> Iterator[subprocess.Popen[str]]:
    """Yield a process that has read the first rows of a table, and reads no more."""
    code = (
        "import sys, time; from contextlib import closing\n"
        "from snapshot_assets.databases.open import open_database\n"
        "from snapshot_assets.databases.protocol.source import AllRows, DatabaseAddress, Scan\n"
        "from snapshot_assets.format.relations import Table\n"
        "with closing(open_database(DatabaseAddress(*sys.argv[1:4]))) as database:\n"
        "    with database.scan(Scan(Table.model_validate_json(sys.argv[4]), AllRows())) as batches:\n"
        "        next(batches); print('read', flush=True); time.sleep(600)\n"
    )
    given = [address.alias, address.uri, str(address.consistency), table.model_dump_json(by_alias=True)]
    with subprocess.Popen([sys.executable, "-c", code, *given], stdout=subprocess.PIPE, text=True) as task:
        assert task.stdout is not None
        assert task.stdout.readline() == "read\n"
        yield task


def test_tasks_wait_for_a_connection_that_no_one_uses(mariadb_server: MariadbServer, mariadb_database: str) -> None:
    mariadb_server.sql("CREATE TABLE t (id int)", database="shop")
    table = table_of(mariadb_database)

    def read(held: HeldState) -> int:
        with reading(mariadb_database, held) as database:
            return ids(database, table)

    with ThreadPoolExecutor(1) as pool, holding(mariadb_database) as held:
        with reading(mariadb_database, held), reading(mariadb_database, held):
            waiting = pool.submit(read, held)
            with pytest.raises(TimeoutError):
                waiting.result(0.3)
        assert waiting.result(60) == 0


def test_a_query_over_a_lent_connection_is_interrupted(mariadb_server: MariadbServer, mariadb_database: str) -> None:
    slow = "SELECT COUNT(*) FROM seq_1_to_1000000000 a, seq_1_to_1000000 b"
    with (
        ThreadPoolExecutor(1) as pool,
        holding(mariadb_database) as held,
        closing(MysqlSession(DatabaseAddress("shop", mariadb_database, held.token))) as session,
    ):
        running = pool.submit(session.rows, slow, "counting")
        until(lambda: "seq_1_to_1000000000" in mariadb_server.sql("SHOW FULL PROCESSLIST"))
        session.interrupt()
        with pytest.raises(DatabaseUnavailableError):
            running.result(60)
        assert session.rows("SELECT 1 AS one", "reading") == [{"one": 1}]


CHANGES: dict[str, tuple[tuple[str, ...], str]] = {
    "add": (("ALTER TABLE t ADD COLUMN n int DEFAULT 5",), "since then it gained n int"),
    "retype": (("ALTER TABLE t MODIFY v bigint",), "it lost v int.* and gained v bigint"),
    "comment": (("ALTER TABLE t COMMENT 'x'",), "it was made or altered at"),
    "recreate": (("DROP TABLE t", "CREATE TABLE t (id int PRIMARY KEY, v int)"), "made or altered|altered, truncated"),
    "truncate": (("TRUNCATE TABLE t",), "altered, truncated or rebuilt after the state"),
    "rebuild": (("ALTER TABLE t FORCE",), "made or altered|altered, truncated"),
    "swap": (("RENAME TABLE t TO o, u TO t",), "it was made or altered at"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_table_that_is_altered_after_the_state_is_refused(
    mariadb_server: MariadbServer, mariadb_database: str, change: str
) -> None:
    statements, why = CHANGES[change]
    for name in "tu":
        mariadb_server.sql(f"CREATE TABLE {name} (id int PRIMARY KEY, v int)", database="shop")
        mariadb_server.sql(f"INSERT INTO {name} VALUES (1, 2)", database="shop")
    mariadb_server.sql("DO SLEEP(1.1)")  # times of definitions have whole seconds
    with holding(mariadb_database) as held, reading(mariadb_database, held) as planning:
        table = planning.extract(Selection(tables=(SHOP,), time_columns={SHOP: None})).table(SHOP)
        assert planning.count_rows([(table, [AllRows()])], thorough=True) == [[1]]
        with reading(mariadb_database, held) as task:
            assert ids(task, table) == 1
            mariadb_server.sql(*statements, database="shop")
            with pytest.raises(ConsistencyLostError, match=rf"shop.t\b.*({why}).*Start a new run"):
                ids(task, table)
        held.check()


def test_a_table_that_is_dropped_after_the_state_is_named(mariadb_server: MariadbServer, mariadb_database: str) -> None:
    mariadb_server.sql("CREATE TABLE t (id int)", database="shop")
    table = table_of(mariadb_database)
    with holding(mariadb_database) as held, reading(mariadb_database, held) as task:
        mariadb_server.sql("DROP TABLE t", database="shop")
        with pytest.raises(UnknownRelationError, match=r"shop\.t"):
            ids(task, table)


def test_no_statement_alters_a_table_while_it_is_read(mariadb_server: MariadbServer, mariadb_database: str) -> None:
    mariadb_server.sql(f"{LARGE} FROM seq_1_to_100000", database="shop")
    table = table_of(mariadb_database)
    with ThreadPoolExecutor(1) as pool, holding(mariadb_database) as held, reading(mariadb_database, held) as task:
        with task.scan(Scan(table, AllRows())) as batches:
            rows = next(batches).num_rows
            altered = pool.submit(mariadb_server.sql, "ALTER TABLE t ADD COLUMN n int", database="shop")
            until(lambda: "metadata lock" in mariadb_server.sql("SHOW FULL PROCESSLIST"))
            assert rows + sum(batch.num_rows for batch in batches) == 100_000
        altered.result(60)


@pytest.mark.parametrize(
    ("locks", "lock"), [(None, "LOCK TABLES t WRITE"), (FTWRL, "UPDATE t SET id = id + SLEEP(600)")]
)
def test_a_server_that_cannot_be_locked_soon_is_not_waited_for(
    mariadb_server: MariadbServer,
    mariadb_database: str,
    monkeypatch: pytest.MonkeyPatch,
    locks: tuple[str, ...] | None,
    lock: str,
) -> None:
    mariadb_server.sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)", database="shop")
    monkeypatch.setitem(held_module._LOCK_SETTINGS, "lock_wait_timeout", "1")
    if locks is not None:
        monkeypatch.setattr(held_module, "lock_statements", lambda connection: locks)
    with _running(mariadb_server, mariadb_database, lock):
        with (
            pytest.raises(
                DatabaseUnavailableError, match=r"could not be locked .* tries of \d s, because other sessions"
            ),
            holding(mariadb_database),
        ):
            pass
        mariadb_server.sql("CREATE TABLE other (id int)", "INSERT INTO other VALUES (1)", database="shop")
    until(lambda: not sessions(mariadb_server))


def test_a_flush_that_would_wait_for_a_long_statement_is_not_begun(
    mariadb_server: MariadbServer, mariadb_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mariadb_server.sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)", database="shop")
    monkeypatch.setattr(held_module, "lock_statements", lambda connection: FTWRL)
    monkeypatch.setattr(held_module, "_LONG", held_module._LONG.replace(f"time >= {held_module.LOCK_SECONDS}", "true"))
    with _running(mariadb_server, mariadb_database, "SELECT id, SLEEP(600) FROM t"):
        with pytest.raises(DatabaseUnavailableError, match="SHOW PROCESSLIST"), holding(mariadb_database):
            pass
        assert mariadb_server.sql("SELECT count(*) FROM t", database="shop") == "1"  # waits for no flush


@contextmanager
def _running(server: MariadbServer, uri: str, statement: str) -> Iterator[None]:
    """Run a statement until the context ends."""
    with ThreadPoolExecutor(1) as pool, closing(MysqlConnection(DatabaseAddress("shop", uri))) as other:
        done = pool.submit(other.execute, statement, "locking")
        shown = "SELECT COUNT(*) FROM information_schema.processlist WHERE state LIKE 'User sleep'"
        until(lambda: done.done() or server.sql(shown) == "1")
        try:
            yield
        finally:
            other.interrupt()
            done.exception(60)


def test_a_long_query_does_not_keep_the_state_from_being_taken(
    mariadb_server: MariadbServer, mariadb_database: str
) -> None:
    mariadb_server.sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)", database="shop")
    for statement in ("UPDATE t SET id = id + SLEEP(600)", "SELECT id, SLEEP(600) FROM t"):
        with _running(mariadb_server, mariadb_database, statement), holding(mariadb_database) as held:
            assert not held.unshared


@pytest.mark.parametrize("lost", ["idle", "tasks'", "all", "restart"])
def test_a_state_is_lost_with_its_last_connection(tmp_path: Path, lost: str) -> None:
    with ExitStack() as stack:
        running = ExitStack()
        stack.enter_context(running)
        server = running.enter_context(start_mariadb(tmp_path / "server"))
        uri = server.create_database("shop")
        server.sql("CREATE TABLE t (id int)", "INSERT INTO t VALUES (1)", database="shop")
        table = table_of(uri)
        held = stack.enter_context(holding(uri, 2))
        with reading(uri, held) as task:
            assert ids(task, table) == 1
            if lost == "restart":
                running.close()
            else:
                idle = {each for each in sessions(server) if int(each) != task.session.thread_id}
                for each in {"idle": list(idle)[:1], "tasks'": idle, "all": sessions(server)}[lost]:
                    server.sql(f"KILL {each}")
            if lost == "idle":
                held.check()
                with reading(uri, held) as other:
                    assert ids(other, table) == 1
                return
            if lost == "tasks'":  # the planner keeps its own to the end
                with pytest.raises(ConsistencyLostError, match=r"no connection holds|are gone"), reading(uri, held):
                    pass
                assert ids(task, table) == 1
                return
            with pytest.raises(DatabaseUnavailableError):
                ids(task, table)
        with pytest.raises(ConsistencyLostError, match="were lost"):
            held.check()
        with pytest.raises(ConsistencyLostError, match="are gone"), reading(uri, held):
            pass


def test_a_token_of_an_ended_run_is_refused(mariadb_server: MariadbServer, mariadb_database: str) -> None:
    with holding(mariadb_database) as held:
        assert held.token is not None
        assert Path(held.token).stat().st_mode & 0o777 == 0o700
    assert not Path(held.token).exists()
    with pytest.raises(ConsistencyLostError, match="are gone"), reading(mariadb_database, held):
        pass


def test_connections_with_tls_are_lent_too(tmp_path: Path) -> None:
    certificates(tmp_path)
    keys = {"ssl_cert": str(tmp_path / "leaf.pem"), "ssl_key": str(tmp_path / "leaf.key")}
    with start_mariadb(tmp_path / "server", **keys) as server:
        server.create_database("shop")
        uri = server.uri("shop") + "?ssl=required"
        server.sql(f"{LARGE} FROM seq_1_to_50000", database="shop")
        table = table_of(uri)
        with holding(uri) as held, reading(uri, held) as database:
            server.sql("DELETE FROM t", database="shop")
            with database.scan(Scan(table, AllRows())) as batches:
                next(batches)
            assert ids(database, table) == 50_000
