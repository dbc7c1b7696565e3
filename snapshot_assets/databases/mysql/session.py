"""Connections to MySQL and MariaDB: settings pinned, one consistent state each, results as rows or as Arrow batches."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import cache, cached_property, partial
from typing import Any, cast

import pyarrow as pa
import pymysql
from pymysql.cursors import DictCursor

from snapshot_assets.databases.mysql import Place, lock_waits, place_of
from snapshot_assets.databases.mysql.failures import LOST, number_of, translating
from snapshot_assets.databases.mysql.texts import escaped, readable
from snapshot_assets.databases.mysql.wire import RowStream
from snapshot_assets.databases.protocol.interruptible import abandonable, interruptible
from snapshot_assets.databases.protocol.lock_waits import reporting_waits
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.errors import ConsistencyLostError, DatabaseDeniedError, DatabaseError, SnapshotError

SQL_MODE = "ANSI_QUOTES,PIPES_AS_CONCAT"
"""Reads identifiers as `databases.sql` writes them; without limits on dates, which a table may hold.

With NO_BACKSLASH_ESCAPES, MySQL cannot open a table whose checks or generated columns have a backslash.
"""

_YEAR = "31536000"
SETTINGS: Mapping[str, str] = {
    "time_zone": "'+00:00'",
    "sql_mode": f"'{SQL_MODE}'",
    "transaction_isolation": "'REPEATABLE-READ'",
    "tx_isolation": "'REPEATABLE-READ'",  # MariaDB before 11.1
    "net_write_timeout": _YEAR,  # a task reads no further while it writes a file
    "net_read_timeout": _YEAR,
    "wait_timeout": _YEAR,
    "max_statement_time": "0",  # MariaDB
    "max_execution_time": "0",  # MySQL
    "idle_transaction_timeout": "0",
    "idle_readonly_transaction_timeout": "0",
    "lock_wait_timeout": "60",
    "sql_select_limit": "18446744073709551615",
    "sql_big_selects": "1",
    "sql_quote_show_create": "1",
    "max_sort_length": "8388608",
    "group_concat_max_len": "4194304",
    "information_schema_stats_expiry": "0",  # MySQL
    "explain_format": "'TRADITIONAL'",  # MySQL
    "lc_time_names": "'en_US'",
}
"""Settings of every session, in SQL; those that a server does not have are left out."""

CONNECT_SECONDS = 30
SOCKET = "socket"
"""Name of the socket in the folder of a held state; see `broker`."""
BEGIN = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"
SAVEPOINT = "snapshots"
"""Name of the savepoint at the begin of a held state: going back to it releases the locks on tables that were read."""
_ALTERED = 1412


def _borrow(connect: Callable[..., Any], name: str, folder: str) -> Any:
    """Connect to the broker in a folder, which needs no password; see `broker`."""
    connection = connect(user="", password=b"", ssl=None, ssl_disabled=True, defer_connect=True)
    broker = socket.socket(socket.AF_UNIX)
    try:
        broker.connect(os.path.join(folder, SOCKET))
        connection.connect(broker)
    except (pymysql.Error, OSError) as error:
        broker.close()
        raise ConsistencyLostError(
            f"{name}: the connections that held the state that this run reads are gone, by a restart of the server, an"
            " administrator, or the end of the run's process. Nothing more is exported in this run; start a new run,"
            f" whose chunks are consistent among themselves. ({error})",
            token=folder,
        ) from None
    return connection


class _Connection(pymysql.connections.Connection):  # type: ignore[misc]
    """A connection for which TLS without a check does not load the system's authorities, which takes 20 ms."""

    def _create_ssl_ctx(self, sslp: ssl.SSLContext | dict[str, Any]) -> ssl.SSLContext:
        return sslp if isinstance(sslp, ssl.SSLContext) else _unchecked()


@cache
def _unchecked() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _tls(place: Place) -> dict[str, Any]:
    """Return the driver's arguments for TLS. Its own ones would check no name with the system's authorities."""
    if place.tls in ("preferred", "disabled"):
        return {"ssl_disabled": place.tls == "disabled"}
    if place.tls == "required":
        return {"ssl": _unchecked()}
    try:
        context = ssl.create_default_context(cafile=place.authorities)
    except OSError as error:
        raise DatabaseDeniedError(
            f"ssl_ca={place.authorities} in the URI of MySQL cannot be read: {error}. Write the path of a PEM file."
        ) from None
    return {"ssl": context}


