"""PostgreSQL 14 and later, through ADBC, whose driver converts between COPY's binary stream and Arrow."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote

from snapshot_assets.databases.contract import DatabaseKind
from snapshot_assets.databases.convert.renaming import LONGEST, Renaming
from snapshot_assets.databases.definition import Definition
from snapshot_assets.databases.protocol.source import Database, DatabaseAddress
from snapshot_assets.format.relations import DatabaseSchema

if TYPE_CHECKING:
    import pyarrow as pa

    from snapshot_assets.databases.protocol.sql_target import SqlTarget

__all__ = ["KIND", "adapt", "default_alias", "define", "open", "open_target", "rename", "scratch", "type_for"]

KIND = DatabaseKind(
    contract=1,
    name="postgresql",
    title="PostgreSQL",
    form="postgresql://host/database",
    target=True,
    longest_name=LONGEST,
    drivers=("adbc_driver_postgresql.dbapi", "adbc_driver_manager"),
    requirement="snapshot-assets[postgres]",
    encoded=True,
    code=True,
    mend_indexes="check the indexes with amcheck, and REINDEX TABLE {table}",
)


def default_alias(uri: str) -> str:
    """Return the database's name: no user, password or host, even for a URI that libpq would refuse.

    Args:
        uri: `postgresql://[user[:password]@][host][:port][,…][/database][?options]`.
    """
    rest, _, query = uri.partition("://")[2].partition("?")
    database = parse_qs(query).get("dbname", [unquote(rest.rpartition("@")[2].partition("/")[2])])[0]
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", database).strip("-.") or "postgresql"


# The driver is imported where a database is opened.


def open(address: DatabaseAddress) -> Database:
    """Connect for reading; see `PostgresqlDatabase`."""
    from snapshot_assets.databases.postgresql.source import PostgresqlDatabase

    return PostgresqlDatabase(address)


def open_target(address: DatabaseAddress) -> SqlTarget:
    """Connect for writing; see `PostgresqlTarget`."""
    from snapshot_assets.databases.postgresql.target import PostgresqlTarget

    return PostgresqlTarget(address)


def scratch(address: DatabaseAddress, name: str) -> AbstractContextManager[DatabaseAddress]:
    """Create a database on the same server; see `TargetModule.scratch`."""
    from snapshot_assets.databases.postgresql.target import scratch as scratch_database

    return scratch_database(address, name)


def define(schema: DatabaseSchema, *, expressions: bool = True, code: bool = False) -> Definition:
    """Return the statements that create a schema; see `TargetModule.define`."""
    from snapshot_assets.databases.postgresql.ddl import define as define_schema

    return define_schema(schema, expressions=expressions, code=code)


def rename(schema: DatabaseSchema, renaming: Renaming) -> tuple[DatabaseSchema, tuple[str, ...]]:
    """Return documents with new names, and what is lost; see `TargetModule.rename`."""
    from snapshot_assets.databases.postgresql.renaming import rename as rename_schema

    return rename_schema(schema, renaming)


def type_for(arrow_type: pa.DataType) -> str:
    """Return the type that holds an Arrow type's values exactly; see `TargetModule.type_for`."""
    from snapshot_assets.databases.postgresql.types import type_for as type_text

    return type_text(arrow_type)


def adapt(schema: DatabaseSchema) -> tuple[DatabaseSchema, tuple[str, ...]]:
    """Return converted documents as they are: PostgreSQL can have all that a conversion keeps."""
    return schema, ()
