"""Tables of any Spark catalog as a source: rows are DataFrames, and tasks have no connection.

A URI is `spark:<catalog>[.<namespace>]`, each part percent-encoded where it holds a dot.
"""

from __future__ import annotations

import re
from typing import NoReturn
from urllib.parse import unquote

from snapshot_assets.databases.contract import Access, DatabaseKind, alias_of
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.errors import UnknownSourceError
from snapshot_assets.format.names import NameRule

__all__ = ["KIND", "catalog_path", "default_alias", "open"]

KIND = DatabaseKind(
    contract=1,
    name="spark",
    title="Spark catalog",
    form="spark:catalog or spark:catalog.namespace",
    access=Access.SESSION,
    instead="Spark itself writes a snapshot's rows into a catalog: see docs/how-to/into-spark.md.",
    names=NameRule.CASE_IGNORED,
)

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
    return alias_of(".".join((catalog, *namespace)))


def open(address: DatabaseAddress) -> NoReturn:
    """Refuse: a Spark catalog is reached through a session, which no address carries; `SparkCatalogDatabase` takes one.

    Raises:
        UnknownSourceError: Always.
    """
    raise UnknownSourceError(
        f"{address.alias!r} is a Spark catalog, which cannot be opened without a Spark session. Here a database"
        " is needed: postgresql://… or duckdb:///….",
        alias=address.alias,
    )
