"""Publishes the readable seals of a location as Iceberg tables: what is refused is refused before anything is written.

Two writers may publish at a time: metadata is created under a number that only one of them gets, and the other starts
again from the newest head.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Mapping, Set
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow.compute as pc
from pyiceberg.table.metadata import TableMetadataV2

from snapshot_assets.catalog.iceberg.columns import NotHeldError, held_types
from snapshot_assets.catalog.iceberg.objects import IcebergFolder, iceberg_folders
from snapshot_assets.catalog.iceberg.register import registration
from snapshot_assets.catalog.iceberg.table import MAIN, IcebergTable, Version
from snapshot_assets.catalog.log.truncation import existing_state
from snapshot_assets.catalog.schemas import read_schema
from snapshot_assets.catalog.state.file_pruning import pending_tombstones
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.versions import resolve_version
from snapshot_assets.errors import (
    ConflictError,
    IncompleteError,
    NoSnapshotError,
    ObjectExistsError,
    PlanError,
    UnknownRelationError,
)
from snapshot_assets.format.documents import MAX_DOCUMENT_BYTES
from snapshot_assets.format.header import format_of
from snapshot_assets.format.layout import ICEBERG, iceberg_folder
from snapshot_assets.format.names import Spellings, rule_of, table_text
from snapshot_assets.format.relations import Table, TableName
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location

_LOG = logging.getLogger(__name__)
_ATTEMPTS = 10
_UNREADABLE = {"azblob": "no URI of Azure without the account's name", "oss": "no URI of OSS that all readers know"}


def publish(
    store: ObjectStore,
    *,
    at: str | None = None,
    tables: Collection[TableName] = (),
    catalog: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """Write Iceberg metadata of all readable seals, and register the tables in a catalog.

    Args:
        store: The location.
        at: The version that readers see by default; None for the newest seal.
        tables: The tables; empty for all.
        catalog: Properties of the catalog, as PyIceberg reads them; None for none.

    Raises:
        NoSnapshotError: There is no snapshot.
        IncompleteError: Nothing is sealed yet.
        UnknownRelationError: There is no such table.
        PlanError: Iceberg cannot hold a table, a tag or the location, or the catalog has other tables; nothing was
            written.

    Returns:
        For each table its name, the URIs of its folder and its newest metadata, the revision that readers see by
        default (None if that lacks the table), whether metadata was written, and which revisions were left out.
    """
    base = _base_of(store)
    for _ in range(_ATTEMPTS):
        try:
            return _publish(store, base, at, tables, catalog)
        except ObjectExistsError as error:
            _LOG.info("Another writer published Iceberg metadata at the same time; starting again: %s", error)
    raise ConflictError(
        f"Other writers published Iceberg metadata of {store.uri} {_ATTEMPTS} times at the same time, so some of it was"
        " not written: run `snapshots iceberg` again when they are done."
    )


def _publish(
    store: ObjectStore,
    base: str,
    at: str | None,
    tables: Collection[TableName],
    catalog: Mapping[str, str] | None,
) -> list[dict[str, Any]]:
    """Publish the newest head; see `publish`. Objects are built and written one table after the other."""
    folders = iceberg_folders(store.list(ICEBERG))  # before the head, which is then as new as what they publish
    head = existing_state(store)
    main, versions = _versions(store, head, at)
    held = _hold(store, base, folders, head, main, versions, tables)
    enter = registration(catalog, {each.name: each.uri for each in held}) if catalog is not None else None
    tags = {name: tag.pin.revision for name, tag in head.tags.items()}
    current = {table.table_name for each in versions if each.revision == main for table in each.schema.tables}
    published = []
    for each in held:
        metadata = each.build(main, tags, head.location_id)
        each.write(store, metadata)
        published.append(
            {
                "table": table_text(each.name),
                "folder": each.location,
                "metadata": each.uri,
                "revision": main if each.name in current else None,
                "written": metadata is not None,
                "left_out": each.left_out,
            }
        )
    if enter is not None:
        enter({each.name: each.uri for each in held})
    return published


def check_held(store: ObjectStore, tables: Iterable[Table]) -> None:
    """Refuse a location or tables that Iceberg cannot hold; see `check_iceberg`."""
    _base_of(store)
    refused = []
    for table in tables:
        try:
            held_types(table)
        except NotHeldError as error:
            refused.append(str(error))
    if refused:
        raise PlanError(
            f"The plan publishes Iceberg tables, and Iceberg cannot hold some, so nothing was exported."
            f" {' '.join(refused)} Or select others by iceberg.tables of the plan.",
            tables=refused,
        )


def _base_of(store: ObjectStore) -> str:
    """Return the URI of a location as Iceberg's readers take it: not percent-encoded, with a final slash."""
    location = parse_location(store.uri)
    problem = _UNREADABLE.get(location.scheme, "")
    if not problem and (found := next((each for each in "#?" if each in location.prefix), "")):
        problem = f"no readers that take {found!r} in a path"
    if problem:
        raise PlanError(
            f"{store.uri} cannot have Iceberg tables: Iceberg has {problem}. Replicate it to another store."
        )
    return f"{location.scheme}://{location.bucket}/{location.prefix}/"


