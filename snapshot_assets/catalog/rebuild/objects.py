"""What lies at a location and speaks for its log: log objects, sealed manifests, pins, receipts, schema documents.

Reading only, and of everything that can be read: what cannot is noted in words, never guessed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from snapshot_assets.catalog.log.checkpoints import read_checkpoint
from snapshot_assets.catalog.log.listing import Listing, list_log, listing_of, log_after
from snapshot_assets.catalog.log.replay import FAULTS, read_entries
from snapshot_assets.catalog.rebuild.documents import (
    FoundSavepoint,
    FoundTag,
    Manifest,
    read_manifest,
    read_savepoint,
    read_schema_content,
    read_tag,
)
from snapshot_assets.catalog.receipts.receipts import Receipt, read_receipt
from snapshot_assets.catalog.rules import SchemaContent
from snapshot_assets.catalog.state.chain import LogEntry
from snapshot_assets.catalog.state.data_files import FileSet
from snapshot_assets.catalog.state.file_columns import FileColumns
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.verify import named_by
from snapshot_assets.errors import DamageError, LocationDeletedError, ObjectNotFoundError, UnsupportedVersionError
from snapshot_assets.format import actions as act
from snapshot_assets.format.layout import (
    MANIFEST,
    TRANSACTIONS,
    checkpoint_path,
    in_layout,
    is_receipt,
    transaction_path,
)
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.listed import Listed


@dataclass
class Evidence:
    """Everything that was found.

    Attributes:
        objects: The location's objects by path.
        log: What lies in the log's folder.
        entries: Readable transactions of this location after `start`, by revision.
        broken: Why the others cannot be read, or do not follow it, by revision.
        location_id: The location's id, "" where nothing tells it.
        start: The newest state that the log proves without a hole.
        manifests: Those that can be used, by revision.
        notes: What could not be used, in words.
    """

    objects: Listed
    log: Listing
    entries: dict[int, LogEntry]
    broken: dict[int, str]
    location_id: str = ""
    start: State = field(default_factory=State)
    receipts: list[tuple[Receipt, act.ObjectRef]] = field(default_factory=list)
    manifests: dict[int, Manifest] = field(default_factory=dict)
    unsealed: Manifest | None = None
    tags: list[FoundTag] = field(default_factory=list)
    savepoints: list[FoundSavepoint] = field(default_factory=list)
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
    def end_is_lost(self) -> bool:
        """Whether the transaction of the highest revision is gone; what an earlier rebuild put there is none."""
        there = self.entries.get(self.highest)
        return self.highest not in self.log.transactions or (there is not None and there.begins_anew)


def gather(store: ObjectStore) -> Evidence:
    """Read everything but data.

    Raises:
        UnsupportedVersionError: Something of the log is of a newer format: it is not damaged, but not readable here.
        LocationDeletedError: The snapshot was deleted.
    """
    objects = Listed(store)
    listing = _whole_listing(store, objects)
    found, manifests = Evidence(objects, listing, *_read_log(store, listing)), list[Manifest]()
    objects.missing(filter(in_layout, _named(store, found)))  # from here on it knows those that it passed over

    def take_tag(tag: FoundTag, manifest: Manifest) -> None:
        found.tags.append(tag)
        manifests.append(manifest)

    def take_savepoint(savepoint: FoundSavepoint, manifest: Manifest) -> None:
        found.savepoints.append(savepoint)
        manifests.append(manifest)

    def take_schema(content: SchemaContent) -> None:
        found.schemas[content.sha256] = content

    for path in objects:
        if is_receipt(path):
            _read(found, path, lambda path=path: found.receipts.append(read_receipt(store, path)))
        elif path.startswith("tag/"):
            _read(found, path, lambda path=path: take_tag(*read_tag(store, path)))
        elif path.startswith("savepoint/"):
            _read(found, path, lambda path=path: take_savepoint(*read_savepoint(store, path)))
        elif path == MANIFEST:
            _read(found, path, lambda path=path: manifests.append(read_manifest(store, path)))
    for folder in sorted({path.rpartition("/")[0] for path in objects if path.startswith("schema/")}):
        _read(found, folder, lambda folder=folder: take_schema(read_schema_content(store, folder)))
    _leave_out_foreign(store, found, manifests)
    _refuse_deleted(store, found.entries)
    found.start = _furthest(store, found)
    found.entries = {revision: entry for revision, entry in found.entries.items() if revision > found.start.revision}
    _leave_out_contradicted(found)
    _leave_out_damaged(found)
    return found


def _read(found: Evidence, path: str, read: Any) -> None:
    try:
        read()
    except ObjectNotFoundError:
        found.notes.append(f"{path} went away while it was read.")
    except (DamageError, UnsupportedVersionError, KeyError, TypeError, ValueError) as error:
        found.notes.append(f"{path} cannot be used: {error}")


# The log


def _whole_listing(store: ObjectStore, objects: Listed) -> Listing:
    """Return what lies in the log's folder, after asking for each transaction that a listing does not show."""
    shown = list_log(store)
    last = max((*shown.transactions, *shown.checkpoints), default=0)
    numbers = [*range(shown.start + 1, last + 1), *log_after(store, shown, last)]
    objects.missing([*map(transaction_path, numbers), *map(checkpoint_path, shown.checkpoints)])
    return listing_of(path for path in objects if path.startswith(TRANSACTIONS))


