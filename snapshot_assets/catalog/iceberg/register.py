"""Registers published tables in an Iceberg catalog that PyIceberg knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError

from snapshot_assets.errors import DatabaseError, PlanError, SnapshotError
from snapshot_assets.format.relations import TableName


def registration(properties: Mapping[str, str], tables: Mapping[TableName, str]) -> Callable[[], None]:
    """Return what lets the tables of a catalog have the metadata at some URIs; namespaces are schemas.

    Raises:
        PlanError: The catalog has another table of such a name.
        DatabaseError: The catalog cannot be read, or later, written.
    """
    with _catalog_errors("cannot be read, so nothing was written"):
        return _registration(properties, tables)


def _registration(properties: Mapping[str, str], tables: Mapping[TableName, str]) -> Callable[[], None]:
    others = {key: value for key, value in properties.items() if key != "name"}
    catalog = load_catalog(properties.get("name", "default"), **others)
    known: dict[TableName, str] = {}
    for name, uri in tables.items():
        try:
            known[name] = catalog.load_table(tuple(name)).metadata_location
        except NoSuchTableError:
            continue
        if known[name].rpartition("/")[0] != uri.rpartition("/")[0]:
            raise PlanError(
                f"The catalog has another table {name}, with the metadata {known[name]}, so nothing was written: drop"
                " it, or select other tables."
            )

    def enter() -> None:
        with _catalog_errors("does not take the tables, whose metadata is written; publish again"):
            for name, uri in tables.items():
                if known.get(name) == uri:
                    continue
                catalog.create_namespace_if_not_exists((name.schema,))
                if name in known:  # most catalogs of PyIceberg cannot overwrite a registration
                    catalog.drop_table(tuple(name))
                catalog.register_table(tuple(name), uri)

    return enter


@contextmanager
def _catalog_errors(what: str) -> Iterator[None]:
    try:
        yield
    except SnapshotError:
        raise
    except Exception as error:  # each catalog has a client of its own, with its own errors
        raise DatabaseError(f"The Iceberg catalog {what}: {type(error).__name__}: {error}") from error
