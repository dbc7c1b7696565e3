"""Rebuilds the log of a location whose log was lost or damaged.

The new log starts from the newest state that is proved whole. A rebuild deletes nothing and names all that is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from snapshot_assets.catalog.catalog import writable
from snapshot_assets.catalog.log.scan import LogScan, faults_of_log, scan_log
from snapshot_assets.catalog.log.truncation import contradictions
from snapshot_assets.catalog.pins.objects import damaged_objects
from snapshot_assets.catalog.rebuild.base import find_base
from snapshot_assets.catalog.rebuild.inventory import Inventory, take_inventory
from snapshot_assets.catalog.rebuild.new_log import lost_commits, lost_deletions, make_new_log
from snapshot_assets.catalog.rebuild.unproved_chunks import Recovered, recover
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.errors import (
    AcceptanceNeededError,
    ForeignLocationError,
    LogWholeError,
    NoSnapshotError,
    UnsupportedVersionError,
)
from snapshot_assets.format import actions as act
from snapshot_assets.storage.base import ObjectStore

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

    Args:
        store: The location.
        accept_undeleted: Accept that deleted rows and replaced chunks may come back.
        from_files: Use the footers of data files in place of missing receipts.
        dry_run: Only report.
        single_writer: Accept a store without conditional creates; the caller promises to be the only writer.
        clock: The present, aware UTC.

    Raises:
        LogWholeError: There is nothing to rebuild.
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
    base = find_base(inventory)
    proved = base.state.revision
    recovered = recover(store, inventory, base, from_files=from_files)
    notes = [*inventory.notes, *base.notes, *recovered.lost]
    if recovered.header is None:
        raise NoSnapshotError(" ".join([f"Nothing at {store.uri} shows a snapshot.", *notes[:_SHOWN]]), uri=store.uri)
    deletions = lost_deletions(base, inventory)
    if not accept_undeleted:
        _check_consent(store, recovered, deletions, proved)
    lost = [*lost_commits(base, inventory), *deletions, *notes]
    new_log = make_new_log(base, inventory, recovered, lost, clock())
    if not dry_run:
        new_log.write(store)
    done = _described(store, new_log.state, proved, committed=not dry_run)
    return replace(done, taken=recovered.taken, lost=new_log.lost, restored=tuple(new_log.pins.restored))


def _is_whole(scan: LogScan, inventory: Inventory) -> bool:
    """Return whether the log has no fault except in older checkpoints, and nothing names a later revision."""
    for _, fault in scan.faults:
        if isinstance(fault, UnsupportedVersionError):
            raise fault
    own = scan.state.header is not None and scan.state.location_id == inventory.location_id
    return own and inventory.highest <= scan.state.revision and not any(faults_of_log(scan))


def _check_consent(store: ObjectStore, recovered: Recovered, deletions: list[str], proved: int) -> None:
    if deletions:
        raise AcceptanceNeededError(
            f"The log of {store.uri} lost deletions of rows. {' '.join(deletions[:_SHOWN])} Give --accept-undeleted to "
            "rebuild without these deletions.",
            rows=deletions,
        )
    if recovered.taken or not proved:
        raise AcceptanceNeededError(
            f"The log of {store.uri} is lost, and nothing proves what receipts or data files alone show: deleted rows "
            "and replaced chunks may come back. Give --accept-undeleted to rebuild from them.",
            chunks=sorted(recovered.taken),
        )


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