def _named(store: ObjectStore, found: Evidence) -> Iterator[str]:
    """Yield the paths of documents that the log names."""
    yield MANIFEST
    said = [action for entry in found.entries.values() for action in entry.transaction.actions]
    said += [action for event in _newest_checkpoint(store, found).events for action in event.actions]
    for action in said:
        if not isinstance(action, act.AddFile):
            yield from named_by(action)


def _read_log(store: ObjectStore, listing: Listing) -> tuple[dict[int, LogEntry], dict[int, str]]:
    entries: dict[int, LogEntry] = {}
    broken: dict[int, str] = {}
    for revision, entry in read_entries(store, listing.transactions):
        if isinstance(entry, UnsupportedVersionError):
            raise entry
        if isinstance(entry, FAULTS):
            broken[revision] = f"{type(entry).__name__}: {entry}"
        else:
            entries[revision] = entry
    return entries, broken


def _refuse_deleted(store: ObjectStore, entries: Mapping[int, LogEntry]) -> None:
    for revision, entry in entries.items():
        if any(isinstance(action, act.Deleted) for action in entry.transaction.actions):
            raise LocationDeletedError(
                f"{transaction_path(revision)} says that the snapshot at {store.uri} was deleted; there is nothing "
                "to rebuild. Delete it once more to remove what is left.",
                uri=store.uri,
            )


def _furthest(store: ObjectStore, found: Evidence) -> State:
    """Return the state that the log proves furthest; where none has all statistics, without those that are damaged."""
    whole, state = (_folded(store, found, statistics=statistics) for statistics in (True, False))
    if whole.revision == state.revision:
        return whole
    files = state.files.merged()
    bounds = files.bounds.readable()
    for column in sorted(files.bounds.columns - bounds.columns):
        found.notes.append(f"Statistics of column {column} in a checkpoint are damaged; they exclude no file any more.")
    state.files = FileSet(FileColumns(files.table, bounds))
    return state


def _folded(store: ObjectStore, found: Evidence, *, statistics: bool) -> State:
    """Return the state at the newest readable checkpoint and as far after it as transactions follow one another."""
    last, entries = None, found.entries
    while True:
        state = _newest_checkpoint(store, found, statistics=statistics)
        while state.revision != last and state.revision + 1 in entries:
            revision = state.revision + 1
            try:
                state.apply(entries[revision], transaction_path(revision))
            except FAULTS as fault:
                found.broken.setdefault(revision, f"{type(fault).__name__}: {fault}")
                last = revision - 1
                break  # the state is half changed: fold again, up to the one before
        else:
            return state


