"""A DuckDB database file behind the interface of all databases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import datetime

import duckdb
import pyarrow as pa

from snapshot_assets.databases.duckdb.introspect.documents import extract_schema
from snapshot_assets.databases.duckdb.scan import Reader
from snapshot_assets.databases.duckdb.session import DuckDBSession
from snapshot_assets.databases.duckdb.sql import Schemas
from snapshot_assets.databases.duckdb.time_predicates import DuckDBTimeColumn
from snapshot_assets.databases.source import DatabaseAddress, Estimate, HeldState, Scan, Selection
from snapshot_assets.databases.time_column import time_range
from snapshot_assets.format.relations import DatabaseSchema, Table


class DuckDBDatabase:
    """An open DuckDB database file, read side. See `Database`.

    Args:
        address: The file, and the state that it must be in.
    """

    kind = "duckdb"

    def __init__(self, address: DatabaseAddress) -> None:
        self._address = address
        self._session = DuckDBSession(address)
        try:
            self._schemas = Schemas(self._session)
            self._reader = Reader(self._session, self._schemas)
        except BaseException:
            self._session.close()
            raise

    def extract(self, selection: Selection) -> DatabaseSchema:
        """Describe the selected schemas, tables and views; see `Database.extract`."""
        return extract_schema(self._session, self._schemas, selection)

    def estimate(self, scan: Scan) -> Estimate:
        """Estimate the size of a scan; see `Database.estimate`."""
        return self._reader.estimate(scan)

    def split(self, scan: Scan, parts: int) -> list[Scan]:
        """Cut a scan into disjoint scans; see `Database.split`."""
        return self._reader.split(scan, parts)

    def scan(self, scan: Scan) -> AbstractContextManager[Iterator[pa.RecordBatch]]:
        """Stream a scan's rows; see `Database.scan`."""
        return self._reader.scan(scan)

    def count_outside(self, table: Table, start: datetime, end: datetime, zone: str = "UTC") -> int:
        """Count the rows with a finite time outside `[start, end)`."""
        return self._reader.count(table, DuckDBTimeColumn.of(table, zone).outside(start, end))

    def time_bounds(self, tables: tuple[Table, ...], zone: str = "UTC") -> tuple[datetime, datetime] | None:
        """Return the least and greatest finite time over the timed tables; see `Database.time_bounds`."""
        bounds: list[int | None] = []
        for table in tables:
            if table.time_index is not None:
                column = DuckDBTimeColumn.of(table, zone)
                relation = self._schemas.relation(table.table_name)
                bounds += self._session.rows(f"SELECT {column.bounds()} FROM {relation} WHERE {column.finite}")[0]
        return time_range(bounds)

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
