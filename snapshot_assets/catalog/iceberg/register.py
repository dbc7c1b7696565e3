"""Registers published tables in an Iceberg catalog that PyIceberg knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError

from snapshot_assets.errors import PlanError
from snapshot_assets.format.relations import TableName


def register(properties: Mapping[str, str], tables: Sequence[tuple[TableName, str]]) -> None:
    """Let the tables of a catalog have the metadata at some URIs; namespaces are schemas.

    Raises:
        PlanError: The catalog has another table of that name, which stays as it is.
    """
    others = {key: value for key, value in properties.items() if key != "name"}
    catalog = load_catalog(properties.get("name", "default"), **others)
    known = [(name, uri, _metadata_of(catalog, name, uri)) for name, uri in tables]
    for name, uri, found in known:
        if found == uri:
            continue
        catalog.create_namespace_if_not_exists((name.schema,))
        if found:  # most catalogs of PyIceberg cannot overwrite a registration
            catalog.drop_table((name.schema, name.table))
        catalog.register_table((name.schema, name.table), uri)


def _metadata_of(catalog: Catalog, name: TableName, uri: str) -> str:
    """Return the URI of a table's metadata in a catalog; "" if it has no such table."""
    try:
        found = catalog.load_table((name.schema, name.table)).metadata_location
    except NoSuchTableError:
        return ""
    if found.rpartition("/")[0] != uri.rpartition("/")[0]:
        raise PlanError(
            f"The catalog has another table {name}, with the metadata {found}, so it was not registered: drop it, or"
            " select other tables."
        )
    return found
