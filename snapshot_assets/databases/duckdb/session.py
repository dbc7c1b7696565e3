"""Connections to DuckDB files: settings, catalog queries, DuckDB's errors, and the state that a file is in."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import duckdb
import pyarrow as pa
from duckdb.sqltypes import DuckDBPyType

from snapshot_assets.databases.duckdb import memory_limit_of, path_of
from snapshot_assets.databases.protocol.interruptible import interruptible
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.databases.sql import qualified
from snapshot_assets.errors import (
    ConsistencyLostError,
    DatabaseDeniedError,
    DatabaseError,
    DatabaseLockedError,
    UnsupportedTypeError,
)
from snapshot_assets.format.relations import TableName
from snapshot_assets.scratch_folders import process_folder

CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "threads": 2,
    "preserve_insertion_order": False,
    "enable_external_access": False,
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
}
"""Settings of every connection."""

_SCHEMAS = "SELECT oid, schema_name, parent_schema_oid FROM duckdb_schemas() WHERE database_name = ?"
_LOCKED = re.compile(r"Could not set lock on file.*?Conflicting lock is held in (.+? \(PID \d+\).*?)\.", re.DOTALL)
_LONGEST = 1000
_MEMORY_LIMIT = "192MiB"  # a task has 512 MiB; Arrow and the file that is being written share the rest
# The last two are the messages of a commit that runs out of memory.
_MEMORY = re.compile("Out of Memory Error|failed to pin block|could not allocate block|Failed to delete all rows from")


def session_config(uri: str) -> dict[str, str | bool | int | float | list[str]]:
    """Return the settings of a file's connections, the same for all connections of a process.

    Only then does DuckDB give them one instance, and so one file descriptor. DuckDB locks a file with POSIX record
    locks, and a process loses those as soon as it closes any descriptor of that file. For the same reason nothing in
    this package opens the file directly.
    """
    # DuckDB's default, a folder beside the file, may be read-only. Processes that share a folder overwrite each other.
    spill = str(process_folder() / "duckdb")
    return {**CONFIG, "memory_limit": memory_limit_of(uri) or _MEMORY_LIMIT, "temp_directory": spill}


class DuckDBConnection:
    """An open database file.

    Attributes:
        alias: Public name of the database.
        database: Its name in SQL.
    """

    alias: str
    database: str

    def cursor(self) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        """Yield the connection for one statement."""
        raise NotImplementedError

    def translated(self, doing: str) -> AbstractContextManager[None]:
        """Raise DuckDB's errors inside as the package's own; only DuckDB's calls may run inside."""
        return translated(f"DuckDB {self.alias!r}: {doing}")

    def rows(self, query: str, parameters: Sequence[object] = (), doing: str = "reading the catalog") -> list[Any]:
        """Return all rows of a query."""
        with self.cursor() as cursor, self.translated(doing):
            return interruptible(lambda: cursor.execute(query, list(parameters)).fetchall(), cursor.interrupt)

    def records(
        self, query: str, parameters: Sequence[object] = (), doing: str = "reading the catalog"
    ) -> list[dict[str, Any]]:
        """Return all rows of a query by column name."""
        with self.cursor() as cursor, self.translated(doing):
            rows = interruptible(lambda: cursor.execute(query, list(parameters)).fetchall(), cursor.interrupt)
            names = [column[0] for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in rows]

    def types(self, query: str, doing: str) -> dict[str, DuckDBPyType]:
        """Return the columns of a query and their types, without running it."""
        with self.cursor() as cursor, self.translated(doing):
            relation = cursor.sql(query)
            return dict(zip(relation.columns, relation.types, strict=True))

    def column_types(self, name: TableName) -> dict[str, DuckDBPyType]:
        """Return the columns of a table or view and their types.

        Raises:
            DatabaseError: It is a view that does not work, or reads files outside the database.
        """
        return self.types(f"FROM {self.relation(name)}", f"reading the columns of {name}")

    def relation(self, name: TableName) -> str:
        """Return the quoted, fully qualified name of a table or view."""
        return qualified((self.database, *name))

    def schema_names(self) -> dict[int, str]:
        """Return the names of the schemas by DuckDB's object id.

        Raises:
            UnsupportedTypeError: A schema is inside another one; documents have no names for these.
        """
        names = {}
        for oid, name, outer in self.rows(_SCHEMAS, [self.database]):
            if outer is not None:
                raise UnsupportedTypeError(
                    f"DuckDB {self.alias!r}: schema {name!r} is inside another schema, which is not supported. Move its"
                    " tables into a schema of the database itself.",
                    schema=name,
                )
            names[oid] = name
        return names


