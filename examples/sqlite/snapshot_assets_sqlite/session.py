"""One connection to a file: its settings, its errors, and the state that it holds."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.databases.protocol.time_column import known_zone
from snapshot_assets.errors import ConsistencyLostError, DatabaseError, DatabaseLockedError, DatabaseUnavailableError
from snapshot_assets_sqlite import path_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Session:
    """A connection. `snapshots_us(text, zone)` is an SQL function: the microseconds since 1970 of a local time."""

    def __init__(self, address: DatabaseAddress, *, hold: bool = False) -> None:
        self.alias, self._path = address.alias, path_of(address.uri)
        mode = "rw" if hold else "ro"
        with self.translated("opening the file"):
            if not os.path.isfile(self._path):
                raise DatabaseError(f"SQLite {self.alias!r}: there is no file {self._path}. Correct the source's URI.")
            uri = f"file:{quote(self._path)}?mode={mode}"
            self._connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
        try:
            with self.translated("opening the file"):
                # The first read begins the connection's state; a holder keeps all others from writing.
                self._connection.execute("BEGIN IMMEDIATE" if hold else "BEGIN")
                self._connection.create_function("snapshots_us", 2, _microseconds, deterministic=True)
                self._connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
            self.state = self._file_state()
        except BaseException:
            self.close()
            raise

    token = None
    """A holder's: connections read the one state because nothing can write, and need not name it."""
    unshared = ""

    def check(self) -> None:
        """Raise a `ConsistencyLostError` if the file is another one than that which was opened."""
        if self._file_state() != self.state:
            raise ConsistencyLostError(f"SQLite {self.alias!r} was replaced while it was read. Start a new run.")

    def rows(self, sql: str, doing: str) -> list[tuple[Any, ...]]:
        """Return all rows of a statement."""
        with self.translated(doing):
            return self._connection.execute(sql).fetchall()

    @contextmanager
    def cursor(self, sql: str, doing: str) -> Iterator[sqlite3.Cursor]:
        """Run a statement, and yield its rows as they are read."""
        with self.translated(doing):
            cursor = self._connection.execute(sql)
            try:
                yield cursor
            finally:
                cursor.close()

    def interrupt(self) -> None:
        """End what another thread runs."""
        self._connection.interrupt()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @contextmanager
    def translated(self, doing: str) -> Iterator[None]:
        """Raise an error of SQLite as one of the package, which says whether another attempt may succeed."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorname", "")
            kind = DatabaseUnavailableError if code.startswith("SQLITE_IOERR") else DatabaseError
            if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                kind = DatabaseLockedError
            raise kind(f"SQLite {self.alias!r}: {doing} failed: {error}.", code=code) from error

    def _file_state(self) -> str:
        """Return `inode:bytes:modified` of the file and of its write-ahead log, which has the newest rows."""
        states = []
        for path in (self._path, f"{self._path}-wal"):
            if os.path.exists(path):
                found = os.stat(path)
                states.append(f"{found.st_ino}:{found.st_size}:{found.st_mtime_ns}" if found.st_size else "")
        return " ".join(filter(None, states))


def _microseconds(text: str | None, zone: str) -> int | None:
    if text is None:
        return None
    moment = datetime.fromisoformat(text).replace(tzinfo=known_zone(zone))
    return (moment.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)