class MysqlConnection:
    """A connection with pinned settings.

    Args:
        address: Where to connect.
        settings: Settings beside `SETTINGS`, in SQL.
        **arguments: Further arguments of the driver's `connect`.

    Attributes:
        database: The database that the URI names; "" for all.
        version: The server's own text, such as `10.11.6-MariaDB`.
        mariadb: Whether the server is a MariaDB.
    """

    def __init__(self, address: DatabaseAddress, settings: Mapping[str, str] | None = None, **arguments: Any) -> None:
        place = place_of(address.uri)
        self._address = replace(address, consistency=None)
        self.alias, self.database = address.alias, place.database
        self._name = f"MySQL {address.alias!r}"
        self._secrets = (place.password,) if place.password else ()
        self._interrupting = threading.Lock()
        self._busy = False
        self._connect = connect = partial(
            _Connection,
            host=place.host,
            port=place.port,
            user=place.user or None,
            password=(place.password or "").encode(),
            database=place.database or None,
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=CONNECT_SECONDS,
            cursorclass=DictCursor,
            unix_socket=place.unix_socket,
            **_tls(place),
            **arguments,
        )
        if address.consistency is not None:
            connect = partial(_borrow, self._connect, self._name, address.consistency)
        with translating(f"{self._name}: connecting", self._secrets):
            try:
                self._connection = abandonable(connect, lambda connection: connection.close())
            except RuntimeError as error:  # what the driver raises where a package is missing
                raise DatabaseDeniedError(
                    f"{self._name}: connecting failed: {error}. Without TLS, this user's password needs it."
                    " Let the server have TLS, or install that package here and for Spark's executors."
                ) from None
        try:
            self._pin({**SETTINGS, **(settings or {})})
        except BaseException:
            self.close()
            raise

    def _pin(self, settings: Mapping[str, str]) -> None:
        names = ", ".join(f"'{name}'" for name in settings)
        known = self.rows(f"SHOW SESSION VARIABLES WHERE Variable_name IN ({names}, 'version')", "pinning the session")
        values = {row["Variable_name"].lower(): row["Value"] for row in known}
        self.version: str = values["version"]
        self.mariadb = "mariadb" in self.version.lower()
        pinned = (f"SESSION {name} = {value}" for name, value in settings.items() if name in values)
        self.execute(f"SET {', '.join(pinned)}", "pinning the session")

    def translating(self, doing: str) -> AbstractContextManager[None]:
        """Raise the driver's errors inside as the package's own; `doing` is what is done, for messages."""
        return translating(f"{self._name}: {doing}", self._secrets)

    def execute(self, sql: str | bytes, doing: str, parameters: Sequence[object] = ()) -> int:
        """Run a statement, and return the number of rows that it changed.

        Backslashes in the strings of a statement in bytes escape; in all others they are backslashes.
        """
        return self._result(sql, doing, parameters)[0]

    def rows(self, sql: str, doing: str, parameters: Sequence[object] = ()) -> list[dict[str, Any]]:
        """Return a query's rows by column name; `%s` stands for a parameter if there are any."""
        return self._result(sql, doing, parameters)[1]

    def printed(self, sql: str, column: str, doing: str) -> str:
        """Return the statement that SHOW CREATE prints in a column; see `texts.readable`."""
        encoding, self._connection.encoding = self._connection.encoding, "latin1"  # any bytes are texts of it
        try:
            [row] = self._result(sql.encode(), doing, ())[1]
        finally:
            self._connection.encoding = encoding
        return readable(row[column].encode("latin1"))

    def fields(self, sql: str, doing: str) -> list[Any]:
        """Return the columns of a query, as the driver describes them."""
        return self._result(sql, doing, ())[2]

    def _result(
        self, sql: str | bytes, doing: str, parameters: Sequence[object]
    ) -> tuple[int, list[dict[str, Any]], list[Any]]:
        def run() -> tuple[int, list[dict[str, Any]], list[Any]]:
            with self.translating(doing), self._running(doing), self._connection.cursor() as cursor:
                statement = escaped(sql) if isinstance(sql, str) else sql
                changed = cursor.execute(statement, tuple(parameters) or None)
                return changed, list(cursor.fetchall()), getattr(cursor._result, "fields", [])

        return interruptible(run, self.interrupt)

    @contextmanager
    def _running(self, doing: str) -> Iterator[None]:
        self._busy = True
        try:
            with self._watching(doing):
                yield
        finally:
            with self._interrupting:  # KILL must not hit the next statement
                self._busy = False

    def _watching(self, doing: str) -> AbstractContextManager[None]:
        return reporting_waits(f"{self._name}: {doing}", self._describe_wait)

    def _describe_wait(self) -> str:
        with suppress(pymysql.Error, OSError), self._connect() as other, other.cursor() as cursor:
            return lock_waits.describe_wait(cursor, self.thread_id)
        return ""

    def interrupt(self) -> None:
        """End the query that another thread runs, if there is one, over a connection of its own."""
        with self._interrupting:
            if self._busy and self._connection.open:
                self.kill_query()

    def kill_query(self) -> None:
        """End the query that runs, over a connection of its own."""
        with self._connect() as other, other.cursor() as cursor:
            cursor.execute(f"KILL QUERY {self.thread_id}")

    @cached_property
    def beside(self) -> MysqlConnection:
        """Another connection, which reads the present state; it is closed with this one."""
        return MysqlConnection(self._address)

    @property
    def thread_id(self) -> int:
        """The server's number of the connection."""
        return int(self._connection.thread_id())

    @property
    def channel(self) -> socket.socket:
        """What the connection sends and receives by."""
        return cast(socket.socket, self._connection._sock)

    def close(self) -> None:
        """Close the connection."""
        if "beside" in vars(self):
            self.beside.close()
        with suppress(pymysql.Error):
            self._connection.close()


