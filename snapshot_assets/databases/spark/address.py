"""Spark catalog URIs: `spark:<catalog>[.<namespace>]`, each part percent-encoded where it holds a dot."""

from __future__ import annotations

import re
from urllib.parse import unquote

from snapshot_assets.errors import UnknownSourceError

_PART = re.compile(r"(?:[^\s.%/?#]|%[0-9A-Fa-f]{2})+")


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
    """Return the catalog and namespace as an alias.

    Raises:
        UnknownSourceError: The URI is invalid.
    """
    catalog, namespace = catalog_path(uri)
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", ".".join((catalog, *namespace)))
    return (name if re.match(r"[A-Za-z_]", name) else f"_{name}")[:100]
