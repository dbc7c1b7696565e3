"""Everything at a location that a rebuild can use, read once: log objects, manifests, pins, receipts, schemas.

An object that is unreadable, misnamed or of another location is not used; a note states why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TypeVar

from snapshot_assets.catalog.log.checkpoints import check_transaction, read_checkpoint
from snapshot_assets.catalog.log.replay import FAULTS, read_entries
from snapshot_assets.catalog.log.store import Listing, list_log, listing_of, log_after, reachable_end
from snapshot_assets.catalog.log.truncation import newer_manifest
from snapshot_assets.catalog.manifest import StoredManifest, read_manifest
from snapshot_assets.catalog.pins.objects import PinObject, read_pin
from snapshot_assets.catalog.receipt_selection import ReceiptAt
from snapshot_assets.catalog.receipts import read_receipt
from snapshot_assets.catalog.rules import SchemaContent
from snapshot_assets.catalog.schemas import read_content
from snapshot_assets.catalog.state.data_files import FileSet
from snapshot_assets.catalog.state.file_columns import FileColumns
from snapshot_assets.catalog.state.fold import LogEntry, State
from snapshot_assets.catalog.state.retained import named_by
from snapshot_assets.errors import (
    ForkError,
    LocationDeletedError,
    MisnamedError,
    ObjectNotFoundError,
    PlanError,
    UnsupportedVersionError,
)
from snapshot_assets.format import actions as act
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.layout import (
    MANIFEST,
    TRANSACTIONS,
    checkpoint_path,
    in_layout,
    is_receipt,
    log_revision,
    sealed_revision,
    transaction_path,
)
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.bulk import Listed

_Read = TypeVar("_Read")


@dataclass
class Inventory:
    """A location's objects.

    Attributes:
        objects: All objects, by path.
        log: The revisions that have a transaction or a checkpoint, readable or not.
        unreadable: Why other transactions are not used, by revision.
        strays: Log objects that are misnamed, or of another location or past: no evidence of a revision.
        location_id: The location's id; "" if nothing names it.
        start: The state in the newest readable checkpoint, without damaged statistics; empty without a checkpoint.
        schemas: Schema documents by the checksum of their content.
        notes: What is not used, and why.
    """

    objects: Listed
    log: Listing
    transactions: dict[int, LogEntry] = field(default_factory=dict)
    unreadable: dict[int, str] = field(default_factory=dict)
    strays: set[str] = field(default_factory=set)
    location_id: str = ""
    start: State = field(default_factory=State)
    hints: list[StoredManifest] = field(default_factory=list)
    pins: list[PinObject] = field(default_factory=list)
    receipts: list[ReceiptAt] = field(default_factory=list)
    schemas: dict[str, SchemaContent] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def manifests(self) -> list[StoredManifest]:
        """All manifests, those of pins too, by revision."""
        manifests = [*self.hints, *(pin.manifest for pin in self.pins)]
        return sorted(manifests, key=lambda manifest: manifest.revision)

    @cached_property
    def highest(self) -> int:
        """The highest revision that may have been committed, as any object of this location shows."""
        shown = [manifest.revision for manifest in self.manifests]
        shown += [receipt.base_revision for receipt, _ in self.receipts]
        shown += [sealed_revision(path) or 0 for path in self.objects]
        shown += [log_revision(path) for path in self.objects.keys() - self.strays]
        return reachable_end(self.start.revision, shown)

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of all objects, by path."""
        return {path: info.size for path, info in self.objects.items()}

    def leave_out(self, path: str, why: str, *, stray: bool) -> None:
        """Note why an object is not used; a stray is no evidence of a revision either."""
        self.notes.append(why)
        if stray:
            self.strays.add(path)

    def has(self, file: DataFile) -> bool:
        """Return whether a data file exists with its size."""
        return file.path in self.objects and self.objects[file.path].size == file.bytes