class MysqlSession(MysqlConnection):
    """A connection that reads one state of the tables that have transactions until it is closed.

    Args:
        address: Where to connect; with `consistency`, the session borrows a connection that holds that state.

    Raises:
        ConsistencyLostError: No connection holds the state any more. See `open_database` for others.
    """

    def __init__(self, address: DatabaseAddress) -> None:
        self._shared, self._keeps_locks = address.consistency is not None, False
        super().__init__(address)
        if not self._shared:
            try:
                self.execute(BEGIN, "beginning to read")
            except BaseException:
                self.close()
                raise

    @contextmanager
    def translating(self, doing: str) -> Iterator[None]:
        """Raise the driver's errors; that a table was rebuilt means that the held state of it is gone."""
        try:
            with super().translating(doing):
                yield
        except DatabaseError as error:
            if self._shared and error.attributes.get("errno") == _ALTERED:
                raise ConsistencyLostError(str(error), **error.attributes) from None
            raise

    @contextmanager
    def keeping_locks(self) -> Iterator[None]:
        """Let no one alter the tables that are read until the context ends.

        Otherwise each statement on a held state releases its locks, because the state is held for long: a statement
        that alters a table waits for them, and all others that use the table wait for that.
        """
        self._keeps_locks = True
        try:
            yield
        finally:
            self._keeps_locks = False
            with suppress(SnapshotError):  # a session that was lost has no locks
                self._release()

    def _release(self) -> None:
        if self._shared and not self._keeps_locks:
            super()._result(f"ROLLBACK TO SAVEPOINT {SAVEPOINT}", "releasing locks", ())

    def _result(
        self, sql: str | bytes, doing: str, parameters: Sequence[object]
    ) -> tuple[int, list[dict[str, Any]], list[Any]]:
        found = super()._result(sql, doing, parameters)
        self._release()
        return found

    @contextmanager
    def stream(self, sql: str, doing: str) -> Iterator[Iterator[list[pa.Array]]]:
        """Stream a query's rows as the server sends them; leaving early ends the query."""

        def begin() -> RowStream:
            with self.translating(doing), self._watching(doing):
                return RowStream(self._connection, escaped(sql))

        self._busy = True
        try:
            stream = interruptible(begin, self.interrupt)
            chunks = self._chunks(stream, doing)
            try:
                yield chunks
            finally:
                chunks.close()
                if not stream.ended and self._connection.open:
                    self.interrupt()
                    try:
                        stream.drain()
                    except pymysql.Error as error:
                        if number_of(error) in LOST:
                            self._connection.close()
        finally:
            with self._interrupting:
                self._busy = False

    def _chunks(self, stream: RowStream, doing: str) -> Generator[list[pa.Array], None, None]:
        while True:
            with self.translating(doing):
                chunk = interruptible(stream.read, self.interrupt)
            if chunk is None:
                return
            yield chunk