class DuckDBSession(DuckDBConnection):
    """A database file that is open for reading. Meanwhile no process can write to it; see `HeldState`.

    Attributes:
        token: State of the file just before it was opened, which other connections must find too.

    Raises:
        ConsistencyLostError: The file is not in the state that the address demands.
    """

    unshared = ""

    def __init__(self, address: DatabaseAddress) -> None:
        self.alias = address.alias
        self._cursors: list[duckdb.DuckDBPyConnection] = []
        self._path = path_of(address.uri)
        self.token = _file_state(self._path, self.alias)
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

    def interrupt(self) -> None:
        """Cancel the queries that other threads run."""
        for cursor in tuple(self._cursors):
            cursor.interrupt()

    @contextmanager
    def cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield a separate connection with pinned settings, for one statement at a time."""
        cursor = self._connection.cursor()
        self._cursors.append(cursor)
        try:
            with self.translated("pinning the session"):
                # DuckDB prints and casts times in the session's zone. It needs ICU, which its wheels contain.
                cursor.execute("SET TimeZone = 'UTC'")
            yield cursor
        finally:
            self._cursors.remove(cursor)
            cursor.close()

    def check(self) -> None:
        """Check that the path still leads to the file that was opened, and that it is unchanged; see `HeldState`."""
        found = _file_state(self._path, self.alias)
        if found != self.token:
            raise ConsistencyLostError(
                f"The file of DuckDB {self.alias!r} was replaced or written to while it was held"
                f" (inode:bytes:modified was {self.token}, is {found}). Start a new run."
            )

    def close(self) -> None:
        """Close the connection; the file is released with the last one of the process."""
        self._connection.close()


def _file_state(path: str, alias: str) -> str:
    """Return `inode:bytes:modified` of a file and its write-ahead log, without opening them; see `session_config`."""
    if not os.path.isfile(path):
        found = "it is a folder" if os.path.isdir(path) else "it does not exist"
        raise DatabaseError(f"DuckDB {alias!r}: {path!r} is not a database file: {found}. Check the URI.")
    files = (path, f"{path}.wal") if os.path.exists(f"{path}.wal") else (path,)
    states = [os.stat(file) for file in files]
    return "+".join(f"{state.st_ino}:{state.st_size}:{state.st_mtime_ns}" for state in states)


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Raise DuckDB's errors inside as the package's own, of an operation such as `DuckDB 'shop': reading main.orders`.

    DuckDB has one class for all errors of files, and a stream of Arrow breaks off with other classes, so the
    texts distinguish some.
    """
    try:
        yield
    except (duckdb.Error, OSError, pa.ArrowException) as error:  # a stream of Arrow breaks off with the last two
        raise _translated(error, doing) from error


def _translated(error: Exception, doing: str) -> DatabaseError:
    text = " ".join(str(error).split()).rstrip(".")
    if len(text) > _LONGEST:  # some of DuckDB's messages contain thousands of rows
        text = f"{text[:_LONGEST]}…"
    if "Could not set lock on file" in text:
        match = _LOCKED.search(text)
        holder = match.group(1) if match else text
        return DatabaseLockedError(
            f"{doing} failed: another process holds the file for writing: {holder}. Stop that process or let it close"
            " the database, then try again; several readers may hold the file, a writer only alone.",
            holder=holder,
        )
    other_settings = isinstance(error, duckdb.ConnectionException) and "different configuration" in text
    if other_settings or "Unique file handle conflict" in text:
        return DatabaseLockedError(
            f"{doing} failed: this very process has the file open already, for writing or with other settings."
            " Close that connection first."
        )
    kind: type[DatabaseError] = DatabaseError
    reason = text
    if _MEMORY.search(text):
        reason = (
            "it needs more memory than DuckDB may use; it unpacks 2048 rows at once, however large, a"
            " view may need them all, and indexes are held in memory. Allow it more in the URI of the database, such"
            f" as duckdb:///….duckdb?memory_limit=2GiB. {text.partition(' Possible solutions')[0]}"
        )
    elif "Permission Error" in text:
        kind = DatabaseDeniedError
        reason = f"something reads outside the database file, which is switched off: {text}"
    return kind(f"{doing} failed: {reason}", doing=doing, reason=reason)
