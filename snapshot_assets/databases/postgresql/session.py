"""Connections with pinned settings, and sessions that read one state of the database.

A session is one read-only REPEATABLE READ transaction, so all that one `Database` reads belongs to one state. A
savepoint at its start lets it keep that state after an error.

Statements contain their values: with bound parameters the driver would not use COPY, but a much slower protocol.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from snapshot_assets.databases.postgresql.connect import SETTINGS, connect
from snapshot_assets.databases.postgresql.failures import (
    NO_NUL,
    NOT_UTF8,
    connect_failure,
    fields_of,
    lacks_state,
    translated,
)
from snapshot_assets.databases.postgresql.lock_waits import describe_wait
from snapshot_assets.databases.postgresql.partial_servers import LACKING, NO_SOURCE, NOT_SHARED
from snapshot_assets.databases.protocol.encodings import valid_start
from snapshot_assets.databases.protocol.interruptible import abandonable, interruptible
from snapshot_assets.databases.protocol.lock_waits import reporting_waits
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.databases.sql import literal, qualified
from snapshot_assets.errors import ConsistencyLostError, DatabaseError, DatabaseUnavailableError, SnapshotError
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.scrub import secrets_of

if TYPE_CHECKING:
    import adbc_driver_postgresql.dbapi as adbc

_BATCH_BYTES = 8 << 20
"""Size at which the driver ends a batch. It reads equally fast from 1 to 16 MiB, and slower beyond."""

JOINED_LOCK_WAIT = "60s"
"""How long a session that shares a snapshot waits for a lock.

