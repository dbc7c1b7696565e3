"""Rebuilds the log of a location whose log was lost or damaged.

The new log starts from the newest state that is proved whole: a checkpoint of it, and a first transaction, which
records what is lost. Fences occupy free revisions below it, so that a writer from before the loss cannot commit there.
A rebuild deletes nothing.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from snapshot_assets.catalog.catalog import writable, writer_name
from snapshot_assets.catalog.log.checkpoints import checkpoint_bytes
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.log.scan import LogScan, faults_of_log, scan_log
from snapshot_assets.catalog.log.store import Listing, append, reachable_end
from snapshot_assets.catalog.log.truncation import contradictions
from snapshot_assets.catalog.manifest import shown_state, write_hints
from snapshot_assets.catalog.pins.objects import damaged_objects
from snapshot_assets.catalog.rebuild.base import Base, find_base, fold
from snapshot_assets.catalog.rebuild.inventory import Inventory, take_inventory
from snapshot_assets.catalog.rebuild.pins import KeptPins, keep_pins
from snapshot_assets.catalog.rebuild.unproved_chunks import Recovered, recover
from snapshot_assets.catalog.receipts import Receipt
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.retained import needed_events
from snapshot_assets.catalog.state.totals import again_with, begun_with
from snapshot_assets.errors import (
    AcceptanceNeededError,
    ConflictError,
    ForeignLocationError,
    ForkError,
    LogWholeError,
    NoSnapshotError,
    ObjectExistsError,
    UnsupportedVersionError,
)
from snapshot_assets.format import actions as act
from snapshot_assets.format.documents import FORMAT_VERSION
from snapshot_assets.format.layout import checkpoint_path, log_revision, transaction_path
from snapshot_assets.format.name_texts import printed_name
from snapshot_assets.format.predicates import predicate_json
from snapshot_assets.format.transactions import encode_transaction, trailing_sha256
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.create import create_own

_LEAST_STEP = timedelta(milliseconds=1)


def write_log(store: ObjectStore, state: State, transaction: act.Transaction, log: Listing, pins: KeptPins) -> None:
    """Write the pins' objects, the fences, the checkpoint, and last the transaction; `log` is what is there.

    Raises:
        ConflictError: Another writer committed first; the checkpoint is deleted again.
    """
    for path, data in pins.created.items():
        create_own(store, path, data)
    for path, data in pins.restored.items():
        store.put(path, data)
    taken = set(log.transactions)
    # A writer could still commit after each run of transactions and checkpoints, and at revision 1.
    free = {revision + 1 for revision in {0, *taken, *log.checkpoints}} - taken
    for revision in sorted(free):
        if revision < transaction.revision:
            fence = replace(transaction, revision=revision, uuid=uuid.uuid4().hex, actions=(act.Rebuilt("", ()),))
            if not append(store, fence)[0]:
                raise _conflict(store, revision)
    path = checkpoint_path(transaction.revision)
    try:
        create_own(store, path, checkpoint_bytes(state))
    except ObjectExistsError:
        raise _conflict(store, transaction.revision) from None
    if not append(store, transaction)[0]:
        store.delete(path)
        raise _conflict(store, transaction.revision)
    write_hints(store, shown_state(read_state(store)), lambda: read_state(store))


def _conflict(store: ObjectStore, revision: int) -> ConflictError:
    return ConflictError(
        f"Another writer of {store.uri} took revision {revision} while it was rebuilt; the rebuild has no effect. "
        "Verify the location, and run again if it still needs a rebuild.",
        revision=revision,
    )


def _new_log(
    base: Base, inventory: Inventory, recovered: Recovered, lost: Iterable[str], now: datetime
) -> tuple[act.Transaction, KeptPins, tuple[str, ...]]:
    """Return the first transaction of a new log, its pins, and `lost` with sentences on pins and receipts.

    It starts with the base and the chunks that were recovered without proof, and the base's state becomes its state.
    """
    state, writer, log = base.state, writer_name(), inventory.log
    revision = max([inventory.highest, *log.transactions, *log.checkpoints]) + 1
    state.location_id = state.location_id or inventory.location_id or uuid.uuid4().hex
    state.format_version = state.format_version or FORMAT_VERSION
    missing = _forget_receipts(state, {ref for _, ref in inventory.receipts})
    live = {known.file.path for known in state.live_files()} - {*recovered.removed}
    kept = keep_pins(base, inventory, live, writer)
    rebuilt = act.Rebuilt(recovered.snapshot_id, (*lost, *missing, *kept.lost))
    actions = [rebuilt, *recovered.actions, *kept.actions]
    fold(state, (revision, time_after(state, now), writer), actions, recovered.removed, recovered.added)
    state.files.purge(state.files.unreferenced(state.retained()).keys() - inventory.objects.keys())
    return first_transaction(state, writer, rebuilt), kept, rebuilt.lost


def time_after(state: State, now: datetime) -> datetime:
    """Return the time of the revision after a state, in the log's unit."""
    return max(now.replace(microsecond=now.microsecond // 1000 * 1000), state.committed_at + _LEAST_STEP)


def first_transaction(state: State, writer: str, rebuilt: act.Rebuilt) -> act.Transaction:
    """Return the first transaction of a new log, whose action is folded into the state; this becomes its state."""
    transaction = act.Transaction(
        location_id=state.location_id,
        revision=state.revision,
        uuid=uuid.uuid4().hex,
        previous_uuid="",
        previous_sha256="",
        writer_id=writer,
        committed_at=state.committed_at,
        actions=(rebuilt,),
        version=state.format_version,
    )
    state.uuid, state.sha256 = transaction.uuid, trailing_sha256(encode_transaction(transaction))
    return transaction


def _forget_receipts(state: State, there: set[act.ObjectRef]) -> list[str]:
    """Remove missing and damaged receipts from a state; the checksums of their chunks prove the files."""
    actions = (action for event in needed_events(state, recent_expiries=False) for action in event.actions)
    lacking = {ref for action in actions if isinstance(action, act.Chunk) for ref in action.receipts} - there

    def without(chunk: act.Chunk) -> act.Chunk:
        return replace(chunk, receipts=tuple(ref for ref in chunk.receipts if ref in there))

    for place, event in enumerate(state.events):
        kept = (without(action) if isinstance(action, act.Chunk) else action for action in event.actions)
        state.events[place] = replace(event, actions=tuple(kept))
    for number, known in state.chunks.items():
        state.chunks[number] = replace(known, chunk=without(known.chunk))
    paths = ", ".join(sorted(ref.path for ref in lacking))
    return [f"Receipts are missing or damaged and no longer named: {paths}."] if lacking else []


def _lost_commits(base: Base, inventory: Inventory) -> list[str]:
    """Return which commits a rebuild loses, and what that means for chunks, in sentences."""
    sentences = [
        f"{_lost('Transaction', first, last, inventory)}; the state at revision {last} is recovered from {path}."
        for first, last, path in base.bridged
    ]
    if inventory.highest > base.state.revision:
        which = _lost("Revision", base.state.revision + 1, inventory.highest, inventory)
        sentences.append(f"{which}; the chunks they replaced, the rows they deleted and their pins are lost with them.")
    last = max(inventory.log.transactions, default=0)
    if inventory.highest not in inventory.transactions or last > inventory.highest:
        sentences.append(f"It is unknown whether revisions after {inventory.highest} were committed.")
    return sentences + _lost_exports(base, inventory)


def _lost(kind: str, first: int, last: int, inventory: Inventory) -> str:
    reasons = [text.rstrip(".") for number, text in sorted(inventory.unreadable.items()) if first <= number <= last]
    why = f" ({'; '.join(reasons)})" if reasons else ""
    return f"{kind} {first} is lost{why}" if first == last else f"{kind}s {first} to {last} are lost{why}"


def _lost_deletions(base: Base, inventory: Inventory) -> list[str]:
    """Return the deletions of rows that objects after the base show and the base lacks, in sentences."""
    found = {revision: each for revision, each in _later_actions(base, inventory) if isinstance(each, act.Tombstone)}
    for manifest in inventory.manifests:
        if manifest.revision > base.state.revision:
            found |= manifest.tombstones
    return [
        f"Rows of {printed_name(each.schema, each.table)} were deleted at revision {revision}, those where "
        f"{json.dumps(predicate_json(each.predicate))}; they may be back. Delete them again."
        for revision, each in sorted(found.items())
        if base.state.tombstones.get(revision) != each
    ]


def _later_actions(base: Base, inventory: Inventory) -> Iterator[tuple[int, act.Action]]:
    for revision, entry in sorted(inventory.transactions.items()):
        if revision > base.state.revision:
            yield from ((revision, action) for action in entry.transaction.actions)


def _lost_exports(base: Base, inventory: Inventory) -> list[str]:
    """Return the chunks that may have been exported again after the base, and the snapshots that start there."""
    state = base.state
    if state.header is None or base.is_end(inventory):
        return []
    actions = list(_later_actions(base, inventory))
    chunks = {
        action.id: transaction_path(revision)
        for revision, action in actions
        if isinstance(action, act.Chunk) and action.checksum and not action.exported and state.completed(action.id)
    }
    chunks |= {
        receipt.chunk: ref.path
        for receipt, ref in inventory.receipts
        if receipt.snapshot_id == state.snapshot_id and not receipt.compaction and _may_replace(state, receipt)
    }
    snapshots = {action.snapshot_id for _, action in actions if isinstance(action, act.Begin)}
    snapshots |= {receipt.snapshot_id for receipt, _ in inventory.receipts if receipt.base_revision > state.revision}
    return [
        f"Chunk {chunk} may have been exported again ({path}); its older version stays. Bring it up to date "
        f"{again_with(state, chunk)}."
        for chunk, path in sorted(chunks.items())
    ] + [
        f"Snapshot {snapshot_id} starts after revision {state.revision} and is lost. {begun_with(state)}"
        for snapshot_id in sorted(snapshots - {state.snapshot_id})
    ]


def _may_replace(state: State, receipt: Receipt) -> bool:
    """Return whether the export of a receipt may have replaced a state's version of the chunk."""
    live = [known.file for known in state.live_files(receipt.chunk)]
    if not state.completed(receipt.chunk) or {file.path for file in live} == {file.path for file in receipt.files}:
        return False
    later = receipt.base_revision >= state.chunks[receipt.chunk].revision
    return later or not {file.attempt for file in live}.isdisjoint(receipt.supersedes)


_SHOWN = 10


@dataclass(frozen=True)
class Rebuild:
    """What a rebuild did, or would do.

    Attributes:
        revision: The first revision of the new log; the head of a whole log.
        proved: The revision of the base; 0 if nothing proves a state.
        sealed: Whether the rebuilt state is sealed; a seal verifies it otherwise.
        missing: Chunks that the next export adopts or exports again.
        rows_outside: Rows outside the range, by the newest seal.
        committed: Whether the log was written.
        taken: The receipts or data files that chunks rest on without proof, by chunk.
        lost: What is lost or uncertain, in sentences.
        restored: Objects of tags and savepoints that were written again.
    """

    uri: str
    location_id: str
    snapshot_id: str
    revision: int
    proved: int
    sealed: bool
    missing: tuple[int, ...]
    files: int
    rows: int
    bytes: int
    tags: tuple[str, ...]
    savepoints: tuple[int, ...]
    rows_outside: tuple[act.RowsOutside, ...]
    committed: bool
    taken: Mapping[int, str] = field(default_factory=dict)
    lost: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()


def rebuild(
    store: ObjectStore,
    *,
    accept_undeleted: bool = False,
    from_files: bool = False,
    dry_run: bool = False,
    single_writer: bool = False,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Rebuild:
    """Rebuild a location's log, and name what is lost.

    `accept_undeleted` accepts that deleted rows and replaced chunks may come back. `from_files` uses the footers of
    data files in place of missing receipts. `single_writer` accepts a store without conditional creates: the caller
    promises to be the only writer.

    Raises:
        LogWholeError: There is nothing to rebuild.
        ForkError: An object of the log has a revision that no log reaches.
        ForeignLocationError: The log is whole and lacks objects of pins, but another object is of another location.
        AcceptanceNeededError: `accept_undeleted` is needed.
        NoSnapshotError: No object shows a snapshot.
        TagHeldError: An object records a hold on a tag whose revision nothing proves.
        ConflictError: Another writer committed meanwhile; the rebuild has no effect.
    """
    if not dry_run:
        store = writable(store, single_writer=single_writer, clock=clock)
    inventory, scan = take_inventory(store), scan_log(store)
    if _is_whole(scan, inventory):
        return _restore_pins(store, scan, inventory, committed=not dry_run)
    _refuse_unreachable(store, inventory)
    base = find_base(inventory)
    proved = base.state.revision
    recovered = recover(store, inventory, base, from_files=from_files)
    notes = [*inventory.notes, *base.notes, *recovered.lost]
    if recovered.header is None:
        raise NoSnapshotError(" ".join([f"Nothing at {store.uri} shows a snapshot.", *notes[:_SHOWN]]), uri=store.uri)
    deletions = _lost_deletions(base, inventory)
    if deletions and not accept_undeleted:
        raise AcceptanceNeededError(
            f"The log of {store.uri} lost deletions of rows. {' '.join(deletions[:_SHOWN])} Give --accept-undeleted to "
            "rebuild without these deletions.",
            rows=deletions,
        )
    if (recovered.taken or not proved) and not accept_undeleted:
        raise AcceptanceNeededError(
            f"The log of {store.uri} is lost, and nothing proves what receipts or data files alone show: deleted rows "
            "and replaced chunks may come back. Give --accept-undeleted to rebuild from them.",
            chunks=sorted(recovered.taken),
        )
    lost = [*_lost_commits(base, inventory), *deletions, *notes]
    transaction, pins, all_lost = _new_log(base, inventory, recovered, lost, clock())
    if not dry_run:
        write_log(store, base.state, transaction, inventory.log, pins)
    done = _described(store, base.state, proved, committed=not dry_run)
    return replace(done, taken=recovered.taken, lost=all_lost, restored=tuple(pins.restored))


def _refuse_unreachable(store: ObjectStore, inventory: Inventory) -> None:
    """Refuse a log object that no log reaches: a new log would have to go on above it."""
    end = reachable_end(inventory.highest, {*inventory.log.transactions, *inventory.log.checkpoints})
    for path in (path for path in inventory.objects if log_revision(path) > end):
        raise ForkError(
            f"{path} in {store.uri} is too far above revision {end}, the highest that other objects show, to be of its "
            "log. Move it away, and run again; nothing was changed.",
            object=path,
            uri=store.uri,
        )


def _is_whole(scan: LogScan, inventory: Inventory) -> bool:
    """Return whether the log has no fault except in older checkpoints, and nothing names a later revision."""
    for _, fault in scan.faults:
        if isinstance(fault, UnsupportedVersionError):
            raise fault
    own = scan.state.header is not None and scan.state.location_id == inventory.location_id
    return own and inventory.highest <= scan.state.revision and not any(faults_of_log(scan))


def _restore_pins(store: ObjectStore, scan: LogScan, inventory: Inventory, *, committed: bool) -> Rebuild:
    """Write the missing and damaged objects of a whole log's pins again."""
    state, damaged = scan.state, sorted({path for path, _ in scan.faults})
    objects = damaged_objects(state, {each.ref for each in inventory.pins})
    if not objects:
        again = f" `snapshots catalog repair` writes damaged checkpoints again: {', '.join(damaged)}."
        message = (
            f"The log of {store.uri} is whole up to revision {state.revision}; there is nothing to rebuild. "
            f"Verify names damaged data files; export their chunks again with --replace.{again if damaged else ''}"
        )
        raise LogWholeError(" ".join([message, *inventory.notes[:_SHOWN]]), revision=state.revision)
    for error in contradictions(store, state, inventory.objects):
        if isinstance(error, ForeignLocationError):  # the log may have been copied over the location's own
            raise error
    for path, data in objects.items() if committed else ():
        store.put(path, data)
    return replace(_described(store, state, state.revision, committed=committed), restored=tuple(objects))


def _described(store: ObjectStore, state: State, proved: int, *, committed: bool) -> Rebuild:
    files, rows, size = state.files.totals()
    return Rebuild(
        uri=store.uri,
        location_id=state.location_id,
        snapshot_id=state.snapshot_id,
        revision=state.revision,
        proved=proved,
        sealed=state.sealed,
        missing=tuple(state.missing()),
        files=files,
        rows=rows,
        bytes=size,
        tags=tuple(sorted(state.tags)),
        savepoints=tuple(sorted(state.pins.savepoints)),
        rows_outside=state.newest_seal.seal.rows_outside if state.newest_seal else (),
        committed=committed,
    )
