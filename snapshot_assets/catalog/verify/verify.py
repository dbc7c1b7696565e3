"""Verification: collects every fault of a location, and changes nothing.

`quick` checks the structure: log chain, names, sizes, receipts, coverage, hints, pins, orphans. `full` also reads every
byte and recomputes all three checksum layers; `sample` does the same with a part of the data files. All check the
objects of all readable revisions, or those of one revision, and the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from datetime import timedelta

from snapshot_assets.catalog.log.replay import fault_remedy
from snapshot_assets.catalog.log.scan import LogScan, scan_log
from snapshot_assets.catalog.log.truncation import contradictions
from snapshot_assets.catalog.manifest import checksum_of
from snapshot_assets.catalog.receipt_selection import adoptable_receipts, newest_fitting
from snapshot_assets.catalog.receipts import Receipt
from snapshot_assets.catalog.seals.ssh import Signing
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.retained import named_by
from snapshot_assets.catalog.state.totals import exporter_text, finished_by
from snapshot_assets.catalog.verify.altered import altered_faults
from snapshot_assets.catalog.verify.faults import Fault, FaultKind, remedy_of, with_remedy, with_replicas_remedy
from snapshot_assets.catalog.verify.hints import hint_faults
from snapshot_assets.catalog.verify.objects import Depth, Report, Rotation, check_documents, file_faults
from snapshot_assets.catalog.verify.records import damage_on_record
from snapshot_assets.catalog.verify.retained import (
    of_older,
    older_document_faults,
    older_files,
    older_seal_faults,
    pin_faults,
)
from snapshot_assets.catalog.verify.signatures import signature_faults
from snapshot_assets.errors import ForeignLocationError, GapError, LostLogError
from snapshot_assets.format import actions as act
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.layout import (
    COLLECTED,
    MANIFEST,
    REPLICA,
    in_layout,
    is_temporary,
    log_revision,
    transaction_path,
)
from snapshot_assets.format.units import counted, duration_text
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.bulk import Listed


def verify(
    store: ObjectStore,
    *,
    depth: Depth = "full",
    at: Callable[[State], int] | None = None,
    progress: Callable[[DataFile], None] = lambda _: None,
    scan: LogScan | None = None,
    rotation: Rotation | None = None,
    suspected: Set[str] = frozenset(),
    signing: Signing | None = None,
) -> Report:
    """Verify a location and report every fault.

    Args:
        store: The location.
        depth: `quick` reads no data; `sample` a part of it; `full` all.
        progress: Called for each verified data file.
        at: Returns the one revision to verify, from the head's state; None for the head and all older readable ones.
        scan: The location's log, if the caller has read it; its faults are completed here.
        rotation: Chooses the files of a sample. Those that were damaged when last verified are read, too.
        suspected: Paths of further files that a sample hashes.
        signing: Whose signatures count; without `allowed_signers`, nothing must be signed.

    Raises:
        VersionNotFoundError: The revision that `at` names is not readable.
    """
    scan = scan or scan_log(store)
    replica = scan.replica
    replicated = replica is not None or any(path == REPLICA for path, _ in scan.faults)
    objects = Listed(store)
    for error in contradictions(store, scan.state, objects) if scan.state.revision else ():
        # Behind a fault, later objects are no sign of a lost end.
        if scan.reaches_end or isinstance(error, ForeignLocationError):
            scan.faults.append((error.attributes["object"], error))
    report = Report(store.uri, depth)
    report.faults += _log_faults(scan, replicated=replicated)
    report.faults += altered_faults(scan) if at is None else ()
    head = scan.state
    state = head if at is None else head.at(at(head))
    report.location_id, report.format_version = head.location_id, head.format_version
    report.revision, report.snapshot_id = state.revision, state.snapshot_id
    if at is not None:
        report.scope = "newest" if state.revision == head.revision else "older"
    if state.header is not None:
        report.sealed, report.missing = state.sealed, len(state.missing())
        report.unfinished = "" if state.sealed else finished_by(state, store.uri, replica.source if replica else None)
        report.days = rotation.within if rotation else 0
        hashed: Set[str] | None = None
        if rotation is not None:
            files = [known.file.path for known in state.live_files()]
            files += [file.path for file, _ in older_files(state)] if at is None else []
            hashed = rotation.due(files) | damage_on_record(store, state.location_id) | suspected
        check = _Check(scan, objects, report, progress, hashed)
        report.faults += check.state_faults(state, replica=replicated)
        signed = (None, objects) if at is None else (state.revision, ())
        report.faults += signature_faults(report, store, head, signing, *signed)
        if at is None:
            report.faults += check.location_faults()
    elif not report.faults:
        report.faults.append(Fault(FaultKind.MISSING, "transactions/", f"There is no snapshot at {store.uri}."))
    if replicated:
        report.faults, report.remedy = list(map(with_replicas_remedy, report.faults)), None
    report.faults.sort(key=lambda each: (not each.is_damage, each.kind is not FaultKind.LOG, each.object, each.kind))
    return report


@dataclass(frozen=True)
class _Check:
    """A verification at work; `hashed` are the paths of the files that it hashes, None for all."""

    scan: LogScan
    objects: Listed
    report: Report
    progress: Callable[[DataFile], None]
    hashed: Set[str] | None

    def state_faults(self, state: State, *, replica: bool) -> Iterator[Fault]:
        """Yield the faults of a revision's own objects, of its pins, and of checkpoints and hints."""
        head, newest = self.scan.state, self.scan.state.newest_seal
        files = (known.file for known in state.live_files())
        found = file_faults(self.scan.store, files, self.objects, self.report, self.hashed, self.progress)
        faults = [*found, *check_documents(self.scan.store, state, self.objects)]
        yield from (with_remedy(state, fault) if state is head and not replica else fault for fault in faults)
        for number in state.missing() if state.sealed else ():
            yield Fault(FaultKind.COVERAGE, f"data/{number}", f"Chunk {number} is not in the sealed snapshot.", number)
        if state.sealed and state.newest_seal is not None:
            checksum, expected = checksum_of(state), state.newest_seal.seal.checksum
            if checksum != expected:
                message = f"The snapshot has checksum {checksum}; its seal records {expected}."
                yield Fault(FaultKind.SNAPSHOT_CHECKSUM, MANIFEST, message)
        if state is head or (newest is not None and newest.revision == state.revision):
            yield from hint_faults(self.scan, replica=replica)
        yield from pin_faults(self.scan, self.objects, None if state is head else state.revision)

    def location_faults(self) -> list[Fault]:
        """Return the faults of older readable revisions, and orphans; complete the report's other facts."""
        faults = list(_unnamed_objects(self.scan, self.objects))
        if any(fault.kind is FaultKind.ALTERED for fault in self.report.faults):  # the true log may name them
            faults = [fault for fault in faults if fault.kind is FaultKind.FOREIGN]
        left = [info.size for info in self.scan.store.temporaries() if is_temporary(info.path)]
        self.report.temporary_files, self.report.temporary_bytes = len(left), sum(left)
        # Transactions after a fault may have expired older revisions.
        reached = not self.scan.faults or self.scan.state.revision >= max(map(log_revision, self.objects), default=0)
        faults += self._older_faults(reached)
        if reached:
            self.report.remedy = remedy_of(self.scan.state, self.scan.store.uri, [*self.report.faults, *faults])
        return faults

    def _older_faults(self, reached: bool) -> Iterator[Fault]:
        """Yield the faults of objects that older readable revisions need and the head does not.

        If the log's end was not reached, only the sizes of files that pins need are checked: a rebuild keeps such pins.
        """
        head = self.scan.state
        pinned = {known.pin.revision for known in head.pins}
        needed = {
            file.path: (file, revisions)
            for file, revisions in older_files(head)
            if reached or pinned.intersection(revisions)
        }
        files, hashed = (file for file, _ in needed.values()), self.hashed if reached else frozenset()
        for fault in file_faults(self.scan.store, files, self.objects, self.report, hashed, self.progress):
            yield of_older(fault, head, needed[fault.object][1])
        if reached:
            yield from older_document_faults(self.scan.store, head, self.objects)
            if self.report.depth != "quick":
                yield from older_seal_faults(head)


