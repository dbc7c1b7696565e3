"""Detects a log that was lost, lost its end, or belongs to another location, by the objects beside it.

A writer would commit other transactions in place of the lost ones, and garbage collection would delete their files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta

from snapshot_assets.catalog.log.checkpoints import manifest_facts
from snapshot_assets.catalog.log.replay import FAULTS, bring_back, fault_remedy, open_log, read_state
from snapshot_assets.catalog.log.scan import LogScan, faults_of_log
from snapshot_assets.catalog.log.store import is_there
from snapshot_assets.catalog.receipts import Receipt, read_receipt
from snapshot_assets.catalog.replica import read_marker, reader_view
from snapshot_assets.catalog.state.fold import State, foreign_location
from snapshot_assets.catalog.state.retained import documents_of
from snapshot_assets.errors import (
    DamageError,
    ForeignLocationError,
    LocationNotEmptyError,
    LostLogError,
    NoSnapshotError,
    ObjectNotFoundError,
    UnsupportedVersionError,
)
from snapshot_assets.format.documents import MAX_DOCUMENT_BYTES, parse_json
from snapshot_assets.format.layout import MANIFEST, checkpoint_path, in_layout, is_receipt, transaction_path
from snapshot_assets.storage.base import ObjectInfo, ObjectStore

_PINS = ("tag/", "savepoint/")
_CLOCKS_DIFFER = timedelta(minutes=10)
"""Upper bound of the difference between a writer's clock and the store's clock."""


def newest_state(store: ObjectStore, objects: Iterable[ObjectInfo] | None = None) -> State:
    """Return the head's state, after checking that the log is this location's and has its end.

    Of a replica of chosen versions, this is what it has; see `newest_recorded_state`.

    Reads the log, the manifest, tags, savepoints and the receipts since the head, which one listing of `data/` shows,
    or `objects`, if the caller has listed them. `refuse_lost_end` reads all receipts.

    Raises:
        LostLogError: The log, or its end, was lost.
        ForeignLocationError: A checkpoint, the manifest, a pin or a receipt belongs to another location.
        ForkError: A checkpoint is of another past of this location.
        DamageError: The log has another fault.
    """
    view = reader_view(store)
    return view(newest_recorded_state(store, objects))


def newest_recorded_state(
    store: ObjectStore, objects: Iterable[ObjectInfo] | None = None, *, every_receipt: bool = False
) -> State:
    """Return the head's state as the log records it, with versions that a replica may lack; see `newest_state`.

    With `every_receipt`, also receipts are read that were written before the head: they may be of another location.
    """
    state, listing = open_log(store)
    if not state.revision:
        refuse_lost_log(store)
        if is_there(store, MANIFEST) and not is_there(store, transaction_path(1)):
            raise LocationNotEmptyError(
                f"{store.uri} has no log, but a {MANIFEST} that is damaged or of another program; an export would "
                "overwrite it. Choose another location, or move it away.",
                uri=store.uri,
            )
    elif not state.deleted:
        if listing.strays:
            raise listing.strays[0]
        paths = [MANIFEST, *(info.path for folder in _PINS for info in store.list(folder))]
        for error in contradictions(store, state, paths):
            raise error
        last = max(listing.checkpoints, default=0)  # written after its transaction
        _check_revision(store, max(listing.transactions, default=0), checkpoint_path(last), last)
        since = state.committed_at - _CLOCKS_DIFFER  # what was planned on a later revision was written after the head
        listed = store.list("data/") if objects is None else objects
        receipts = (info for info in listed if is_receipt(info.path))
        new = (each.path for each in receipts if every_receipt or each.modified >= since)
        for error in contradictions(store, state, new):
            raise error
    return state


def existing_state(store: ObjectStore) -> State:
    """Return the head's state, the empty one only if nothing shows that a log existed; else raise a LostLogError."""
    state = read_state(store)
    if not state.revision:
        refuse_lost_log(store)
    return state


