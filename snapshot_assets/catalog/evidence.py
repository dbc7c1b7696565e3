"""What lies at a location and speaks for its log: log objects, sealed manifests, tags, receipts, schema documents.

Reading only, and of everything that can be read: what cannot is noted in words, never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from snapshot_assets.catalog.checkpoints import read_checkpoint
from snapshot_assets.catalog.receipts import Receipt, read_receipt
from snapshot_assets.catalog.replay import FAULTS, Listing, list_log, read_entries
from snapshot_assets.catalog.rules import SchemaContent
from snapshot_assets.catalog.state import LogEntry, State
from snapshot_assets.errors import DamageError, LocationDeletedError, ObjectNotFoundError, UnsupportedVersionError
from snapshot_assets.format import actions as act
from snapshot_assets.format.checksums import chunk_checksum, sha256_hex, snapshot_checksum, sums_line
from snapshot_assets.format.documents import MAX_DOCUMENT_BYTES, parse_json
from snapshot_assets.format.layout import MANIFEST, SCHEMA_FILES, is_receipt, schema_folder, transaction_path
from snapshot_assets.format.units import parse_duration, parse_time
from snapshot_assets.storage.base import ObjectInfo, ObjectStore


@dataclass(frozen=True)
class Manifest:
    """A manifest as it was found, in manifest.json or in a tag.

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
    """A tag's object."""

    path: str
    name: str
    created_at: datetime
    ttl: timedelta | None
    revision: int


@dataclass
class Evidence:
    """Everything that was found.

    Attributes:
        objects: The location's objects by path.
        log: What lies in the log's folder.
        start: The newest state that the log proves without a hole.
        entries: Readable transactions after that, by revision.
        broken: Why the others cannot be read, by revision.
        manifests: Those that can be used, by revision.
        notes: What could not be used, in words.
    """

    objects: dict[str, ObjectInfo]
    log: Listing
    start: State
    entries: dict[int, LogEntry]
    broken: dict[int, str]
    receipts: list[tuple[Receipt, act.ObjectRef]] = field(default_factory=list)
    manifests: dict[int, Manifest] = field(default_factory=dict)
    unsealed: Manifest | None = None
    tags: list[FoundTag] = field(default_factory=list)
    schemas: dict[str, SchemaContent] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def highest(self) -> int:
        """The highest revision that anything names."""
        return max(
            (
                *self.log.transactions,
                *self.log.checkpoints,
                *self.manifests,
                *((self.unsealed.revision,) if self.unsealed else ()),
                *(receipt.base_revision for receipt, _ in self.receipts),
            ),
            default=0,
        )

    @property
    def location_id(self) -> str:
        """The location's id, "" where nothing tells it."""
        stated = [self.start.location_id, *(entry.transaction.location_id for entry in self.entries.values())]
        stated += [found.location_id for found in (*self.manifests.values(), self.unsealed) if found is not None]
        stated += [receipt.location_id for receipt, _ in self.receipts]
        return next(filter(None, stated), "")


def gather(store: ObjectStore) -> Evidence:
    """Read everything but data.

    Raises:
        UnsupportedVersionError: Something of the log is of a newer format: it is not damaged, but not readable here.
        LocationDeletedError: The snapshot was deleted.
    """
    objects = {info.path: info for info in store.list()}
    listing = list_log(store)
    found = Evidence(objects, listing, *_read_log(store, listing))
    for path in objects:
        if is_receipt(path):
            _read(found, path, lambda path=path: found.receipts.append(read_receipt(store, path)))
        elif path.startswith("tag/"):
            _read(found, path, lambda path=path: _read_tag(store, found, path))
        elif path == MANIFEST:
            _read(found, path, lambda path=path: _read_manifest(found, path, _document(store, path)))
    for folder in sorted({path.rpartition("/")[0] for path in objects if path.startswith("schema/")}):
        _read(found, folder, lambda folder=folder: _read_schema(store, found, folder))
    return found


def _read(found: Evidence, path: str, read: Any) -> None:
    try:
        read()
    except ObjectNotFoundError:
        found.notes.append(f"{path} went away while it was read.")
    except (DamageError, UnsupportedVersionError, KeyError, TypeError, ValueError) as error:
        found.notes.append(f"{path} cannot be used: {error}")