Other sessions of the run hold locks until their tasks end. `VACUUM FULL` or `ALTER TABLE` waits for these, and a task
that starts then waits for the statement. The server cannot see that these sessions wait for each other.
"""

_WITHOUT_COPY = {"adbc.postgresql.use_copy": "false"}
"""Statement options: with COPY, the driver loses an error that occurs before the first row."""

_NO_REMEDIES: Mapping[str, str] = MappingProxyType({})

_FIRST_ROWS, _MOST_GROWTH = 64, 8
"""Rows of a cursor that are fetched at first, and by what their number grows at most: later rows may be larger."""

_BEGIN = "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"
_SHOWN_ROW = 200


@cache
def _driver_errors() -> tuple[type[Exception], ...]:
    import adbc_driver_manager  # only sessions need it: other databases and definitions do without

    return adbc_driver_manager.Error, pa.ArrowException, OSError


def oid_array(oids: Iterable[int]) -> str:
    """Return an `oid[]` constant."""
    return f"'{{{','.join(map(str, oids))}}}'::pg_catalog.oid[]"


class PostgresqlConnection:
    """A connection with pinned settings; see `open_database` for its errors.

    Attributes:
        lacking: By kinds of objects that the server does not describe, its reason.
    """

    _selects: ClassVar[bool] = False
    """Whether it reads tables that the plan may leave out."""

    def __init__(self, address: DatabaseAddress, settings: Mapping[str, str] = SETTINGS) -> None:
        self._name = f"PostgreSQL {address.alias!r}"
        self._secrets = secrets_of(address.uri)
        self._describe_wait: Callable[[], str] = str  # "" until the server has named the session
        self._prepared: tuple[str, ...] = ()
        self._cursor: adbc.Cursor | None = None
        self._interrupted = self._standby = False
        self.lacking: dict[str, str] = {}
        self._cancelling = threading.Lock()
        try:
            # Statements begin and end transactions: after an error, the driver would not begin its own again.
            self._connection = abandonable(
                lambda: connect(address.uri, settings), lambda connection: connection.close()
            )
        except _driver_errors() as error:
            raise connect_failure(error, address.alias, self._secrets) from None
        values = ", ".join(f"({literal(name)}, {literal(value)})" for name, value in settings.items())
        query = (
            "SELECT pg_catalog.set_config(v.name, v.value, false), pg_catalog.pg_is_in_recovery() AS standby,"
            " pg_catalog.pg_backend_pid() AS pid, pg_catalog.pg_postmaster_start_time() AS started"
            f" FROM (VALUES {values}) v (name, value) WHERE pg_catalog.current_setting(v.name, true) IS NOT NULL"
        )
        try:
            pinned = self.rows(query, "pinning the session", NO_SOURCE)[0]
            self._standby = pinned["standby"]
            self._describe_wait = partial(describe_wait, address.uri, pinned["pid"], pinned["started"])
        except BaseException:
            self.close()
            raise

    @contextmanager
    def cursor(self) -> Iterator[adbc.Cursor]:
        """Yield a cursor that `interrupt` reaches."""
        with self._connection.cursor() as cursor:
            self._cursor = cursor
            try:
                yield cursor
            finally:
                with self._cancelling:  # a cursor that is being cancelled must not be closed
                    self._cursor = None

    def interrupt(self) -> None:
        """Cancel the query that another thread runs, if there is one."""
        self._interrupted = True
        with self._cancelling:
            if self._cursor is not None:
                self._cursor.adbc_cancel()

    def execute(self, sql: str, doing: str, remedies: Mapping[str, str] = _NO_REMEDIES) -> None:
        """Run a statement without a result; `doing` is its purpose, and `remedies` are its own, for messages."""

        def execute() -> None:
            with self._translating(doing, sql, remedies), self._watching(doing):
                self._try_statement(sql)

        interruptible(execute, self.interrupt)

    def rows(
        self, sql: str, doing: str, remedies: Mapping[str, str] = _NO_REMEDIES, *, optional: str = ""
    ) -> list[dict[str, Any]]:
        """Return a query's rows by column name; `doing` and `remedies` are as in `execute`.

        Where the server lacks a relation or function, a query of an `optional` kind of objects has no rows, and the
        kind is in `lacking`.
        """

        def rows(query: str) -> list[dict[str, Any]]:
            with self._translating(doing, query, remedies), self._watching(doing), self._statement(query) as cursor:
                found: list[dict[str, Any]] = cursor.fetch_arrow_table().to_pylist()
                return found

        try:
            return interruptible(partial(rows, sql), self.interrupt)
        except SnapshotError as error:
            if optional and error.attributes.get("sqlstate") in LACKING:
                self.lacking[optional] = error.attributes["reason"].partition(". HINT:")[0]
                return []
            if error.attributes.get("sqlstate") != NOT_UTF8 or not sql.lstrip().startswith(("SELECT", "WITH")):
                raise
            # One row that is no UTF-8, with its other bytes escaped.
            shown = "pg_catalog.encode(pg_catalog.convert_to(found::pg_catalog.text, 'SQL_ASCII'), 'escape')"
            odd = f'found::pg_catalog.text COLLATE pg_catalog."C" !~ {literal(valid_start(None) + "$")}'
            again = f"SELECT pg_catalog.left({shown}, {_SHOWN_ROW}) AS row FROM ({sql}) AS found WHERE {odd} LIMIT 1"
            invalid = interruptible(partial(rows, again), self.interrupt)
            if not invalid:
                raise
            raise DatabaseError(
                f"{self._name}: {doing} failed: a row is no UTF-8: {invalid[0]['row']}. The database's encoding is"
                " SQL_ASCII, which does not define its characters. Change that name, comment, label or SQL in the"
                " database: definitions must be UTF-8, and ASCII if the source has `encoding`.",
                **error.attributes,
            ) from None

    def copy(self, table: TableName, rows: pa.Table | pa.RecordBatchReader) -> None:
        """Copy rows into a table; a temporary one has the schema `pg_temp`."""
        sql = f"COPY {qualified(table)} FROM STDIN"
        doing = f"loading {table}"
        with self._translating(doing, sql, NO_NUL), self._watching(doing), self.cursor() as cursor:
            cursor.adbc_ingest(table.table, rows, mode="append", db_schema_name=table.schema)

    def _watching(self, doing: str) -> AbstractContextManager[None]:
        def describe() -> str:
            with suppress(*_driver_errors()):
                return self._describe_wait()
            return ""

        return reporting_waits(f"{self._name}: {doing}", describe)

    @contextmanager
    def _statement(self, sql: str) -> Iterator[adbc.Cursor]:
        with self.cursor() as cursor:
            cursor.adbc_statement.set_options(**_WITHOUT_COPY)
            cursor.execute(sql)
            yield cursor

    @contextmanager
    def _translating(
        self, doing: str, sql: str, remedies: Mapping[str, str] = _NO_REMEDIES, *, streams: bool = False
    ) -> Iterator[None]:
        """Translate the driver's errors; that of a query that `streams` may be lost, so the query runs again."""
        try:
            yield
        except _driver_errors() as error:
            answers = self._recover()
            again = streams and answers and not self._interrupted and lacks_state(error)
            found = self._failing_again(sql, doing) if again else error
            answers = self._recover() if again and found is not None else answers
            raise translated(
                found or error,
                f"{self._name}: {doing}",
                sql,
                self._secrets,
                answers=answers,
                standby=self._standby,
                selects=self._selects,
                passes=found is None,
                remedies=remedies,
            ) from None

    def _failing_again(self, query: str, doing: str) -> Exception | None:
        """Run a query again in the same state, and return the error that the driver lost; None if it succeeds."""
        # EXPLAIN ANALYZE runs COPY's plan, but neither fetches long values nor prints any. If it succeeds, all values
        # are read too, outside COPY. Only read-only transactions stream, so nothing changes.
        for again in (
            f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) {query}",
            f"SELECT pg_catalog.count(pg_catalog.record_send(again)) FROM ({query}) AS again",
        ):
            self.prepare(self._prepared, doing)
            try:
                interruptible(partial(self._try_statement, again), self.interrupt)
            except _driver_errors() as error:
                return error
        return None

    def _try_statement(self, sql: str) -> None:
        with self._statement(sql):
            pass

    def prepare(self, statements: Sequence[str], doing: str) -> None:
        """Run statements that the next query needs; they run again if it does."""
        self._prepared = tuple(statements)
        for statement in statements:
            self.execute(statement, doing)

    def _recover(self) -> bool:
        """Make the connection usable after an error, and return whether it is."""
        try:
            self._try_statement("SELECT 1")
        except _driver_errors() as error:
            return bool(fields_of(error))  # the server answers, but refuses all in a transaction that failed
        return True

    def close(self) -> None:
        """Close the connection; cursors are closed where they are used."""
        self._connection.close()


