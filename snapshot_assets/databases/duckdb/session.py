"""One database file, opened read-only, and the state of the file that it was opened in."""

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
    """Return the settings of a file's connections, the same for all of a process.

    Only then does DuckDB give them one instance, and so one file descriptor. DuckDB locks a file with POSIX record
    locks, and a process loses those as soon as it closes any descriptor of that file. For the same reason nothing in
    this package opens the file by itself.
    """
    # Beside the file, DuckDB's own choice, may be read-only; one folder for several processes, they overwrite.
    spill = os.path.join(tempfile.gettempdir(), f"snapshot_assets-duckdb-{os.getpid()}")
    return {**_CONFIG, "memory_limit": memory_limit_of(uri), "temp_directory": spill}


class DuckDBSession:
    """An open database file.

    Attributes:
        alias: Public name of the database.
        state: What the file looked like just before it was opened; see `file_state`.
    """

    def __init__(self, address: DatabaseAddress) -> None:
        self.alias = address.alias
        self._path = path_of(address.uri)
        self.state = file_state(self._path, self.alias)
        if address.consistency is not None and address.consistency != self.state:
            raise ConsistencyLostError(
                f"The file of DuckDB {self.alias!r} is not the one this run began with: it was replaced or written to"
                f" (inode:bytes:modified was {address.consistency}, is {self.state}). Start a new run."
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
        """Yield a connection of its own, for one statement at a time, in the pinned session settings."""
        cursor = self._connection.cursor()
        try:
            with self.translated("pinning the session"):
                # Dates and times are printed and cast in the session's zone. Needs ICU, which DuckDB's wheels hold.
                cursor.execute("SET TimeZone = 'UTC'")
            yield cursor
        finally:
            cursor.close()

    def translated(self, doing: str) -> AbstractContextManager[None]:
        """Raise what DuckDB raises inside as the package's own errors.

        Never around code of others: their errors would be taken for the database's.

        Args:
            doing: What is being done.
        """
        return translated(f"DuckDB {self.alias!r}: {doing}")

    def rows(self, query: str, parameters: Sequence[object] = (), doing: str = "reading the catalog") -> list[Any]:
        """Return all rows of a query."""
        with self.cursor() as cursor, self.translated(doing):
            return cursor.execute(query, list(parameters)).fetchall()

    def types(self, query: str, doing: str) -> dict[str, DuckDBPyType]:
        """Return the columns of a query and their types, without running it."""
        with self.cursor() as cursor, self.translated(doing):
            relation = cursor.sql(query)
            return dict(zip(relation.columns, relation.types, strict=True))

    def check_state(self) -> None:
        """Make sure that the path still leads to the file that was opened.

        Raises:
            ConsistencyLostError: It was replaced or written to.
        """
        found = file_state(self._path, self.alias)
        if found != self.state:
            raise ConsistencyLostError(
                f"The file of DuckDB {self.alias!r} was replaced or written to while it was held"
                f" (inode:bytes:modified was {self.state}, is {found}). Start a new run."
            )

    def close(self) -> None:
        """Close the connection; the file is released with the last one of the process."""
        self._connection.close()


def file_state(path: str, alias: str) -> str:
    """Return what tells one state of a database file and its write-ahead log from another.

    From the file system alone, for the reason above: `inode:bytes:modified` of the file, and of its log if it has one.

    Raises:
        DatabaseDeniedError: The file may not be looked at.
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