def _newest_checkpoint(store: ObjectStore, found: Evidence, *, statistics: bool = False) -> State:
    """Return the newest state of this location that a checkpoint holds; of any location, where it is not known yet."""
    for revision in reversed(found.log.checkpoints):
        try:
            state = read_checkpoint(store, revision, statistics=statistics)
        except (DamageError, ObjectNotFoundError):
            continue
        there = found.entries.get(revision)
        if found.location_id not in ("", state.location_id):
            _note_foreign(found, checkpoint_path(revision), state.location_id)
        elif there is None or there.fills_hole or there.sha256 == state.sha256:
            return state
        else:
            _note_once(
                found, f"{checkpoint_path(revision)} is not of {transaction_path(revision)}, so it does not count."
            )
    return State()


# Objects of other locations, and of another past of this one


def _leave_out_foreign(store: ObjectStore, found: Evidence, manifests: list[Manifest]) -> None:
    """Leave out, and note, what somebody brought from another location."""
    found.location_id = own = _own_location(store, found, manifests)

    def is_own(path: str, location_id: str) -> bool:
        if location_id not in ("", own):
            _note_foreign(found, path, location_id)
        return location_id in ("", own)

    for revision, entry in list(found.entries.items()):
        said = entry.transaction.location_id
        if said != own:
            found.broken[revision] = f"{transaction_path(revision)} belongs to location {said}; this one is {own}"
            del found.entries[revision]
    found.receipts = [each for each in found.receipts if is_own(each[1].path, each[0].location_id)]
    for manifest in manifests:
        if not is_own(manifest.path, manifest.location_id):
            found.tags = [tag for tag in found.tags if tag.path != manifest.path]
            found.savepoints = [each for each in found.savepoints if each.path != manifest.path]
        elif manifest.sealed:
            found.manifests.setdefault(manifest.revision, manifest)
        else:
            found.unsealed = manifest


def _note_foreign(found: Evidence, path: str, location_id: str) -> None:
    _note_once(
        found, f"{path} belongs to location {location_id}; this one is {found.location_id}, so it does not count."
    )


def _note_once(found: Evidence, note: str) -> None:
    if note not in found.notes:
        found.notes.append(note)


def _own_location(store: ObjectStore, found: Evidence, manifests: Iterable[Manifest]) -> str:
    """Return, of the locations that transactions name, the one that most objects name; of all, where there are none."""
    logged = [entry.transaction.location_id for entry in found.entries.values()]
    others = [manifest.location_id for manifest in manifests] + [receipt.location_id for receipt, _ in found.receipts]
    others += [] if logged else [_newest_checkpoint(store, found).location_id]
    named = Counter(filter(None, [*logged, *others]))
    among = set(logged) or named.keys()
    return max((each for each in named if each in among), key=lambda each: named[each], default="")


def _leave_out_contradicted(found: Evidence) -> None:
    """Leave out, and note, manifests of revisions that transactions seal otherwise, or not: the log was set back."""
    for revision, manifest in list(found.manifests.items()):
        entry = found.entries.get(revision)
        if entry is None or entry.begins_anew:
            continue
        seals = [action for action in entry.transaction.actions if isinstance(action, act.Seal)]
        if all(seal.checksum != manifest.document["checksum"] for seal in seals):
            found.notes.append(
                f"{manifest.path} is of a revision {revision} that {transaction_path(revision)} does not seal, so it "
                "does not count."
            )
            del found.manifests[revision]


def _leave_out_damaged(found: Evidence) -> None:
    """Leave out, and note, receipts that are not what the log names them as, though they can be read."""
    entries = [action for entry in found.entries.values() for action in entry.transaction.actions]
    past = [action for event in found.start.events for action in event.actions]
    named = {ref.path: ref for each in (*past, *entries) if isinstance(each, act.Chunk) for ref in each.receipts}
    damaged = {ref.path: ref.sha256 for _, ref in found.receipts if named.get(ref.path, ref) != ref}
    found.receipts = [each for each in found.receipts if each[1].path not in damaged]
    found.notes += [
        f"{path} has SHA-256 {sha256}; the log says {named[path].sha256}, so it does not count."
        for path, sha256 in sorted(damaged.items())
    ]