def _versions(store: ObjectStore, head: State, at: str | None) -> tuple[int, list[Version]]:
    """Return the revision that readers see by default, and all readable seals of snapshots with schemas, ascending."""
    if not head.has_snapshot:
        raise NoSnapshotError(f"There is no snapshot at {store.uri}; check the URI.", uri=store.uri)
    readable = head.readable()
    if at is None and not readable:
        raise IncompleteError(
            f"The snapshot at {store.uri} has no seal that can be read; run the export to its end, which seals it."
        )
    main = readable[-1].revision if at is None else resolve_version(at, head)
    schemas, versions = cache(partial(read_schema, store)), list[Version]()
    for seal, state in head.readable_without_files():
        if not state.schemas:  # rebuilt without its schema documents
            continue
        if state.tombstones:
            state.files = head.files.at(seal.revision)
        tombstones = frozenset(TableName(each.schema, each.table) for each in pending_tombstones(state).values())
        newest = schemas(state.schemas[state.schema_id])
        versions.append(Version(seal, newest, format_of(state.header), dict(state.schemas), schemas, tombstones))
    return main, versions


def _hold(
    store: ObjectStore,
    base: str,
    folders: Mapping[str, IcebergFolder],
    head: State,
    main: int,
    versions: list[Version],
    tables: Collection[TableName],
) -> list[IcebergTable]:
    """Return the tables that have a version that Iceberg can hold, without their metadata.

    Raises:
        PlanError: Iceberg cannot hold some; names them all.
    """
    if MAIN in head.tags:
        raise PlanError("The tag 'main' has the name of Iceberg's default branch: rename it by `snapshots tag rename`.")
    having: dict[TableName, list[Version]] = {}
    for version in versions:
        for table in version.schema.tables:
            having.setdefault(table.table_name, []).append(version)
    files, held, refused = head.files.merged(), list[IcebergTable](), list[str]()
    seals = np.array([seal.revision for seal in head.seals], dtype=np.int64)
    for name in _chosen(having.keys(), versions, tables):
        folder = folders.get(iceberg_folder(name), IcebergFolder(iceberg_folder(name), 0, {}))
        own = pc.and_(pc.equal(files.table["schema"], name.schema), pc.equal(files.table["table"], name.table))
        rows = files.take(np.flatnonzero(own))
        iceberg = IcebergTable(name, folder, base, rows, seals, _previous(store, folder))
        try:
            held += [iceberg] if iceberg.hold(having[name], main) else []
        except NotHeldError as error:
            refused.append(str(error) if main == versions[-1].revision else f"{error.reason}.")
    if refused:
        why, can = " ".join(dict.fromkeys(refused)), ", ".join(table_text(each.name) for each in held) or "none"
        why += "" if main == versions[-1].revision else " A revision stays as it is: publish a newer one by --at."
        raise PlanError(
            f"Iceberg cannot hold revision {main} of {store.uri}, so nothing was written. {why} Or select tables by"
            f" --tables, or by iceberg.tables of the plan; Iceberg can hold {can}.",
            tables=refused,
        )
    return held


def _chosen(names: Set[TableName], versions: list[Version], tables: Collection[TableName]) -> list[TableName]:
    """Return the tables to publish, in the snapshot's spelling."""
    if not tables:
        return sorted(names)
    spellings = Spellings(rule_of(versions[-1].schema), names) if versions else None
    chosen = {spellings.of(name) if spellings else name for name in tables}
    if unknown := sorted(chosen - names):
        raise UnknownRelationError(
            f"The snapshot has no table {unknown[0]}; it has {', '.join(map(str, sorted(names))) or 'none'}."
        )
    return sorted(chosen)


def _previous(store: ObjectStore, folder: IcebergFolder) -> dict[str, Any]:
    """Return the newest metadata of a folder; empty if there is none, or if it is damaged: then it is replaced."""
    if not folder.version:
        return {}
    data = store.get(folder.newest, limit=MAX_DOCUMENT_BYTES)
    try:
        TableMetadataV2.model_validate_json(data)
    except ValueError as error:
        _LOG.warning("%s is damaged, so it is replaced, with field ids from the log: %s", folder.newest, error)
        return {}
    previous: dict[str, Any] = json.loads(data)
    return previous
