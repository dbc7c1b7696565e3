"""One connection that reads one state of the database, with every setting pinned that values' text depends on.

The session is one read-only REPEATABLE READ transaction, so that everything one `Database` reads belongs together.
Behind a savepoint set at its very start an error does not cost it its state.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import adbc_driver_manager
import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa

from snapshot_assets.databases.postgresql.failures import connect_failure, is_headless, translated
from snapshot_assets.databases.postgresql.sql import literal
from snapshot_assets.databases.source import DatabaseAddress
from snapshot_assets.errors import ConsistencyLostError, DatabaseUnavailableError, SnapshotError

SETTINGS = {
    # The text of values. A restore must read it under the same settings.
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "lc_monetary": "C",
    "xmlbinary": "base64",
    "xmloption": "content",
    "quote_all_identifiers": "off",
    "standard_conforming_strings": "on",
    # Only what is in pg_catalog is named without its schema, as in pg_dump.
    "search_path": "",
    # A policy that would hide rows is an error, not a smaller table.
    "row_security": "off",
    # A chunk may take as long as it takes; a session that holds a state is idle for hours.
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    "transaction_timeout": "0",
    # Compiling costs more than it gains in plain scans.
    "jit": "off",
}
"""What every session sets before it reads a value; settings the server does not know are left out."""

BATCH_BYTES = 8 << 20
"""Size at which the driver ends a batch. Between 1 and 16 MiB the speed is the same, beyond it falls."""

WITHOUT_COPY = {"adbc.postgresql.use_copy": "false"}
"""Options of a statement that is not run through COPY, of which the driver loses an error before the first row."""

_DRIVER_ERRORS = (adbc_driver_manager.Error, pa.ArrowException, OSError)
_BEGIN = "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"


def secrets_of(uri: str) -> tuple[str, ...]:
    """Return what a URI holds of passwords, as written and decoded, longest first.

    A password whose `/`, `?`, `#`, `@` or `:` was not encoded is taken apart by libpq, which then complains of the
    pieces: they are secret too.
    """
    password = uri.partition("://")[2].rpartition("@")[0].partition(":")[2]
    found = {password, *re.split(r"[/?#@:]", password)}
    with suppress(ValueError):
        options = parse_qs(urlsplit(uri).query)
        found.update(value for name in ("password", "sslpassword") for value in options.get(name, ()))
    found |= {unquote(value) for value in found}
    return tuple(sorted(filter(None, found), key=len, reverse=True))


def pinning(settings: Mapping[str, str]) -> str:
    """Return the query that makes those of the settings that the server knows."""
    values = ", ".join(f"({literal(name.lower())}, {literal(value)})" for name, value in settings.items())
    return (
        "SELECT pg_catalog.set_config(s.name, v.value, false) FROM pg_catalog.pg_settings s"
        f" JOIN (VALUES {values}) v (name, value) ON pg_catalog.lower(s.name) = v.name"
    )


class Session:
    """One connection.

    Args:
        address: Where to; with `consistency`, the session reads that exported snapshot.
        exports: Whether the session's own state is to be exported. Then an error ends it, because PostgreSQL exports
            nothing from behind a savepoint.

    Attributes:
        recoveries: How often an error took back what held until then, such as locks on tables.

    Raises:
        DatabaseUnavailableError: The server cannot be reached.
        DatabaseDeniedError: It refused the user or password.
        ConsistencyLostError: The exported snapshot is gone.
    """

    def __init__(self, address: DatabaseAddress, *, exports: bool = False) -> None:
        self._name = f"PostgreSQL {address.alias!r}"
        self._secrets = secrets_of(address.uri)
        self.recoveries = 0
        self._connection = self._connect(address)
        try:
            self._pin()
            self.execute(_BEGIN, "beginning to read")
            if address.consistency is not None:
                self._join(address.consistency)
            if not exports:
                self.execute("SAVEPOINT start", "beginning to read")
        except BaseException:
            self.close()
            raise

    def _connect(self, address: DatabaseAddress) -> adbc.Connection:
        try:
            return adbc.connect(address.uri, autocommit=True)
        except _DRIVER_ERRORS as error:
            raise connect_failure(error, address.alias, self._secrets) from None

    def _pin(self) -> None:
        self.rows(pinning(SETTINGS), "pinning the session")

    def _join(self, token: str) -> None:
        try:
            self.execute(f"SET TRANSACTION SNAPSHOT {literal(token)}", "joining the snapshot")
        except DatabaseUnavailableError:
            raise
        except SnapshotError as error:
            raise ConsistencyLostError(
                f"{self._name}: the exported snapshot {token!r} that this run reads is gone: the session that held it"
                " has ended. Nothing more is exported in this run; start a new run, whose chunks are consistent among"
                f" themselves. ({error})",
                token=token,
            ) from None

    def execute(self, statement: str, doing: str) -> None:
        """Run a statement without a result.

        Args:
            statement: SQL.
            doing: What for, as a message says it.
        """
        with self._translating(doing), self._connection.cursor() as cursor:
            cursor.execute(statement)

    def rows(self, query: str, doing: str) -> list[dict[str, Any]]:
        """Return a query's rows by column name.

        Args:
            query: SQL.
            doing: What for, as a message says it.
        """
        with self._translating(doing), self._connection.cursor() as cursor:
            cursor.adbc_statement.set_options(**WITHOUT_COPY)
            cursor.execute(query)
            found: list[dict[str, Any]] = cursor.fetch_arrow_table().to_pylist()
            return found

    def _run_outside_copy(self, query: str, doing: str) -> None:
        """Run a query for its error: its rows come over the connection and are not looked at."""
        with self._translating(doing), self._connection.cursor() as cursor:
            cursor.adbc_statement.set_options(**WITHOUT_COPY)
            cursor.execute(query)

    @contextmanager
    def stream(self, query: str, doing: str) -> Iterator[Iterator[pa.RecordBatch]]:
        """Stream a query's batches as the driver gives them; leaving early cancels the query."""
        with self._connection.cursor() as cursor:
            with self._translating(doing, query):
                cursor.adbc_statement.set_options(
                    **{"adbc.postgresql.batch_size_hint_bytes": str(BATCH_BYTES)},
                )
                cursor.execute(query)
                reader = cursor.fetch_record_batch()
            source = _Source(reader)
            try:
                yield self._batches(source, doing, query)
            finally:
                if not source.drained:
                    self._abandon(cursor, reader)

    def _batches(self, source: _Source, doing: str, query: str) -> Iterator[pa.RecordBatch]:
        while True:
            with self._translating(doing, query):
                batch = source.next()
            if batch is None:
                return
            yield batch

    def _abandon(self, cursor: adbc.Cursor, reader: pa.RecordBatchReader) -> None:
        """End a query whose rows nobody wants: without a cancel, the next statement would first read them all."""
        with suppress(*_DRIVER_ERRORS):
            cursor.adbc_cancel()
            for _ in reader:
                pass
        self._recover()

    @contextmanager
    def _translating(self, doing: str, streamed: str = "") -> Iterator[None]:
        try:
            yield
        except _DRIVER_ERRORS as error:
            alive = self._recover()
            if streamed and alive and is_headless(error):
                self._fail_again(streamed, doing)
            raise translated(error, f"{self._name}: {doing}", self._secrets, alive) from None

    def _fail_again(self, query: str, doing: str) -> None:
        """Run a query once more in the same state, for the error that the driver lost.

        It costs what the query cost until it failed: ANALYZE runs the plan that COPY ran, and the server drops the
        rows. That fetches no long value and writes none, so where it passes, the first row is read as well, outside
        COPY. Nothing can change, for the transaction is read-only.

        Raises:
            SnapshotError: The query failed again, with the server's own error.
        """
        self.rows(f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) {query}", doing)
        self._run_outside_copy(f"SELECT * FROM ({query}) AS again LIMIT 1", doing)

    def _recover(self) -> bool:
        """Go back to the state's beginning, and tell whether there was a connection and a beginning to go back to."""
        self.recoveries += 1
        # A cancel may reach the server late and hit the first statement after the one it was meant for.
        return self._went_back() or self._went_back()

    def _went_back(self) -> bool:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute("ROLLBACK TO SAVEPOINT start")
        except _DRIVER_ERRORS:
            return False
        return True

    def close(self) -> None:
        """Close the connection; cursors are closed where they are used."""
        self._connection.close()


class _Source:
    """A reader that knows whether it came to its end, by rows or by an error."""

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self._reader = reader
        self.drained = False

    def next(self) -> pa.RecordBatch | None:
        try:
            batch: pa.RecordBatch = self._reader.read_next_batch()
        except StopIteration:
            self.drained = True
            return None
        except BaseException:
            self.drained = True
            raise
        return batch