def _document(store: ObjectStore, path: str) -> dict[str, Any]:
    return parse_json(store.get(path, limit=MAX_DOCUMENT_BYTES), path)


# The log


def _read_log(store: ObjectStore, listing: Listing) -> tuple[State, dict[int, LogEntry], dict[int, str]]:
    entries: dict[int, LogEntry] = {}
    broken: dict[int, str] = {}
    for revision, entry in read_entries(store, listing.transactions):
        if isinstance(entry, UnsupportedVersionError):
            raise entry
        if isinstance(entry, FAULTS):
            broken[revision] = f"{type(entry).__name__}: {entry}"
        else:
            entries[revision] = entry
            if any(isinstance(action, act.Deleted) for action in entry.transaction.actions):
                raise LocationDeletedError(
                    f"{transaction_path(revision)} says that the snapshot at {store.uri} was deleted; there is nothing "
                    "to rebuild. Delete it once more to remove what is left.",
                    uri=store.uri,
                )
    start = _furthest(store, listing, entries, broken)
    return start, {revision: entry for revision, entry in entries.items() if revision > start.revision}, broken


def _furthest(store: ObjectStore, listing: Listing, entries: dict[int, LogEntry], broken: dict[int, str]) -> State:
    """Return the state at the newest readable checkpoint and as far after it as transactions follow one another."""
    last = None
    while True:
        state = _newest_checkpoint(store, listing)
        while state.revision != last and state.revision + 1 in entries:
            revision = state.revision + 1
            try:
                state.apply(entries[revision], transaction_path(revision))
            except FAULTS as fault:
                broken.setdefault(revision, f"{type(fault).__name__}: {fault}")
                last = revision - 1
                break  # the state is half changed: fold again, up to the one before
        else:
            return state


def _newest_checkpoint(store: ObjectStore, listing: Listing) -> State:
    for revision in reversed(listing.checkpoints):
        try:
            return read_checkpoint(store, revision)
        except (DamageError, ObjectNotFoundError):
            continue
    return State()


# Manifests and tags


def _read_tag(store: ObjectStore, found: Evidence, path: str) -> None:
    document = _document(store, path)
    manifest = document["manifest"]
    ttl = None if document["ttl"] is None else parse_duration(document["ttl"])
    _read_manifest(found, path, manifest)
    tag = FoundTag(path, str(document["name"]), parse_time(document["created_at"]), ttl, int(manifest["revision"]))
    found.tags.append(tag)


def _read_manifest(found: Evidence, path: str, document: dict[str, Any]) -> None:
    sealed = document["checksum"] is not None
    manifest = Manifest(
        path, int(document["revision"]), str(document["location_id"]), str(document["snapshot_id"]), document, sealed
    )
    if sealed and (why := _contradiction(document)):
        raise ValueError(f"{why}, so it is not as it was written.")
    if sealed:
        found.manifests.setdefault(manifest.revision, manifest)
    else:
        found.unsealed = manifest


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


# Schema documents


def _read_schema(store: ObjectStore, found: Evidence, folder: str) -> None:
    data = {f"{folder}/{name}": store.get(f"{folder}/{name}", limit=MAX_DOCUMENT_BYTES) for name in SCHEMA_FILES}
    refs = tuple(act.ObjectRef(path, sha256_hex(content), len(content)) for path, content in data.items())
    content = schema_content(refs)
    if content.folder != folder:
        raise ValueError("its documents do not have the checksum that it is named after")
    found.schemas[content.sha256] = content


def schema_content(refs: tuple[act.ObjectRef, ...]) -> SchemaContent:
    """Return schema documents with the folder and checksum that their content gives."""
    lines = (sums_line(ref.sha256, ref.path.rpartition("/")[2]) for ref in sorted(refs, key=lambda ref: ref.path))
    digest = sha256_hex("".join(lines).encode())
    return SchemaContent(schema_folder(digest), digest, tuple(sorted(refs, key=lambda ref: ref.path)))
