"""A DuckDB database file behind the interface of all databases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import duckdb

from snapshot_assets.databases.duckdb.introspect.documents import extract_schema
from snapshot_assets.databases.duckdb.scan import Reader
from snapshot_assets.databases.duckdb.session import DuckDBSession
from snapshot_assets.databases.duckdb.time_predicates import DuckDBTimeColumn
from snapshot_assets.databases.source import DatabaseAddress, HeldState, Selection
from snapshot_assets.databases.time_column import TimedSource
from snapshot_assets.format.relations import DatabaseSchema


class DuckDBDatabase(Reader, TimedSource):
    """An open DuckDB database file, read side. See `Database`.

    Args:
        address: The file, and the state that it must be in.
    """

    kind = "duckdb"
    time_column = DuckDBTimeColumn

    def __init__(self, address: DatabaseAddress) -> None:
        super().__init__(DuckDBSession(address))
        self._address = address

    def extract(self, selection: Selection) -> DatabaseSchema:
        """Describe the selected schemas, tables and views; see `Database.extract`."""
        return extract_schema(self._session, selection)

    def fence(self) -> dict[str, str]:
        """Return the state of the file, `inode:bytes:modified`, and the version of DuckDB."""
        return {"duckdb_file": self._session.token, "duckdb": duckdb.__version__}

    @contextmanager
    def hold(self) -> Iterator[HeldState]:
        """Keep the file open for reading until the context ends; until then no process can write to it.

        The token is the state of the file. A connection that demands this state refuses to open in another one.
        """
        with closing(DuckDBSession(self._address)) as session:
            yield session

    def close(self) -> None:
        """Close the connection; the file is released with the last one of this process."""
        self._session.close()
