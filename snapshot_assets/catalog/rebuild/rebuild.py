"""Rebuilds the log of a location whose log was lost or damaged.

The new log starts from the newest state that is proved whole. Nothing is deleted; what is lost is named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from snapshot_assets.catalog.catalog import writable
from snapshot_assets.catalog.log.replay import FaultError
from snapshot_assets.catalog.log.scan import LogScan, faults_of_log, scan_log
from snapshot_assets.catalog.pins.objects import damaged_objects
from snapshot_assets.catalog.rebuild.base import Base, find_base
from snapshot_assets.catalog.rebuild.from_files import begin_from_footers, take_footers, unnamed_files
from snapshot_assets.catalog.rebuild.inventory import Inventory, take_inventory
from snapshot_assets.catalog.rebuild.losses import end_is_known, lost_deletions, lost_exports, lost_revisions
from snapshot_assets.catalog.rebuild.new_log import make_new_log
from snapshot_assets.catalog.rebuild.recovered import Recovered, take_receipts
from snapshot_assets.catalog.receipts.footers import read_footer
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.errors import AcceptanceNeededError, LogWholeError, NoSnapshotError, UnsupportedVersionError
from snapshot_assets.format import actions as act
from snapshot_assets.storage.base import ObjectStore

_SHOWN = 10


@dataclass(frozen=True)
class Rebuild:
    """What a rebuild did, or would do.

    Attributes:
        revision: The revision that the new log begins with; of a whole log its head.
        proved: The revision of the base, 0 if nothing proves any state.
        sealed: Whether the rebuilt state is sealed; else a seal verifies it.
        missing: Chunks that the next export adopts or exports again.
        rows_outside: Rows outside the range, by the newest seal.
        committed: Whether it was written.
        taken: The receipts or data files that chunks rest on without proof, by chunk.
        lost: What is lost or not certain, in sentences.
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
        accept_undeleted: Accept that rows which were deleted, or chunks which were replaced, may come back.
        from_files: Let the footers of data files stand for receipts that are gone.
        dry_run: Only report.
        single_writer: Accept a store without conditional creates; the caller promises to be the only writer.
        clock: The present, aware UTC.

    Raises:
        LogWholeError: There is nothing to rebuild.
        AcceptanceNeededError: `accept_undeleted` is needed.
        NoSnapshotError: Nothing there shows a snapshot.
        LocationDeletedError: The snapshot was deleted.
        UnsupportedVersionError: The log is of a newer format.
        ConflictError: Another writer committed meanwhile; nothing of the rebuild counts.
    """
    if not dry_run:
        store = writable(store, single_writer=single_writer, clock=clock)
    inventory, scan = take_inventory(store), scan_log(store)
    if _is_whole(scan, inventory):
        return _restore_pins(store, scan, inventory, committed=not dry_run)
    base = find_base(inventory)
    proved, based = base.state.revision, base.state.header is not None
    recovered = _recover(store, inventory, base, from_files)
    notes = [*inventory.notes, *base.notes, *recovered.lost]
    if recovered.header is None:
        raise NoSnapshotError(" ".join([f"Nothing at {store.uri} shows a snapshot.", *notes[:_SHOWN]]), uri=store.uri)
    deletions = lost_deletions(base, inventory)
    if not accept_undeleted:
        _check_consent(store, recovered, deletions, based=based)
    lost = [*lost_revisions(base, inventory), *lost_exports(base, inventory), *deletions, *notes]
    new_log = make_new_log(base, inventory, recovered, lost, clock())
    if not dry_run:
        new_log.write(store)
    done = _described(store, new_log.state, proved, committed=not dry_run)
    return replace(done, taken=recovered.taken, lost=new_log.lost, restored=tuple(new_log.pins.restored))


def _is_whole(scan: LogScan, inventory: Inventory) -> bool:
    """Tell whether the log has no fault but in checkpoints that it gives again, and nothing names a later revision.

    Raises:
        UnsupportedVersionError: It is not damaged but of a newer format.
    """
    newer: list[FaultError] = [fault for _, fault in scan.faults if isinstance(fault, UnsupportedVersionError)]
    if newer:
        raise newer[0]
    own = scan.state.header is not None and scan.state.location_id == inventory.location_id
    return own and inventory.highest <= scan.state.revision and not any(faults_of_log(scan))


def _recover(store: ObjectStore, inventory: Inventory, base: Base, from_files: bool) -> Recovered:
    """Take chunks without proof: all of them if there is no base, else those of files that no receipt names."""
    state = base.state
    recovered = Recovered(state.snapshot_id, state.header, dict(state.schemas))
    if state.header is None:
        recovered = take_receipts(inventory)
    paths = unnamed_files(inventory, state)
    if from_files:
        footers = [read_footer(store, path, inventory.objects[path].size) for path in paths]
        locations = {inventory.location_id or footer.facts["location_id"] for footer in footers if footer is not None}
        own = [footer for footer in footers if footer is not None and {footer.facts["location_id"]} == locations]
        if recovered.header is None:
            begin_from_footers(store, inventory, recovered, own)
        if recovered.header is not None:
            take_footers(store, inventory, recovered, state, own)
    if recovered.header is not None:
        recovered.read_again(inventory, state, end_is_known=end_is_known(base, inventory))
    used = {file.path for file in recovered.added}
    if left := [path for path in paths if path not in used]:
        more = "" if from_files else " --from-files takes them where their footers decide to what they belong."
        recovered.lost.append(f"Neither the base nor a receipt names {', '.join(left)}.{more}")
    return recovered


def _check_consent(store: ObjectStore, recovered: Recovered, deletions: list[str], *, based: bool) -> None:
    if deletions:
        raise AcceptanceNeededError(
            f"The log of {store.uri} lost deletions of rows. {' '.join(deletions[:_SHOWN])} Give --accept-undeleted to "
            "rebuild with them.",
            rows=deletions,
        )
    if recovered.taken or not based:
        raise AcceptanceNeededError(
            f"The log of {store.uri} is lost, and nothing proves what receipts or data files alone show: rows that "
            "were deleted, and chunks that were replaced, may come back. Give --accept-undeleted to rebuild from them.",
            chunks=sorted(recovered.taken),
        )


def _restore_pins(store: ObjectStore, scan: LogScan, inventory: Inventory, *, committed: bool) -> Rebuild:
    """Write the missing and damaged objects of a whole log's pins again.

    Raises:
        LogWholeError: There is none.
    """
    state, damaged = scan.state, sorted({path for path, _ in scan.faults})
    objects = damaged_objects(state, {each.ref for each in inventory.pins})
    if not objects:
        again = f" `snapshots catalog checkpoint` writes damaged checkpoints again: {', '.join(damaged)}."
        message = (
            f"The log of {store.uri} is whole up to revision {state.revision}; there is nothing to rebuild. "
            f"Verify names damaged data files; export their chunks again with --replace.{again if damaged else ''}"
        )
        raise LogWholeError(" ".join([message, *inventory.notes[:_SHOWN]]), revision=state.revision)
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
