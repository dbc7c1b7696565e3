"""Documents that lie at a location and speak for its log: manifests, tags, savepoints, schemas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from snapshot_assets.catalog.rules import SchemaContent
from snapshot_assets.errors import SnapshotError
from snapshot_assets.format import actions as act
from snapshot_assets.format.checksums import chunk_checksum, sha256_hex, snapshot_checksum, sums_line
from snapshot_assets.format.documents import MAX_DOCUMENT_BYTES, parse_json
from snapshot_assets.format.layout import SCHEMA_FILES, new_attempt, savepoint_path, schema_folder, tag_path
from snapshot_assets.format.units import parse_duration, parse_time
from snapshot_assets.storage.base import ObjectStore

UNUSABLE = (SnapshotError, KeyError, TypeError, ValueError, AttributeError)
"""What documents raise that somebody else wrote."""


@dataclass(frozen=True)
class Manifest:
    """A manifest as it was found, in manifest.json, a tag or a savepoint.

    Attributes:
        path: Of the object that holds it.
        document: Its members.
        sealed: Whether it is of a sealed state, and its checksums are those of what it names.
    """

    path: str
    revision: int
    location_id: str
    snapshot_id: str
    document: Mapping[str, Any]
    sealed: bool


@dataclass(frozen=True)
class FoundTag:
    """A tag's object; its checksum is that of the sealed state that it pins."""

    path: str
    name: str
    created_at: datetime
    ttl: timedelta | None
    revision: int
    checksum: str
    automatic: bool = False


@dataclass(frozen=True)
class FoundSavepoint:
    """A savepoint's object, as of a tag; `created_by` is the writer of the transaction that named it."""

    path: str
    id: int
    created_at: datetime
    created_by: str
    revision: int
    checksum: str
    automatic: bool = False


def read_manifest(store: ObjectStore, path: str) -> Manifest:
    """Return manifest.json.

    Raises:
        ValueError: It is not as it was written; other kinds where its members are not what they should be.
    """
    return _manifest(path, _document(store, path))


def read_tag(store: ObjectStore, path: str) -> tuple[FoundTag, Manifest]:
    """Return a tag's object and the manifest in it.

    Raises:
        ValueError: As `read_manifest`, or it is the object of a tag of another name.
    """
    document = _document(store, path)
    manifest = _manifest(path, document["manifest"])
    _check_own(path, tag_path(str(document["name"]), ""))
    ttl = None if document["ttl"] is None else parse_duration(document["ttl"])
    name, created_at = str(document["name"]), parse_time(document["created_at"])
    checksum = str(manifest.document["checksum"])
    return FoundTag(path, name, created_at, ttl, manifest.revision, checksum, _automatic(document)), manifest


def read_savepoint(store: ObjectStore, path: str) -> tuple[FoundSavepoint, Manifest]:
    """Return a savepoint's object and the manifest in it.

    Raises:
        ValueError: As `read_manifest`, or it is the object of another savepoint.
    """
    document = _document(store, path)
    manifest = _manifest(path, document["manifest"])
    _check_own(path, savepoint_path(int(document["id"]), ""))
    number, created_at = int(document["id"]), parse_time(document["created_at"])
    if number < 1:
        raise ValueError(f"its number is {number}; expected 1 or more")
    created_by, checksum = str(document["created_by"]), str(manifest.document["checksum"])
    found = FoundSavepoint(path, number, created_at, created_by, manifest.revision, checksum, _automatic(document))
    return found, manifest


def _check_own(path: str, expected: str) -> None:
    if path[: -len(new_attempt())] != expected:
        raise ValueError(f"it was written as {expected}<8 hex>")


def _automatic(document: Mapping[str, Any]) -> bool:
    return document.get("automatic", False) is True


def _document(store: ObjectStore, path: str) -> dict[str, Any]:
    return parse_json(store.get(path, limit=MAX_DOCUMENT_BYTES), path)


def _manifest(path: str, document: dict[str, Any]) -> Manifest:
    sealed = document["checksum"] is not None
    if sealed and (why := _contradiction(document)):
        raise ValueError(f"{why}, so it is not as it was written.")
    return Manifest(
        path, int(document["revision"]), str(document["location_id"]), str(document["snapshot_id"]), document, sealed
    )


def _contradiction(document: Mapping[str, Any]) -> str:
    """Return what in a sealed manifest does not have its checksum, "" where all has."""
    for chunk in document["chunks"]:
        if chunk_checksum((file["path"], file["sha256"]) for file in chunk["files"]) != chunk["checksum"]:
            return f"the files of its chunk {chunk['id']} do not have the chunk's checksum"
    header = ("catalog", "schemas", "time_range", "chunk_time_window", "empty_windows", "format", "schema_only")
    checksum = snapshot_checksum(
        schema_files=[(file["path"], file["sha256"]) for file in document["schema_files"]],
        chunks={chunk["id"]: chunk["checksum"] for chunk in document["chunks"] if chunk["files"]},
        tombstones={tombstone["revision"]: tombstone for tombstone in document["tombstones"]},
        header={name: document[name] for name in header},
    )
    return "" if checksum == document["checksum"] else "what it names does not have its checksum"


def read_schema_content(store: ObjectStore, folder: str) -> SchemaContent:
    """Return the schema documents in a folder.

    Raises:
        ValueError: They are not those that it is named after.
    """
    data = {f"{folder}/{name}": store.get(f"{folder}/{name}", limit=MAX_DOCUMENT_BYTES) for name in SCHEMA_FILES}
    refs = tuple(act.ObjectRef(path, sha256_hex(content), len(content)) for path, content in data.items())
    content = schema_content(refs)
    if content.folder != folder:
        raise ValueError("its documents do not have the checksum that it is named after")
    return content


def schema_content(refs: tuple[act.ObjectRef, ...]) -> SchemaContent:
    """Return schema documents with the folder and checksum that their content gives."""
    lines = (sums_line(ref.sha256, ref.path.rpartition("/")[2]) for ref in sorted(refs, key=lambda ref: ref.path))
    digest = sha256_hex("".join(lines).encode())
    return SchemaContent(schema_folder(digest), digest, tuple(sorted(refs, key=lambda ref: ref.path)))
