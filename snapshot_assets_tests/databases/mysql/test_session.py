"""Connections to MySQL: their URIs and settings, and the driver's errors as the package's own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from snapshot_assets.databases.mysql import place_of
from snapshot_assets.databases.mysql.session import MysqlConnection, MysqlSession
from snapshot_assets.databases.protocol import lock_waits as waits
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.errors import (
    DatabaseDeniedError,
    DatabaseError,
    DatabaseUnavailableError,
    UnknownRelationError,
    UnknownSourceError,
)
from snapshot_assets_tests.servers.certificates import certificates
from snapshot_assets_tests.servers.mariadb import PASSWORD, MariadbServer, start_mariadb
from snapshot_assets_tests.servers.ports import free_port
from snapshot_assets_tests.waiting import until


def address(uri: str) -> DatabaseAddress:
    return DatabaseAddress("shop", uri)


@pytest.fixture
def connection(mariadb_database: str) -> Iterator[MysqlConnection]:
    with closing(MysqlConnection(address(mariadb_database))) as opened:
        yield opened


def test_a_uri_has_a_user_a_place_and_a_database() -> None:
    place = place_of("mariadb://me%40x:p%2Fw@db.example.com:3307/sh%2Fop?unix_socket=/run/s.sock&ssl=disabled")
    found = (place.host, place.port, place.user, place.password, place.database, place.unix_socket, place.tls)
    assert found == ("db.example.com", 3307, "me@x", "p/w", "sh/op", "/run/s.sock", "disabled")
    assert place_of("mysql://h?ssl_ca=/ca.pem").tls == "verify"
    assert place_of("mysql://h").password is None
    assert "p/w" not in repr(place)


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("mysql://u:hunter2@h:x/shop", "its port or its options"),
        ("mysql://u:hunter2/@h/shop", "its port or its options .* write `@`, `/`, .* as %40, %2F"),
        ("mysql://u:hunter2@h/shop?charset=utf8", "it has the option 'charset'; known are unix_socket"),
        ("mysql://u:hunter2@h/shop?ssl=maybe", "ssl=maybe; known are preferred"),
        ("mysql://u:hunter2@h/shop/orders", "what follows the host is not the name of one database"),
        ("mysql://u:hunter2@h/shop#x", "what follows the host is not the name of one database"),
    ],
)
def test_a_uri_of_another_form_is_refused_without_its_password(uri: str, why: str) -> None:
    with pytest.raises(UnknownSourceError, match=why) as caught:
        place_of(uri)
    assert "hunter2" not in str(caught.value)


def test_settings_do_not_depend_on_the_server(connection: MysqlConnection) -> None:
    names = "@@time_zone AS zone, @@sql_mode AS sql_mode, @@character_set_results AS charset"
    [row] = connection.rows(f"SELECT {names}, @@max_statement_time AS longest", "reading")
    modes = set(row.pop("sql_mode").split(","))
    assert modes == {"ANSI_QUOTES", "PIPES_AS_CONCAT"}
    assert row == {"zone": "+00:00", "charset": "utf8mb4", "longest": 0.0}


@pytest.mark.parametrize(
    "sql",
    [
        r"""SELECT 'a\b''\' AS found""",
        "SELECT --\n'a\\b''\\' AS found -- it's \\",
        "SELECT /* it's \\ */ 'a\\b''\\' AS found # it's",
        "SELECT /*!40000 'a\\b''\\' AS */ found",
    ],
)
def test_a_backslash_in_a_string_is_a_backslash(connection: MysqlConnection, sql: str) -> None:
    assert connection.rows(sql, "reading") == [{"found": "a\\b'\\"}]


def test_a_socket_and_tls_modes_reach_the_server(mariadb_server: MariadbServer, mariadb_database: str) -> None:
    with closing(MysqlConnection(address(f"{mariadb_database}?unix_socket={mariadb_server.socket}"))) as opened:
        assert opened.rows("SELECT CURRENT_USER() AS who", "reading") == [{"who": "root@localhost"}]
    with closing(MysqlConnection(address(f"{mariadb_database}?ssl=disabled"))) as opened:
        assert opened.rows("SELECT 1 AS one", "reading") == [{"one": 1}]
    with pytest.raises(DatabaseError, match=r"SSL is required .* or write ssl=disabled"):
        MysqlConnection(address(f"{mariadb_database}?ssl=required"))  # the server has no certificate


