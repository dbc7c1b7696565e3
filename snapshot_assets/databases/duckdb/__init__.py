"""DuckDB database files: as a source opened read-only in each task, as a target with one writer."""

from __future__ import annotations

import pyarrow as pa

from snapshot_assets.databases.duckdb.address import default_alias
from snapshot_assets.databases.source import Database, DatabaseAddress
from snapshot_assets.databases.target import Definition, Target
from snapshot_assets.format.relations import DatabaseSchema

__all__ = ["ONE_WRITER", "default_alias", "define", "open", "open_target", "type_for"]

ONE_WRITER = True
"""While a process writes to a file, no other process can open it."""

# The imports are not at the top: an alias can be made from a URI without loading DuckDB.


def open(address: DatabaseAddress) -> Database:
    """Open a database file read-only.

    Raises:
        UnknownSourceError: The URI is invalid.
        DatabaseLockedError: A process holds the file for writing.
        ConsistencyLostError: The file is not in the state that the address demands.
        DatabaseDeniedError: The file may not be read.
        DatabaseError: There is no such file, or it is not a DuckDB database, or it is damaged.
    """
    from snapshot_assets.databases.duckdb.source import DuckDBDatabase

    return DuckDBDatabase(address)


def open_target(address: DatabaseAddress) -> Target:
    """Open a database file for writing, or create it; see `DuckDBTarget`."""
    from snapshot_assets.databases.duckdb.target import DuckDBTarget

    return DuckDBTarget(address)


def define(schema: DatabaseSchema, *, expressions: bool = True) -> Definition:
    """Return the statements that create a schema; see `TargetModule.define`."""
    from snapshot_assets.databases.duckdb.ddl.schema import define as define_schema

    return define_schema(schema, expressions=expressions)


def type_for(arrow_type: pa.DataType) -> str:
    """Return the type that holds an Arrow type's values exactly; see `TargetModule.type_for`."""
    from snapshot_assets.databases.duckdb.types import type_for as type_text

    return type_text(arrow_type)