def _log_faults(scan: LogScan, *, replicated: bool) -> Iterator[Fault]:
    """Yield the faults of the log; while a replica is copied, a transaction may be missing before a checkpoint."""
    for path, error in scan.faults:
        if replicated and scan.state.has_snapshot and isinstance(error, GapError | LostLogError):
            message = f"{path} is not replicated yet; `snapshots replicate` continues. The head is readable."
            yield Fault(FaultKind.REPLICATION, path, message)
            continue
        repairable = path in scan.torn and not replicated
        remedy = "" if repairable else fault_remedy(scan.store, path, error)
        yield Fault(FaultKind.LOG, path, f"{type(error).__name__}: {error}{remedy}", repairable=repairable)
    for event in scan.state.events:
        for action in event.actions:
            if isinstance(action, act.Rebuilt) and action.lost:
                message = f"The log was rebuilt at revision {event.revision}; lost: {' '.join(action.lost)}"
                yield Fault(FaultKind.LOST, transaction_path(event.revision), message)


def _unnamed_objects(scan: LogScan, objects: Listed) -> Iterator[Fault]:
    """Yield chunks that are finished and not committed, orphans, and objects that are not part of the format."""
    for path in objects:
        if not in_layout(path):
            yield Fault(FaultKind.FOREIGN, path, f"{path} is not part of the format; no command changes it.")
    if scan.faults:
        return
    state = scan.state
    named = {path for event in state.events for each in event.actions for path in named_by(each)}
    is_file, collected = state.files.path_lookup(), (path for path in objects if path.startswith(COLLECTED))
    left = {path for path in collected if path not in named and in_layout(path) and not is_file(path)}
    for purged in scan.purged:
        left.difference_update(purged.split("\n"))
    orphans = sorted(left)
    wanted = state.missing() if orphans and state.schemas and not state.deleted else []
    receipts = list(adoptable_receipts(scan.store, state, wanted, orphans))
    adopted = newest_fitting(state, receipts, state.schemas[state.schema_id].sha256) if receipts else {}
    for _, (receipt, _) in sorted(adopted.items()):
        rows = sum(file.rows for file in receipt.files)
        found = f"{counted(len(receipt.files), 'file')}, {counted(rows, 'row')}"
        message = (
            f"{receipt.path}: chunk {receipt.chunk} was finished and not committed ({found}). The next run of "
            f"{exporter_text(state)} adopts it without reading the source again, unless the source's tables changed;"
            " garbage collection keeps it until then."
        )
        yield Fault(FaultKind.UNCOMMITTED, receipt.path, message, receipt.chunk)
    finished = {path for receipt, _ in adopted.values() for path in _paths(receipt)}
    waiting = {path: receipt.chunk for receipt, _ in receipts for path in _paths(receipt)}  # a run might adopt them
    for path in (path for path in orphans if path not in finished):
        assert state.header is not None
        grace = duration_text(timedelta(microseconds=state.header.grace))
        removed = f"garbage collection removes it once it is older than the grace period of {grace}"
        if path in waiting:
            removed = f"garbage collection removes it once chunk {waiting[path]} is exported"
        if state.deleted:
            removed = "`snapshots export delete` removes it"
        yield Fault(FaultKind.ORPHAN, path, f"{path} is named by no transaction; {removed}.")


def _paths(receipt: Receipt) -> list[str]:
    return [receipt.path, *(file.path for file in receipt.files)]
