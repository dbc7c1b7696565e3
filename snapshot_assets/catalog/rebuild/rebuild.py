"""Rebuilding a location whose log was lost, or has holes (seed, section 1.3 "Rebuildability").

Nothing is deleted, and nothing that lies there is changed. The log begins anew one revision above the highest that
anything names: with a checkpoint of the state that was found, and with a transaction that says what was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from snapshot_assets.catalog.catalog import writable
from snapshot_assets.catalog.log.replay import FaultError, faults_of_log, scan_log
from snapshot_assets.catalog.log.store import Won, append
from snapshot_assets.catalog.rebuild.data_files import left_by_rebuild
from snapshot_assets.catalog.rebuild.new_log import (
    Beginning,
    close_holes,
    conflict,
    rebuilt_transaction,
    write_hints_of,
)
from snapshot_assets.catalog.rebuild.objects import Evidence, gather
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.errors import (
    AcceptanceNeededError,
    DocumentError,
    LogWholeError,
    NoSnapshotError,
    UnsupportedVersionError,
)
from snapshot_assets.format import actions as act
from snapshot_assets.format.layout import checkpoint_path
from snapshot_assets.format.transactions import encode_transaction, trailing_sha256
from snapshot_assets.storage.base import ObjectStore

_SHOWN = 10
_NOTHING = "Nothing at {} tells of a snapshot: no log, sealed manifest, tag, savepoint or receipt can be read."


@dataclass(frozen=True)
class Rebuild:
    """What a rebuild did, or would do.

    Attributes:
        revision: Where the log begins anew.
        proved: The last revision up to which the log, a manifest or a tag proves everything.
        taken: What the chunks rest on that nothing proves, by chunk: a receipt, or data files.
        lost: What was lost or is not proved, in words.
        sealed: Whether the rebuilt state is sealed; else a seal verifies it.
        missing: Chunks that are to be exported again.
        rows_outside: What the newest known seal says of rows outside the range.
        committed: Whether it was written.
    """

    uri: str
    location_id: str
    snapshot_id: str
    revision: int
    proved: int
    taken: Mapping[int, str]
    lost: tuple[str, ...]
    sealed: bool
    missing: tuple[int, ...]
    files: int
    rows: int
    bytes: int
    tags: tuple[str, ...]
    savepoints: tuple[int, ...]
    rows_outside: tuple[act.RowsOutside, ...]
    committed: bool


def rebuild(
    store: ObjectStore,
    *,
    accept_undeleted: bool = False,
    from_files: bool = False,
    dry_run: bool = False,
    single_writer: bool = False,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Rebuild:
    """Rebuild a location's log, and tell exactly what was lost.

    Args:
        store: The location.
        accept_undeleted: Rest on receipts alone, where data that was replaced or removed may come back, and go on where
            the log lost the tombstones of rows.
        from_files: Also take data files that no receipt names, by what they say of themselves; of a whole log, those
            that an earlier rebuild left.
        dry_run: Only tell.
        single_writer: Accept a store without conditional creates; the caller promises to be alone.
        clock: The present, aware UTC.

    Raises:
        LogWholeError: There is nothing to rebuild.
        AcceptanceNeededError: `accept_undeleted` is needed.
        NoSnapshotError: Nothing there tells of a snapshot.
        LocationDeletedError: The snapshot was deleted.
        UnsupportedVersionError: The log is of a newer format.
        DocumentError: No schema documents are left.
        ConflictError: Another writer committed meanwhile; nothing was changed.
    """
    if not dry_run:
        store = writable(store, single_writer=single_writer, clock=clock)
    evidence = gather(store)
    begun = _unfinished(evidence)
    if begun is not None and not Beginning.of(store, gather(store), False, clock()).differs:
        return _finish(store, evidence, begun, dry_run)
    whole = _whole(store, evidence)
    if whole is not None and not (from_files and left_by_rebuild(evidence, evidence.start)):
        raise whole
    made = Beginning.of(store, evidence, from_files, clock())
    if whole is not None and not made.remains.taken:
        raise whole
    _check(made, store, accept_undeleted)
    if not dry_run:
        made.write(store)
    return _report(store.uri, made.state, made.lost, made.remains.taken, made.proof.proved, not dry_run)


def _whole(store: ObjectStore, evidence: Evidence) -> LogWholeError | None:
    """Return what says that a log has no fault, and reaches as far as anything names; None if that is not so.

    Raises:
        UnsupportedVersionError: It is not damaged but newer.
    """
    scan = scan_log(store)
    newer: list[FaultError] = [fault for _, fault in scan.faults if isinstance(fault, UnsupportedVersionError)]
    if newer:
        raise newer[0]
    if scan.state.header is None or any(faults_of_log(scan)) or evidence.highest > scan.state.revision:
        return None
    damaged = sorted({path for path, _ in scan.faults})
    left = left_by_rebuild(evidence, evidence.start)
    return LogWholeError(
        f"The log of {store.uri} is whole up to revision {scan.state.revision}; there is nothing to rebuild. "
        "Damaged data files are named by verify, and their chunks can be exported again with --replace."
        + (
            f" Of data files that a rebuild left, --from-files takes what it can: {', '.join(left[:_SHOWN])}."
            if left
            else ""
        )
        + (f" `snapshots catalog checkpoint` writes again what is damaged: {', '.join(damaged)}." if damaged else ""),
        revision=scan.state.revision,
        left=left,
    )


def _check(made: Beginning, store: ObjectStore, accept_undeleted: bool) -> None:
    evidence = made.proof.evidence
    if made.state.header is None:
        raise NoSnapshotError(
            " ".join([_NOTHING.format(store.uri), *made.lost[:_SHOWN]]),
            uri=store.uri,
        )
    if not made.state.schemas:
        raise DocumentError(
            f"The documents below schema/ in {store.uri} are missing or damaged, and without them no data can be read. "
            "Put them back, or export to another location.",
            object="schema/",
        )
    if not (accept_undeleted or made.proof.stated or made.proof.began or evidence.unsealed):
        raise AcceptanceNeededError(
            f"The log of {store.uri} is lost, and there is neither manifest nor pin: only receipts tell what "
            "was exported, and chunks that were removed or replaced since may come back. Give --accept-undeleted to "
            "rebuild from them.",
            chunks=sorted(made.remains.taken),
        )
    if not accept_undeleted:
        _check_undeleted(made, store)


def _check_undeleted(made: Beginning, store: ObjectStore) -> None:
    """Ask for consent where rows come back that were deleted."""
    back = made.undeleted
    if back:
        raise AcceptanceNeededError(
            f"The log of {store.uri} lost what deleted some rows. {' '.join(back[:_SHOWN])} Give --accept-undeleted to "
            "rebuild with them.",
            rows=back,
        )


def _report(
    uri: str, state: State, lost: tuple[str, ...], taken: Mapping[int, str], proved: int, committed: bool
) -> Rebuild:
    files, rows, size = state.files.totals()
    return Rebuild(
        uri=uri,
        location_id=state.location_id,
        snapshot_id=state.snapshot_id,
        revision=state.revision,
        proved=proved,
        taken=dict(taken),
        lost=lost,
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


# A rebuild that was cut off between its checkpoint and its transaction


def _unfinished(evidence: Evidence) -> act.Transaction | None:
    """Return the transaction that a rebuild's checkpoint names and that is not there.

    It was not written yet, or it was lost with what followed it: then that may have left something.
    """
    state = evidence.start
    said = state.events[-1] if state.events else None
    if said is None or said.revision != evidence.highest or said.revision in evidence.log.transactions:
        return None
    for action in said.actions:
        if isinstance(action, act.Rebuilt):
            transaction = rebuilt_transaction(state, action)
            return transaction if trailing_sha256(encode_transaction(transaction)) == state.sha256 else None
    return None


def _finish(store: ObjectStore, evidence: Evidence, transaction: act.Transaction, dry_run: bool) -> Rebuild:
    state = evidence.start
    if not dry_run:
        close_holes(store, evidence, transaction)  # which may have been lost since
        if append(store, transaction)[0] is Won.NO:
            store.delete(checkpoint_path(transaction.revision))
            raise conflict(store, transaction.revision)
        write_hints_of(store, state)
    [rebuilt] = transaction.actions
    assert isinstance(rebuilt, act.Rebuilt)
    return _report(store.uri, state, rebuilt.lost, {}, state.revision, not dry_run)
