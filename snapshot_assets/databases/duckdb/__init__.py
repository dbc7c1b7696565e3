"""DuckDB database files as a source: read-only, opened inside each task and closed at its end."""

from __future__ import annotations

from snapshot_assets.databases.base import Database, DatabaseAddress
from snapshot_assets.databases.duckdb.address import default_alias

__all__ = ["default_alias", "open"]


def open(address: DatabaseAddress) -> Database:
    """Open a database file read-only.

    Raises:
        UnknownSourceError: The URI is not written as it must be.
        DatabaseLockedError: A process holds the file for writing.
        ConsistencyLostError: The file is not in the state that the address demands.
        DatabaseDeniedError: The file may not be read.
        DatabaseError: There is no such file, or it is no DuckDB database, or it is damaged.
    """
    # Not at the top: an alias can be made from a URI without loading DuckDB.
    from snapshot_assets.databases.duckdb.database import DuckDBDatabase

    return DuckDBDatabase(address)
