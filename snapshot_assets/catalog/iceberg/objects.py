"""Which objects of the Iceberg metadata are needed: what the newest metadata of each table names."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from snapshot_assets.errors import ObjectNotFoundError
from snapshot_assets.format.documents import MAX_DOCUMENT_BYTES
from snapshot_assets.format.layout import VERSION_HINT, iceberg_version
from snapshot_assets.storage.base import ObjectInfo, ObjectStore
from snapshot_assets.storage.bulk import in_parallel

MANIFESTS = "snapshot-assets.manifests"
"""Property of a table: a JSON object of the manifests that its snapshots name, with size, first and last snapshot."""


class IcebergFolder(NamedTuple):
    """The folder of a table's Iceberg metadata, and its objects by path; `version` is 0 without metadata."""

    folder: str
    version: int
    objects: dict[str, ObjectInfo]

    @property
    def newest(self) -> str:
        """The path of the newest metadata."""
        return f"{self.folder}v{self.version}.metadata.json"


def iceberg_folders(objects: Iterable[ObjectInfo]) -> dict[str, IcebergFolder]:
    """Return the folders of Iceberg metadata by path."""
    folders: dict[str, IcebergFolder] = {}
    for info in objects:
        if (found := iceberg_version(info.path)) is not None:
            folder, version = found
            known = folders.get(folder, IcebergFolder(folder, 0, {}))
            known.objects[info.path] = info
            folders[folder] = known._replace(version=max(version, known.version))
    return folders


def superseded_metadata(store: ObjectStore, objects: Iterable[ObjectInfo]) -> dict[str, datetime]:
    """Return the Iceberg objects that no newest metadata names, and since when: newer metadata was written then.

    Nothing of a folder whose newest metadata cannot be read is superseded.
    """
    folders = list(iceberg_folders(objects).values())
    superseded: dict[str, datetime] = {}
    for each, needed in zip(folders, in_parallel(store, lambda each: _needed(store, each), folders), strict=True):
        for path in each.objects.keys() - needed:
            superseded[path] = max(each.objects[path].modified, each.objects[each.newest].modified)
    return superseded


def _needed(store: ObjectStore, each: IcebergFolder) -> set[str]:
    """Return the paths that the newest metadata of a folder names; all where it cannot be read."""
    try:
        metadata = json.loads(store.get(each.newest, limit=MAX_DOCUMENT_BYTES))
        manifests = json.loads(metadata["properties"][MANIFESTS])
        lists = [snapshot["manifest-list"].rpartition("/")[2] for snapshot in metadata["snapshots"]]
    except (ObjectNotFoundError, LookupError, TypeError, ValueError, AttributeError, RecursionError):
        return set(each.objects)
    names = (VERSION_HINT, *lists, *(f"{name}-m0.avro" for name in manifests))
    return {each.newest, *(each.folder + name for name in names)}
