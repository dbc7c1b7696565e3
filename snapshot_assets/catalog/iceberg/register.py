"""Registers published tables in an Iceberg catalog that PyIceberg knows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError

from snapshot_assets.errors import DatabaseError, PlanError, SnapshotError
from snapshot_assets.format.relations import TableName


def registration(
    properties: Mapping[str, str], tables: Mapping[TableName, str]
) -> Callable[[Mapping[TableName, str]], None]:
    """Return what lets the tables of a catalog have the metadata at some URIs; namespaces are schemas.

    A table that has newer metadata by then keeps it. `tables` have any metadata of the same folders.

    Raises:
        PlanError: The catalog has another table of such a name.
        DatabaseError: The catalog cannot be read, or later, written.
    """
    with _catalog_errors("cannot be read, so nothing was written"):
        others = {key: value for key, value in properties.items() if key != "name"}
        catalog = load_catalog(properties.get("name", "default"), **others)
        for name, uri in tables.items():
            _registered(catalog, name, uri)

    def enter(published: Mapping[TableName, str]) -> None:
        with _catalog_errors("does not take the tables, whose metadata is written; publish again"):
            for name, uri in published.items():
                known = _registered(catalog, name, uri)
                if known is None:
                    catalog.create_namespace_if_not_exists((name.schema,))
                elif _version(known) >= _version(uri):
                    continue
                else:  # most catalogs of PyIceberg cannot overwrite a registration
                    catalog.drop_table(tuple(name))
                catalog.register_table(tuple(name), uri)

    return enter


def _registered(catalog: Catalog, name: TableName, uri: str) -> str | None:
    """Return the URI of a table's metadata in a catalog, None if it has no such table; refuse one of another folder."""
    try:
        known = catalog.load_table(tuple(name)).metadata_location
    except NoSuchTableError:
        return None
    if known.rpartition("/")[0] != uri.rpartition("/")[0]:
        raise PlanError(
            f"The catalog has another table {name}, with the metadata {known}: drop it, or select other tables."
        )
    return known


def _version(uri: str) -> int:
    """Return the version in the name of metadata; 0 for that of another engine, which a publication replaces."""
    match = re.fullmatch(r"v(\d+)\.metadata\.json", uri.rpartition("/")[2])
    return int(match[1]) if match else 0


@contextmanager
def _catalog_errors(what: str) -> Iterator[None]:
    try:
        yield
    except SnapshotError:
        raise
    except Exception as error:  # each catalog has a client of its own, with its own errors
        raise DatabaseError(f"The Iceberg catalog {what}: {type(error).__name__}: {error}") from error
