"""Brings a location back to what it was at a time, from the versions that its bucket keeps: the way back after attacks.

Of a name that is written once, the oldest version is true. The log is written last, the oldest revision first. If
anything was written to the log after that time, the location goes on with a new log, as after a rebuild, at a revision
that no object ever had: a name that an attacker used is never used again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from snapshot_assets.catalog.catalog import proved, writer_name
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.log.scan import LogScan, faults_of_log, scan_log
from snapshot_assets.catalog.log.store import REACH, list_log, reachable_end
from snapshot_assets.catalog.manifest import shown_state, write_hints
from snapshot_assets.catalog.rebuild.base import fold
from snapshot_assets.catalog.rebuild.pins import KeptPins
from snapshot_assets.catalog.rebuild.rebuild import first_transaction, time_after, write_log
from snapshot_assets.catalog.verify.altered import (
    Names,
    names_of,
    same_bytes,
    true_objects,
    true_version,
    versioned_bucket,
    view_of,
)
from snapshot_assets.catalog.verify.objects import Report
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import DamageError, LocationNotEmptyError, NoSnapshotError, PlanError, ReplicaError
from snapshot_assets.format import actions as act
from snapshot_assets.format.layout import (
    COMPARISONS,
    HINTS,
    REPLICA,
    VERIFICATIONS,
    attempt_of,
    checkpointed_revision,
    in_layout,
    is_probe,
    is_receipt,
    log_revision,
    sealed_revision,
)
from snapshot_assets.format.units import time_text
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.s3_bucket import ObjectVersion, S3Bucket

_BLOCK = 4 << 20
_LATER = ("tag/", "savepoint/", VERIFICATIONS, COMPARISONS)


@dataclass(frozen=True)
class Recovery:
    """What a recovery does.

    Attributes:
        target: Where: the location itself, or an empty one.
        before: The time, on the store's clock.
        revision: The head at that time.
        hidden: What is written again because a delete marker hides it.
        overwritten: What is written again because it has other bytes.
        copied: What is written to another location.
        later: What is hidden: later receipts, pins and records, and objects of the log that it did not have or cannot
            reach.
        lost: The revisions after that time, whoever wrote them, ascending.
        pins: The tags and savepoints of the present head that the state of that time lacks.
        missing: Paths of needed objects that have no version.
        restart: The revision of the new log that begins; 0 if the log reaches nothing after that time.
        report: The verification of the result; None before.
    """

    target: ObjectStore = field(repr=False)
    view: ObjectStore = field(repr=False)
    before: datetime
    revision: int
    hidden: tuple[ObjectVersion, ...] = ()
    overwritten: tuple[ObjectVersion, ...] = ()
    copied: tuple[ObjectVersion, ...] = ()
    later: tuple[str, ...] = ()
    lost: tuple[int, ...] = ()
    pins: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    restart: int = 0
    report: Report | None = None

    @property
    def written(self) -> list[ObjectVersion]:
        """All that is written: the log last, the oldest revision first."""
        each = self.hidden + self.overwritten + self.copied
        return sorted(each, key=lambda each: (log_revision(each.path), each.path))


def plan_recovery(store: ObjectStore, before: datetime, to: ObjectStore | None = None) -> Recovery:
    """Return how a location is brought back to a time, in place or in an empty location; changes nothing.

    Raises:
        PlanError: The bucket keeps no versions, or the time lies in the future.
        NoSnapshotError: There was no snapshot at that time.
        LocationNotEmptyError: `to` has other objects.
        ReplicaError: The location is a replica, whose log only its source continues.
    """
    bucket = versioned_bucket(store)
    if bucket is None:
        raise PlanError(f"{store.uri} is not in a bucket of S3 that keeps versions, so nothing can be brought back.")
    if before > datetime.now(UTC):
        raise PlanError(f"{time_text(before)} lies in the future; give a time before the attack.")
    names = {path: entries for path, entries in names_of(bucket).items() if in_layout(path) and not is_probe(path)}
    known = {path: [each for each in entries if each.modified < before] for path, entries in names.items()}
    chosen, needed, scan = true_objects(store, bucket, {path: each for path, each in known.items() if each})
    if not scan.state.has_snapshot:
        raise NoSnapshotError(
            f"No version shows a snapshot at {store.uri} at {time_text(before)}; give another time.", uri=store.uri
        )
    chosen |= _later_checkpoints(store, bucket, names, scan, chosen)
    missing = tuple(sorted(needed.keys() - chosen.keys()))
    plan = Recovery(to or store, view_of(store, bucket, chosen), before, scan.state.revision, missing=missing)
    if to is not None:
        return replace(plan, copied=_copied(to, chosen))
    again = [(names[path][0], each) for path, each in chosen.items() if names[path][0] != each]
    hidden = tuple(each for newest, each in again if newest.marker)
    other = (each for newest, each in again if not newest.marker and not same_bytes(bucket, newest, each))
    plan = _with_later(replace(plan, hidden=hidden, overwritten=tuple(other)), names, scan, chosen.keys())
    present = true_objects(store, bucket, names)[2] if plan.lost else scan
    pins = {str(each.pin) for each in present.state.pins} - {str(each.pin) for each in scan.state.pins}
    return replace(plan, pins=tuple(sorted(pins)))


def _later_checkpoints(
    store: ObjectStore, bucket: S3Bucket, names: Names, scan: LogScan, chosen: Mapping[str, ObjectVersion]
) -> dict[str, ObjectVersion]:
    """Return the checkpoints that were written later, of revisions that a whole log had then and that it gives."""
    revisions = range(max(scan.start, scan.state.rebuilt_at, 1), scan.state.revision + 1)
    later = {
        path: true_version(store, bucket, versions)
        for path, entries in names.items()
        if checkpointed_revision(path) in revisions and path not in chosen
        if (versions := [each for each in entries if not each.marker])
    }
    if not later or any(faults_of_log(scan)):
        return {}
    refused = {path for path, _ in scan_log(view_of(store, bucket, {**chosen, **later})).faults}
    return {path: each for path, each in later.items() if path not in refused}


def _copied(to: ObjectStore, chosen: Mapping[str, ObjectVersion]) -> tuple[ObjectVersion, ...]:
    """Return what another location lacks; an interrupted recovery may have written the rest."""
    there = {info.path: info.size for info in to.list()}
    for path, size in there.items():
        own = path in HINTS or is_probe(path) or path.startswith(VERIFICATIONS)  # of an earlier call
        if not own and (path not in chosen or size != chosen[path].bytes):
            raise LocationNotEmptyError(f"{to.uri} is not empty: it has {path}. Recover to an empty one.", uri=to.uri)
    return tuple(each for path, each in chosen.items() if path not in there)


def _with_later(plan: Recovery, names: Names, scan: LogScan, chosen: Set[str]) -> Recovery:
    """Return a plan with what becomes of objects that were written after the time; of a damaged log, nothing."""
    if any(faults_of_log(scan)):
        return plan
    revisions = {*map(log_revision, names)}
    end = reachable_end(plan.revision, revisions, 2 * REACH)  # what is hidden above stays out of reach for long
    restart = end + 1 if end > plan.revision else 0
    if restart and REPLICA in names and not names[REPLICA][0].marker:
        raise ReplicaError(
            f"{plan.target.uri} is a replica, whose log only its source continues. Recover it --to another location, or"
            " replicate again to an empty one.",
            uri=plan.target.uri,
        )
    lost = tuple(sorted(revision for revision in revisions if plan.revision < revision <= end))

    def contradicts(path: str) -> bool:
        revision = max(log_revision(path), sealed_revision(path) or 0)
        is_later = names[path][-1].modified >= plan.before
        is_below = 0 < log_revision(path) <= plan.revision and path not in chosen  # of a rebuild since
        return revision > end or is_below or (is_later and (is_receipt(path) or path.startswith(_LATER)))

    later = (path for path, entries in names.items() if not entries[0].marker and contradicts(path))
    return replace(plan, later=tuple(later), lost=lost, restart=restart)


def execute_recovery(
    plan: Recovery,
    *,
    single_writer: bool = False,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    progress: Callable[[int], None] = lambda _: None,
) -> Recovery:
    """Bring a location back, and verify it in full; returns the plan with the report.

    If interrupted, call it again with a new plan. `progress` is called with the size of each object written. Nobody
    else may write meanwhile.
    """
    target = proved(plan.target, single_writer=single_writer, clock=clock)
    for path in plan.later:
        target.delete(path)
    for each in plan.written:
        _write(plan.view, target, each)
        progress(each.bytes)
    if plan.restart:
        _restart(plan, target, clock())
    with suppress(DamageError):
        state = read_state(target)
        write_hints(target, shown_state(state), lambda: read_state(target))
    return replace(plan, report=verify(target))


def _write(view: ObjectStore, target: ObjectStore, each: ObjectVersion) -> None:
    """Write an object as it was first written: data files in parts, so that their ETags agree."""
    if not attempt_of(each.path):
        target.put(each.path, view.get(each.path))
        return
    with view.open_reader(each.path) as reader, target.open_writer(each.path) as writer:
        while block := reader.read(_BLOCK):
            writer.write(block)


def _restart(plan: Recovery, target: ObjectStore, now: datetime) -> None:
    """Begin a new log with the state of the plan's time."""
    state, writer = read_state(plan.view, statistics=True), writer_name()
    lost = f"It is as it was at {time_text(plan.before)}, at revision {plan.revision}; later ones are not in it."
    rebuilt = act.Rebuilt(state.snapshot_id, (lost,))
    fold(state, (plan.restart, time_after(state, now), writer), [rebuilt])
    write_log(target, state, first_transaction(state, writer, rebuilt), list_log(target), KeptPins(writer))