class PostgresqlSession(PostgresqlConnection):
    """A connection that reads one state of the database.

    Args:
        address: Where to connect; with `consistency`, the session reads that exported snapshot.

    Attributes:
        recoveries: Number of errors after which the session went back to its start and lost its locks.

    Raises:
        ConsistencyLostError: The exported snapshot is gone. See `open_database` for others.
    """

    _selects = True

    def __init__(self, address: DatabaseAddress) -> None:
        self.recoveries, self._copies = 0, address.copy
        super().__init__(address)
        try:
            self.execute(_BEGIN, "beginning to read")
            if address.consistency is not None:
                try:
                    sql = f"SET TRANSACTION SNAPSHOT {literal(address.consistency)}"
                    self.execute(sql, "joining the snapshot", NOT_SHARED)
                except DatabaseUnavailableError:
                    raise
                except SnapshotError as error:
                    if error.attributes.get("sqlstate") in NOT_SHARED:
                        raise
                    raise ConsistencyLostError(
                        f"{self._name}: the exported snapshot {address.consistency!r} that this run reads is gone: the"
                        " session that held it has ended. Nothing more is exported in this run; start a new run, whose"
                        f" chunks are consistent among themselves. ({error})",
                        token=address.consistency,
                    ) from None
            self._start(shared=address.consistency is not None)
        except BaseException:
            self.close()
            raise

    def export(self) -> str:
        """Read the present state from here on, export it until the session ends, and return its name."""
        doing = "exporting the snapshot"
        self.execute("ROLLBACK", doing)  # PostgreSQL exports nothing after a savepoint
        self.execute(_BEGIN, doing)
        token: str = self.rows("SELECT pg_catalog.pg_export_snapshot() AS token", doing, NOT_SHARED)[0]["token"]
        self._start(shared=True)
        return token

    def _start(self, *, shared: bool) -> None:
        doing = "beginning to read"
        if shared:
            self.execute(f"SET LOCAL lock_timeout = '{JOINED_LOCK_WAIT}'", doing)
        self.execute("SAVEPOINT start", doing)

    @contextmanager
    def stream(self, query: str, doing: str) -> Iterator[Iterator[pa.RecordBatch]]:
        """Stream a query's batches as the driver returns them; leaving early cancels the query."""
        if not self._copies:
            batches = self._fetched(query, doing)
            try:
                yield batches
            finally:
                if inspect.getgeneratorstate(batches) != inspect.GEN_CLOSED:
                    self._recover()
            return
        with self.cursor() as cursor:
            with self._translating(doing, query, streams=True):
                cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(_BATCH_BYTES)})
                cursor.execute(query)
                reader = cursor.fetch_record_batch()
            batches = self._batches(reader, query, doing)
            try:
                yield batches
            finally:
                if inspect.getgeneratorstate(batches) != inspect.GEN_CLOSED:  # neither at its end nor failed
                    with suppress(*_driver_errors()):
                        cursor.adbc_cancel()
                        for _ in reader:  # else the next statement would first read the remaining rows
                            pass
                    self._recover()

    def _batches(self, reader: pa.RecordBatchReader, query: str, doing: str) -> Generator[pa.RecordBatch, None, None]:
        while True:
            with self._translating(doing, query, streams=True):
                batch = next(reader, None)
            if batch is None:
                return
            yield batch

    def _fetched(self, query: str, doing: str) -> Generator[pa.RecordBatch, None, None]:
        """Yield a query's batches without COPY, by a cursor: the driver would hold all rows of one result."""
        self.execute(f"DECLARE scanned NO SCROLL CURSOR FOR {query}", doing)
        count = _FIRST_ROWS
        while count:
            with self._translating(doing, query), self._statement(f"FETCH {count} FROM scanned") as cursor:
                rows = cursor.fetch_arrow_table()
            yield from rows.to_batches()
            fitting = max(_BATCH_BYTES * rows.num_rows // max(rows.nbytes, 1), 1)
            count = min(fitting, count * _MOST_GROWTH) if rows.num_rows else 0
        self.execute("CLOSE scanned", doing)

    def _recover(self) -> bool:
        """Go back to the start of the state, and return whether that succeeded."""
        self.recoveries += 1
        for _ in range(2):  # a late cancel may hit the first statement after the one that it was meant for
            with suppress(*_driver_errors()), self._connection.cursor() as cursor:
                cursor.execute("ROLLBACK TO SAVEPOINT start")
                return True
        return False