def test_a_session_cannot_write(mariadb_database: str, mariadb_server: MariadbServer) -> None:
    mariadb_server.sql("CREATE TABLE t (id int)", database="shop")
    with (
        closing(MysqlSession(address(mariadb_database))) as session,
        pytest.raises(DatabaseError, match=r"READ ONLY transaction .* may write"),
    ):
        session.execute("INSERT INTO t VALUES (1)", "writing")


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (
            (":correct", ":wrong"),
            DatabaseDeniedError,
            r"Access denied .*[^(]* \(error 1045\)\. Check user and password in the URI",
        ),
        (("/shop", "/shoop"), DatabaseError, "Unknown database 'shoop' .* Create the database, or check its name"),
    ],
)
def test_a_refused_connection_names_the_remedy_and_no_password(
    mariadb_database: str, change: tuple[str, str], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message) as caught:
        MysqlConnection(address(mariadb_database.replace(*change)))
    assert PASSWORD not in str(caught.value)


def test_an_expired_password_and_a_limit_of_connections_have_remedies(mariadb_server: MariadbServer) -> None:
    mariadb_server.sql(
        "CREATE USER late IDENTIFIED BY 'x' PASSWORD EXPIRE",
        "CREATE USER narrow IDENTIFIED BY 'x' WITH MAX_USER_CONNECTIONS 1",
        "CREATE USER rare IDENTIFIED BY 'x' WITH MAX_CONNECTIONS_PER_HOUR 1",
    )
    try:
        with pytest.raises(DatabaseDeniedError, match=r"\(error 1820\)\. The password has expired: set a new one"):
            MysqlConnection(address(mariadb_server.uri(user="late", password="x")))
        narrow = address(mariadb_server.uri(user="narrow", password="x"))
        with (
            closing(MysqlConnection(narrow)),
            pytest.raises(DatabaseUnavailableError, match=r"\(error 1226\)\. .* use fewer tasks .* raise the limit"),
        ):
            MysqlConnection(narrow)
        rare = address(mariadb_server.uri(user="rare", password="x"))
        MysqlConnection(rare).close()
        with pytest.raises(DatabaseError, match=r"per_hour.*\(error 1226\)\. .* raise the limit") as caught:
            MysqlConnection(rare)
        assert not isinstance(caught.value, DatabaseUnavailableError)  # a retry would use up more of the limit
    finally:
        mariadb_server.sql("DROP USER late, narrow, rare")


def test_a_server_that_is_down_is_transient() -> None:
    with pytest.raises(DatabaseUnavailableError, match=r"connecting failed: .* Check host and port.* Running again"):
        MysqlConnection(address(f"mysql://u@127.0.0.1:{free_port()}/shop"))


def test_a_table_that_is_gone_and_a_missing_right_are_named(
    connection: MysqlConnection, mariadb_server: MariadbServer, mariadb_database: str
) -> None:
    with pytest.raises(UnknownRelationError, match=r"'shop.missing' doesn't exist \(error 1146\)"):
        connection.rows("SELECT * FROM missing", "reading")
    mariadb_server.sql("CREATE USER IF NOT EXISTS clerk IDENTIFIED BY 'x'", "GRANT SELECT ON shop.* TO clerk")
    with (
        closing(MysqlConnection(address(mariadb_server.uri("shop", "clerk", "x")))) as clerk,
        pytest.raises(DatabaseDeniedError, match=r"DROP command denied .* Grant the user of the URI the right"),
    ):
        clerk.execute("DROP TABLE t", "dropping")
    mariadb_server.sql("DROP USER clerk")


def test_a_deadlock_and_a_lost_session_are_transient(
    connection: MysqlConnection, mariadb_server: MariadbServer, mariadb_database: str
) -> None:
    mariadb_server.sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)", database="shop")
    with closing(MysqlConnection(address(mariadb_database))) as other:
        other.execute("BEGIN", "locking")
        other.execute("DELETE FROM t", "locking")
        connection.execute("SET innodb_lock_wait_timeout = 1", "waiting")
        with pytest.raises(DatabaseUnavailableError, match=r"Lock wait timeout .* Another session holds"):
            connection.execute("DELETE FROM t", "waiting")
    [row] = connection.rows("SELECT CONNECTION_ID() AS id", "reading")
    mariadb_server.sql(f"KILL {row['id']}")
    with pytest.raises(DatabaseUnavailableError, match="reading failed"):
        connection.rows("SELECT 1", "reading")
    with pytest.raises(DatabaseUnavailableError, match="reading failed"):
        connection.rows("SELECT 1", "reading")