def take_inventory(store: ObjectStore) -> Inventory:
    """Read everything except data files.

    Raises:
        UnsupportedVersionError: A transaction is of a newer format, or all are lost and the manifest is.
        LocationDeletedError: The snapshot was deleted.
    """
    objects = Listed(store)
    shown = list_log(store)
    # A listing may pass over transactions, so they are requested.
    numbers = log_after(store, shown, shown.start)
    objects.missing([*map(transaction_path, numbers), *map(checkpoint_path, shown.checkpoints)])
    found = Inventory(objects, listing_of(path for path in objects if path.startswith(TRANSACTIONS)))
    _read_transactions(store, found)
    newest_first = map(checkpoint_path, reversed(found.log.checkpoints))
    checkpoints = _readable(found, newest_first, lambda path: read_checkpoint(store, log_revision(path)))
    objects.missing(filter(in_layout, _named(found, checkpoints)))  # adds what the listing passed over
    paths = sorted(objects)
    found.receipts = _readable(found, filter(is_receipt, paths), partial(read_receipt, store))
    pins = [path for path in paths if path.startswith(("tag/", "savepoint/"))]
    found.pins = _readable(found, pins, partial(read_pin, store))
    if not found.log.transactions and (newer := newer_manifest(store)):
        raise newer
    found.hints = _readable(found, {MANIFEST}.intersection(paths), partial(read_manifest, store))
    folders = sorted({path.rpartition("/")[0] for path in paths if path.startswith("schema/")})
    contents = _readable(found, folders, partial(read_content, store))
    found.schemas = {content.sha256: content for content in contents}
    _leave_out_foreign(found, checkpoints)
    own = (state for state in checkpoints if state.location_id == found.location_id and _agrees(store, found, state))
    found.start = _with_statistics(next(own, State()), found)
    for revision, entry in found.transactions.items():
        if any(isinstance(action, act.Deleted) for action in entry.transaction.actions):
            raise LocationDeletedError(
                f"{transaction_path(revision)} records that the snapshot at {store.uri} was deleted; there is nothing "
                "to rebuild. Delete it again to remove its last objects.",
                uri=store.uri,
            )
    return found


def _named(found: Inventory, checkpoints: Sequence[State]) -> Iterator[str]:
    newest = checkpoints[0] if checkpoints else State()
    yield MANIFEST
    yield from newest.files.paths()
    events = [event.actions for event in newest.events]
    for actions in [*events, *(entry.transaction.actions for entry in found.transactions.values())]:
        for action in actions:
            yield from named_by(action)


def _readable(found: Inventory, paths: Iterable[str], read: Callable[[str], _Read]) -> list[_Read]:
    results = []
    for path in paths:
        try:
            results.append(read(path))
        except (*FAULTS, PlanError, ObjectNotFoundError, KeyError, TypeError, ValueError) as error:
            found.leave_out(path, f"{path} cannot be used: {error}", stray=isinstance(error, MisnamedError))
    return results


def _read_transactions(store: ObjectStore, found: Inventory) -> None:
    for revision, entry in read_entries(store, found.log.transactions):
        if isinstance(entry, UnsupportedVersionError):
            raise entry
        if isinstance(entry, MisnamedError):
            found.leave_out(transaction_path(revision), str(entry), stray=True)
        elif isinstance(entry, FAULTS):
            found.unreadable[revision] = str(entry)
        else:
            found.transactions[revision] = entry


def _leave_out_foreign(found: Inventory, checkpoints: Sequence[State]) -> None:
    """Decide the location's id, which most objects have, and keep only those."""
    named = Counter(entry.transaction.location_id for entry in found.transactions.values())
    named.update(manifest.location_id for manifest in found.manifests)
    named.update(receipt.location_id for receipt, _ in found.receipts)
    named.update(state.location_id for state in checkpoints)
    found.location_id = own = max(sorted(named.keys() - {""}), key=lambda each: named[each], default="")

    def is_own(path: str, location_id: str) -> bool:
        if location_id in ("", own):
            return True
        why = f"{path} belongs to location {location_id}; this one is {own}. Move it away."
        found.leave_out(path, why, stray=True)
        return False

    for revision, entry in list(found.transactions.items()):
        if not is_own(transaction_path(revision), entry.transaction.location_id):
            del found.transactions[revision]
    found.receipts = [each for each in found.receipts if is_own(each[1].path, each[0].location_id)]
    found.pins = [pin for pin in found.pins if is_own(pin.ref.path, pin.manifest.location_id)]
    found.hints = [manifest for manifest in found.hints if is_own(manifest.path, manifest.location_id)]
    for state in checkpoints:
        is_own(checkpoint_path(state.revision), state.location_id)


def _agrees(store: ObjectStore, found: Inventory, state: State) -> bool:
    try:
        check_transaction(store, state, list(found.transactions))
    except ForkError as error:
        found.leave_out(checkpoint_path(state.revision), str(error), stray=True)
        return False
    return True


def _with_statistics(state: State, found: Inventory) -> State:
    """Return a checkpoint's state with the statistics that can be read; note whether some cannot."""
    files = state.files.merged()
    bounds = files.bounds.readable()
    if bounds.columns != files.bounds.columns:
        path = checkpoint_path(state.revision)
        found.notes.append(f"Statistics in {path} are damaged; those that cannot be read exclude no files from now on.")
    state.files = FileSet(FileColumns(files.table, bounds))
    return state
