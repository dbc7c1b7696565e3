"""Tables of any Spark catalog, as a source or target: rows are DataFrames, and tasks have no connection.

A URI is `spark:<catalog>[.<namespace>]`, each part percent-encoded where it holds a dot.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import unquote

from snapshot_assets.databases.definition import Definition
from snapshot_assets.databases.renaming import Renaming, check_distinct_folded, renamed_tables
from snapshot_assets.databases.source import DatabaseAddress
from snapshot_assets.errors import UnknownSourceError
from snapshot_assets.format.relations import DatabaseSchema

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "ONE_WRITER",
    "catalog_path",
    "default_alias",
    "define",
    "open",
    "open_target",
    "rename",
    "scratch",
    "type_for",
]

ONE_WRITER = True
"""Concurrent writes into one table may conflict, and each write is a job that uses the whole cluster."""

_PART = re.compile(r"(?:[^\s.%/?#]|%[0-9A-Fa-f]{2})+")

# The imports are not at the top: an alias can be made from a URI without loading Spark.


def catalog_path(uri: str) -> tuple[str, tuple[str, ...]]:
    """Return the catalog and the namespace that a URI names; without a namespace, all namespaces are meant.

    Raises:
        UnknownSourceError: The URI is invalid.
    """
    scheme, _, rest = uri.partition(":")
    parts = rest.split(".")
    if scheme.lower() != "spark" or not all(_PART.fullmatch(part) for part in parts):
        raise UnknownSourceError(
            "A spark: URI is refused because it does not name a catalog. Write spark:<catalog> or"
            " spark:<catalog>.<namespace>, such as spark:spark_catalog.sales; a dot in a name is %2E."
        )
    catalog, *namespace = map(unquote, parts)
    return catalog, tuple(namespace)


def default_alias(uri: str) -> str:
    """Return the catalog and namespace as an alias; see `catalog_path`."""
    catalog, namespace = catalog_path(uri)
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", ".".join((catalog, *namespace)))
    return (name if re.match(r"[A-Za-z_]", name) else f"_{name}")[:100]


def open(address: DatabaseAddress) -> NoReturn:
    """Refuse: a Spark catalog is reached through a session, which no address carries; `SparkTarget` takes one.

    Raises:
        UnknownSourceError: Always.
    """
    raise UnknownSourceError(
        f"{address.alias!r} is a Spark catalog, which cannot be opened without a Spark session. Here a database"
        " is needed: postgresql://… or duckdb:///….",
        alias=address.alias,
    )


open_target = open


def scratch(address: DatabaseAddress, _: str) -> NoReturn:
    """Refuse, as `open` does."""
    open(address)


def define(schema: DatabaseSchema, *, expressions: bool = True, code: bool = False) -> Definition:
    """Return the statements that create a schema; see `DatabaseModule.define`. `code` changes nothing."""
    from snapshot_assets.databases.spark.ddl import define as define_schema

    return define_schema(schema, expressions=expressions)


def rename(schema: DatabaseSchema, renaming: Renaming) -> tuple[DatabaseSchema, tuple[str, ...]]:
    """Return documents with new names, and what is lost; see `DatabaseModule.rename`."""
    check_distinct_folded((f"table {each.table_name}", renaming.table(each.table_name)) for each in schema.tables)
    return renamed_tables(schema, renaming), ()


def type_for(arrow_type: pa.DataType) -> str:
    """Return the type that holds an Arrow type's values; see `DatabaseModule.type_for`."""
    from snapshot_assets.databases.spark.ddl import type_for as type_text

    return type_text(arrow_type)