def refuse_lost_log(store: ObjectStore) -> None:
    """Refuse a location without a log if it has objects that are only written after a log exists.

    Another writer may begin the log after the caller read it. Then nothing is lost.

    Raises:
        LostLogError: It has such objects; garbage collection would delete them.
        UnsupportedVersionError: They are of a newer format.
        NoSnapshotError: It is a replica whose first copy has not ended.
    """
    if not is_there(store, transaction_path(1)) and (marker := read_marker(store)) is not None:
        raise NoSnapshotError(
            f"{store.uri} is a replica of {marker.source} whose first copy has not ended; run `snapshots replicate` "
            "again.",
            uri=store.uri,
        )
    there = next((info.path for info in store.list("data/") if in_layout(info.path)), "")
    there = there or (MANIFEST if manifest_facts(store, MANIFEST)[0] else "")
    if there and not is_there(store, transaction_path(1)):
        raise newer_manifest(store) or LostLogError(
            f"{store.uri} has no log, but {there} is there: the log was lost. {bring_back(store)}",
            uri=store.uri,
        )


def newer_manifest(store: ObjectStore) -> UnsupportedVersionError | None:
    """Return the error of a lost log, or end of a log, beside a manifest of a newer format; None for another manifest.

    The log was newer too, so this program must not rebuild it.
    """
    try:
        parse_json(store.get(MANIFEST, limit=MAX_DOCUMENT_BYTES), MANIFEST)
    except UnsupportedVersionError as error:
        message = f"The log of {store.uri}, or its end, is lost, and {error}"
        return UnsupportedVersionError(message, **error.attributes, uri=store.uri)
    except (DamageError, ObjectNotFoundError):
        pass  # not evidence of a newer format
    return None


def refuse_lost_end(store: ObjectStore) -> None:
    """Refuse a location where any object names a later revision than the log's last one; reads all receipts."""
    newest_recorded_state(store, every_receipt=True)


def refuse_faults(scan: LogScan, done: str) -> None:
    """Refuse a log with faults before anything is deleted; `done` is what is not done, for the message.

    Opening reads only the newest checkpoint and the log after it. That does not reveal a log that was copied here, with
    its checkpoints, from a copy of this location.

    Raises:
        DamageError: The first fault of the log.
    """
    store = scan.store
    for path, fault in faults_of_log(scan):
        raise DamageError(
            f"The log has a fault, so {done} at {store.uri}: {fault}{fault_remedy(store, path, fault)} `snapshots"
            " export verify` names all faults.",
            object=path,
            uri=store.uri,
        )


def contradictions(
    store: ObjectStore, state: State, paths: Iterable[str]
) -> Iterator[LostLogError | ForeignLocationError | UnsupportedVersionError]:
    """Yield which manifests, tags, savepoints and receipts in `paths` are of a later revision or another location.

    Objects that the log names were written for a revision that it has; only the others are read.
    """
    named = {known.pin.object.path for known in state.pins}
    named |= {ref.path for event in state.events for action in event.actions for ref in documents_of(action)}
    for path in (path for path in paths if path not in named):
        try:
            if is_receipt(path):
                check_receipt(store, state, read_receipt(store, path)[0])
            elif path == MANIFEST or path.startswith(_PINS):
                location, revision = manifest_facts(store, path)
                if location:
                    _check_origin(store, state, path, location, revision)
        except LostLogError as error:
            yield newer_manifest(store) or error
        except ForeignLocationError as error:
            yield error
        except (*FAULTS, ObjectNotFoundError):
            continue  # torn, so no transaction names it; or deleted since it was listed


def check_receipt(store: ObjectStore, state: State, receipt: Receipt) -> None:
    """Refuse a state that a receipt contradicts: it was planned on a later revision, or is of another location."""
    if receipt.location_id or receipt.snapshot_id == state.snapshot_id:
        location = receipt.location_id or state.location_id
        _check_origin(store, state, receipt.path, location, receipt.base_revision)


def _check_origin(store: ObjectStore, state: State, path: str, location: str, revision: int) -> None:
    if location != state.location_id:
        raise foreign_location(path, location, state.location_id, transaction_path(1))
    _check_revision(store, state.revision, path, revision)


def _check_revision(store: ObjectStore, head: int, path: str, revision: int) -> None:
    if revision <= head or is_there(store, transaction_path(revision)):  # committed since the log was read
        return
    raise LostLogError(
        f"The log of {store.uri} ends at revision {head}, but {path} is of revision {revision}: the log's end was "
        f"lost. {bring_back(store)} If that reports a whole log, {path} is damaged: move it away.",
        object=transaction_path(head + 1),
        uri=store.uri,
        revision=head,
        expected=revision,
        evidence=path,
    )
