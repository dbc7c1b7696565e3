"""Verification of older readable revisions, tags and savepoints: each object once, however many revisions need it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, groupby
from operator import attrgetter

from snapshot_assets.catalog.log.scan import LogScan, scan_log
from snapshot_assets.catalog.manifest import checksum_of, manifest_of
from snapshot_assets.catalog.pins.objects import pin_document
from snapshot_assets.catalog.state.fold import SealState, State
from snapshot_assets.catalog.state.pins import PinState
from snapshot_assets.catalog.state.retained import between, documents_of, lives, needed_events
from snapshot_assets.catalog.verify.faults import Fault, FaultKind, faults_by_object, read_object
from snapshot_assets.format.actions import DataFile, ObjectRef
from snapshot_assets.format.layout import is_receipt, transaction_path
from snapshot_assets.format.units import noun
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.bulk import Listed

_SHOWN = 5


def older_files(state: State) -> Iterator[tuple[DataFile, list[int]]]:
    """Yield every file that a readable revision has and the head lacks, with the revisions that have it."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    base, retained = state.files.merged(), np.array(state.retained(), dtype=np.int64)
    added, removed, paths = base.column("added"), base.column("removed"), base.table["path"]
    first = np.searchsorted(retained, added)
    end = np.where(removed == 0, len(retained), np.searchsorted(retained, removed))
    ended = (first < end) & (removed != 0)  # most files are live: few paths are compared
    again = np.asarray(pc.is_in(paths, pc.unique(paths.filter(pa.array(ended))))) & (removed == 0)
    rows = np.flatnonzero(ended & ~base.among(base.paths(again)))
    found = zip(base.picked(rows), first[rows].tolist(), end[rows].tolist(), strict=True)
    for _, intervals in groupby(found, key=lambda each: each[0].file.path):
        known = list(intervals)
        yield known[0][0].file, [int(each) for _, one, other in known for each in retained[one:other]]


def needed_objects(state: State) -> dict[str, ObjectRef]:
    """Return by path the objects that a head needs, with checksum and size; all but its log and its hints."""
    files = chain((known.file for known in state.live_files()), (file for file, _ in older_files(state)))
    needed = {file.path: ObjectRef(file.path, file.sha256, file.bytes) for file in files}
    events = needed_events(state, recent_expiries=False)
    documents = (ref for event in events for action in event.actions for ref in documents_of(action))
    pins = (known.pin.object for known in state.pins)
    return needed | {ref.path: ref for ref in chain(documents, pins)}


def of_older(fault: Fault, state: State, revisions: Sequence[int]) -> Fault:
    """Return a fault that also names the older revisions that need the object, and their pins."""
    pins = sorted(str(known.pin) for known in state.pins if known.pin.revision in revisions)
    pinned = f" ({', '.join(pins)})" if pins else ""
    needing = f"{some_of(revisions)}{pinned} {noun(len(revisions), 'needs', 'need')} it."
    return replace(fault, finding=f"{fault.finding[:-1]}; {needing}", revisions=tuple(revisions))


def some_of(revisions: Sequence[int]) -> str:
    """Return the first few revisions in words, and how many more there are."""
    named = ", ".join(map(str, revisions[:_SHOWN]))
    more = f" and {len(revisions) - _SHOWN} more" if len(revisions) > _SHOWN else ""
    return f"{noun(len(revisions), 'revision')} {named}{more}"


def older_documents(state: State) -> dict[ObjectRef, list[int]]:
    """Return the receipts and schema documents that readable revisions name and the head does not, by object."""
    readable, heads = [sealed.revision for sealed in state.readable()], set()
    found: defaultdict[ObjectRef, set[int]] = defaultdict(set)
    for added, action, _, end in lives(state.events):
        for ref in documents_of(action):
            if end is None:
                heads.add(ref)
            else:
                found[ref].update(between(readable, added.revision, end.revision))
    return {ref: sorted(revisions) for ref, revisions in found.items() if revisions and ref not in heads}


def older_document_faults(store: ObjectStore, head: State, objects: Listed) -> Iterator[Fault]:
    """Yield the faults of the receipts and schema documents that only older readable revisions name."""
    needed = older_documents(head)
    for ref, fault in faults_by_object(store, needed, objects):
        yield replace(of_older(fault, head, needed[ref]), repairable=is_receipt(ref.path))


def older_seal_faults(head: State) -> Iterator[Fault]:
    """Yield the readable revisions whose checksum differs from their seal, except the head's own seal."""
    own = head.newest_seal if head.sealed else None
    for sealed, then in sealed_states(head):
        if sealed == own:
            continue
        found, expected = checksum_of(then), sealed.seal.checksum
        if found != expected:
            message = f"Revision {sealed.revision} has checksum {found}; its seal records {expected}."
            path = transaction_path(sealed.revision)
            yield Fault(FaultKind.SNAPSHOT_CHECKSUM, path, message, revisions=(sealed.revision,))


def sealed_states(head: State) -> Iterator[tuple[SealState, State]]:
    """Yield each readable seal with its state, as `State.at` returns it."""
    for sealed, then in head.readable_without_files():
        then.files = head.files.at(sealed.revision)
        yield sealed, then


def pin_faults(scan: LogScan, objects: Listed, only: int | None) -> Iterator[Fault]:
    """Yield the faults of the objects of tags and savepoints at the head.

    `only` is the revision whose pins are checked; None for all.
    """
    pins = [known for known in scan.state.pins if only in (None, known.pin.revision)]
    pinned = attrgetter("pin.revision")
    for revision, pinning in groupby(sorted(pins, key=pinned), pinned):
        state = scan.state.at(revision)
        for known in pinning:
            yield from _pin_faults(scan, state, known, objects)


def _pin_faults(scan: LogScan, state: State, known: PinState, objects: Listed) -> Iterator[Fault]:
    pin, path = known.pin, known.pin.object.path
    document = read_object(scan.store, pin.object, path in objects)
    if isinstance(document, Fault):
        # The pin may have been deleted after the log was read, or by an unreadable transaction, a fault itself.
        is_missing = document.kind is FaultKind.MISSING
        if not is_missing or (not scan.faults and known in scan_log(scan.store).state.pins):
            yield replace(document, repairable=True)
    elif document != pin_document(pin, known.created_by, known.version, manifest_of(state), known.hold):
        message = f"{path} is what was committed, but not what the log gives for {pin} at revision {pin.revision}."
        yield Fault(FaultKind.DOCUMENT, path, f"{message} Delete {pin}, and create it again.")
