"""A database file that is opened read-only, and the state that the file is in."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import duckdb
from duckdb.sqltypes import DuckDBPyType

from snapshot_assets.databases.duckdb.address import memory_limit_of, path_of
from snapshot_assets.databases.duckdb.failures import translated
from snapshot_assets.databases.source import DatabaseAddress
from snapshot_assets.errors import ConsistencyLostError, DatabaseDeniedError, DatabaseError

_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "threads": 2,
    "preserve_insertion_order": False,
    "enable_external_access": False,
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
}


def session_config(uri: str) -> dict[str, str | bool | int | float | list[str]]:
    """Return the settings of a file's connections, the same for all connections of a process.

    Only then does DuckDB give them one instance, and so one file descriptor. DuckDB locks a file with POSIX record
    locks, and a process loses those as soon as it closes any descriptor of that file. For the same reason nothing in
    this package opens the file directly.
    """
    # DuckDB's default, a folder beside the file, may be read-only. Processes that share a folder overwrite each other.
    spill = os.path.join(tempfile.gettempdir(), f"snapshot_assets-duckdb-{os.getpid()}")
    return {**_CONFIG, "memory_limit": memory_limit_of(uri), "temp_directory": spill}


class DuckDBSession:
    """A database file that is open for reading. Meanwhile no process can write to it; see `HeldState`.

    Attributes:
        alias: Public name of the database.
        database: Its name in SQL.
        token: State of the file just before it was opened, which other connections must find too; see `file_state`.

    Raises:
        ConsistencyLostError: The file is not in the state that the address demands.
    """

    def __init__(self, address: DatabaseAddress) -> None:
        self.alias = address.alias
        self._path = path_of(address.uri)
        self.token = file_state(self._path, self.alias)
        if address.consistency is not None and address.consistency != self.token:
            raise ConsistencyLostError(
                f"The file of DuckDB {self.alias!r} is not in the state that this run reads: it was replaced or written"
                f" to (inode:bytes:modified was {address.consistency}, is {self.token}). Start a new run."
            )
        with translated(f"Opening DuckDB {self.alias!r} ({self._path})"):
            self._connection = duckdb.connect(self._path, read_only=True, config=session_config(address.uri))
        try:
            self.database: str = self.rows("SELECT current_database()")[0][0]
        except BaseException:
            self._connection.close()
            raise

    @contextmanager
    def cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield a separate connection with pinned settings, for one statement at a time."""
        cursor = self._connection.cursor()
        try:
            with self.translated("pinning the session"):
                # DuckDB prints and casts times in the session's zone. It needs ICU, which its wheels contain.
                cursor.execute("SET TimeZone = 'UTC'")
            yield cursor
        finally:
            cursor.close()

    def translated(self, doing: str) -> AbstractContextManager[None]:
        """Raise DuckDB's errors inside as the package's own; only DuckDB's calls may run inside.

        Args:
            doing: The operation, such as `reading main.orders`.
        """
        return translated(f"DuckDB {self.alias!r}: {doing}")

    def rows(self, query: str, parameters: Sequence[object] = (), doing: str = "reading the catalog") -> list[Any]:
        """Return all rows of a query."""
        with self.cursor() as cursor, self.translated(doing):
            return cursor.execute(query, list(parameters)).fetchall()

    def records(self, query: str, parameters: Sequence[object] = ()) -> list[dict[str, Any]]:
        """Return all rows of a query of DuckDB's catalog, by column name."""
        with self.cursor() as cursor, self.translated("reading the catalog"):
            return named_rows(cursor.execute(query, list(parameters)))

    def types(self, query: str, doing: str) -> dict[str, DuckDBPyType]:
        """Return the columns of a query and their types, without running it."""
        with self.cursor() as cursor, self.translated(doing):
            relation = cursor.sql(query)
            return dict(zip(relation.columns, relation.types, strict=True))

    def check(self) -> None:
        """Check that the path still leads to the file that was opened.

        Raises:
            ConsistencyLostError: The file was replaced or written to.
        """
        found = file_state(self._path, self.alias)
        if found != self.token:
            raise ConsistencyLostError(
                f"The file of DuckDB {self.alias!r} was replaced or written to while it was held"
                f" (inode:bytes:modified was {self.token}, is {found}). Start a new run."
            )

    def close(self) -> None:
        """Close the connection; the file is released with the last one of the process."""
        self._connection.close()


def named_rows(cursor: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """Return the rows of the query that a connection has just run, by column name."""
    names = [column[0] for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def file_state(path: str, alias: str) -> str:
    """Return the state of a database file and its write-ahead log: `inode:bytes:modified` of each.

    It comes from the file system, without opening the file; see `session_config`.

    Raises:
        DatabaseDeniedError: The file may not be read.
        DatabaseError: There is no such file.
    """
    try:
        if not os.path.isfile(path):
            found = "it is a folder" if os.path.isdir(path) else "it does not exist"
            raise DatabaseError(f"DuckDB {alias!r}: {path!r} is not a database file: {found}. Check the URI.")
        states = [os.stat(path)]
        if os.path.exists(f"{path}.wal"):
            states.append(os.stat(f"{path}.wal"))
    except PermissionError as error:
        raise DatabaseDeniedError(f"DuckDB {alias!r}: {path!r} may not be read: {error.strerror}.") from error
    return "+".join(f"{state.st_ino}:{state.st_size}:{state.st_mtime_ns}" for state in states)