def test_another_thread_ends_a_query(connection: MysqlConnection, mariadb_server: MariadbServer) -> None:
    connection.interrupt()  # nothing runs
    errors: list[BaseException] = []

    def run() -> None:
        try:
            connection.rows("SELECT COUNT(*) FROM seq_1_to_1000000000 a, seq_1_to_1000000 b", "counting")
        except DatabaseError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: "seq_1_to_1000000000" in mariadb_server.sql("SHOW FULL PROCESSLIST"))
    connection.interrupt()
    thread.join(60)
    assert isinstance(errors[0], DatabaseUnavailableError)
    assert connection.rows("SELECT 1 AS one", "reading") == [{"one": 1}]


def test_tls_is_demanded_and_the_certificate_is_checked(tmp_path: Path) -> None:
    authority = certificates(tmp_path)
    keys = {"ssl_cert": str(tmp_path / "leaf.pem"), "ssl_key": str(tmp_path / "leaf.key")}
    with start_mariadb(tmp_path / "server", **keys) as server:
        by_name = server.uri().replace("127.0.0.1", "localhost")
        for options in ("", "?ssl=required", f"?ssl_ca={authority}"):
            with closing(MysqlConnection(address(by_name + options))) as opened:
                assert opened.rows("SHOW STATUS LIKE 'Ssl_cipher'", "reading")[0]["Value"], options
        with pytest.raises(DatabaseUnavailableError, match="certificate verify failed"):
            MysqlConnection(address(f"{by_name}?ssl=verify"))
        with pytest.raises(DatabaseUnavailableError, match="IP address mismatch"):
            MysqlConnection(address(f"{server.uri()}?ssl_ca={authority}"))
    with pytest.raises(DatabaseDeniedError, match=r"ssl_ca=/none in the URI of MySQL cannot be read"):
        MysqlConnection(address("mysql://h?ssl_ca=/none"))


@pytest.mark.parametrize(
    ("user", "shown"),
    [
        ("root", "held by session {} (user root, DO SLEEP(600))"),
        ("clerk", "SHOW FULL PROCESSLIST, by a user with PROCESS"),
    ],
)
def test_a_wait_for_a_lock_is_reported_early_with_its_holder_if_the_server_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, user: str, shown: str
) -> None:
    monkeypatch.setattr(waits, "REPORTED_AFTER", 0.5)
    with start_mariadb(tmp_path / "server", performance_schema="1") as server:
        uri = server.create_database("shop")
        server.sql("UPDATE performance_schema.setup_instruments SET enabled = 'YES'")
        server.sql("CREATE TABLE t (id int)", "CREATE USER clerk IDENTIFIED BY 'x'", database="shop")
        server.sql("GRANT SELECT ON shop.* TO clerk")
        reader = server.uri("shop", "clerk", "x") if user == "clerk" else uri

        def streamed(sql: str, doing: str) -> list[object]:
            with waiting.stream(sql, doing) as chunks:
                return list(chunks)

        with (
            ThreadPoolExecutor(2) as pool,
            closing(MysqlConnection(address(uri))) as holder,
            closing(MysqlSession(address(reader))) as waiting,
        ):
            holder.execute("LOCK TABLES t WRITE", "locking")
            sleeping = pool.submit(holder.execute, "DO SLEEP(600)", "sleeping")
            read = streamed if user == "clerk" else waiting.rows
            rows = pool.submit(read, "SELECT * FROM t", "reading shop.t")
            until(lambda: "reading shop.t takes long: Waiting for table metadata lock" in caplog.text)
            holder.interrupt()
            sleeping.exception(60)
            holder.execute("UNLOCK TABLES", "unlocking")
            assert rows.result(60) == []
            assert shown.format(holder.thread_id) in caplog.text
            assert "sleeping takes long" not in caplog.text


def test_a_wait_for_a_row_is_reported_early_with_its_holder(
    mariadb_database: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(waits, "REPORTED_AFTER", 0.5)
    with (
        ThreadPoolExecutor(1) as pool,
        closing(MysqlConnection(address(mariadb_database))) as holder,
        closing(MysqlConnection(address(mariadb_database))) as waiting,
    ):
        for sql in ("CREATE TABLE t (id int PRIMARY KEY)", "START TRANSACTION", "INSERT INTO t VALUES (1)"):
            holder.execute(sql, "preparing")
        loaded = pool.submit(waiting.execute, "INSERT INTO t VALUES (1)", "loading shop.t")
        held = (
            f"loading shop.t takes long: Waiting for a lock on a row, held by session {holder.thread_id} (user root, "
        )
        until(lambda: held in caplog.text)
        holder.execute("ROLLBACK", "ending")
        assert loaded.result(60) == 1
