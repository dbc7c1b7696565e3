"""Tables of any Spark catalog, as a source or target: rows are DataFrames, and tasks have no connection."""

from __future__ import annotations

import pyarrow as pa

from snapshot_assets.databases.source import Database, DatabaseAddress
from snapshot_assets.databases.spark.address import default_alias
from snapshot_assets.databases.target import Definition, Target
from snapshot_assets.errors import UnknownSourceError
from snapshot_assets.format.relations import DatabaseSchema

__all__ = ["ONE_WRITER", "default_alias", "define", "open", "open_target", "type_for"]

ONE_WRITER = True
"""Concurrent writes into one table may conflict, and each write is a job that uses the whole cluster."""

# The imports are not at the top: an alias can be made from a URI without loading Spark.


def open(address: DatabaseAddress) -> Database:
    """Refuse: a Spark catalog is reached through a session, which no address carries.

    Raises:
        UnknownSourceError: Always.
    """
    raise _no_session("Source", address)


def open_target(address: DatabaseAddress) -> Target:
    """Refuse, as `open` does: `SparkTarget` takes the session.

    Raises:
        UnknownSourceError: Always.
    """
    raise _no_session("Target", address)


def _no_session(role: str, address: DatabaseAddress) -> UnknownSourceError:
    return UnknownSourceError(
        f"{role} {address.alias!r} is a Spark catalog, which cannot be opened without a Spark session. Here a database"
        " is needed: postgresql://… or duckdb:///….",
        alias=address.alias,
    )


def define(schema: DatabaseSchema, *, expressions: bool = True) -> Definition:
    """Return the statements that create a schema; see `TargetModule.define`."""
    from snapshot_assets.databases.spark.ddl import define as define_schema

    return define_schema(schema, expressions=expressions)


def type_for(arrow_type: pa.DataType) -> str:
    """Return the type that holds an Arrow type's values; see `TargetModule.type_for`."""
    from snapshot_assets.databases.spark.ddl import type_for as type_text

    return type_text(arrow_type)
