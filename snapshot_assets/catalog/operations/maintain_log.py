"""Maintains the log and what it gives: checkpoints, pruning, repair, and the format version.

Pruning deletes the oldest part of the log, which a checkpoint also holds (InfluxDB IOx, "Pruning"). A repair writes
hints, receipts, checkpoints, and the objects of tags and savepoints again; it needs no source, and commits nothing. An
upgrade is one transaction ("Upgradability"). Code reads every version up to its own, and writes the one that the
location has. So older code works until an upgrade; afterwards it refuses to read and to write, and names both versions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import groupby, islice, takewhile

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import is_whole, write_checkpoint
from snapshot_assets.catalog.log.replay import read_from_log
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.log.store import is_there, list_log
from snapshot_assets.catalog.log.truncation import refuse_faults, refuse_lost_end
from snapshot_assets.catalog.manifest import shown_state, write_hints
from snapshot_assets.catalog.operations.garbage import checked_grace
from snapshot_assets.catalog.pins.objects import damaged_objects
from snapshot_assets.catalog.receipts import receipt_again
from snapshot_assets.catalog.replica import refuse_replica
from snapshot_assets.catalog.rules.begin import refuse_deleted
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.retained import ReleasedObject
from snapshot_assets.catalog.verify.faults import faults_by_object
from snapshot_assets.catalog.verify.hints import hint_faults
from snapshot_assets.catalog.verify.retained import older_documents
from snapshot_assets.errors import ConflictError, DamageError, PlanError
from snapshot_assets.format import actions as act
from snapshot_assets.format import documents
from snapshot_assets.format.actions import ObjectRef
from snapshot_assets.format.layout import (
    TRANSACTIONS,
    checkpoint_path,
    is_receipt,
    log_revision,
    revision_of,
    transaction_path,
)
from snapshot_assets.storage.base import ObjectInfo, ObjectStore, delete_unless_retained
from snapshot_assets.storage.bulk import Listed
from snapshot_assets.storage.create import probe

_KEPT = 2


@dataclass(frozen=True)
class WrittenCheckpoint:
    """The checkpoint of the newest revision.

    Attributes:
        new: Whether this call wrote it.
        mended: Paths of older, damaged checkpoints that this call wrote again from the log.
    """

    path: str
    revision: int
    bytes: int
    new: bool
    mended: tuple[str, ...] = ()


def checkpoint_head(catalog: Catalog) -> WrittenCheckpoint:
    """Write the checkpoint of the newest revision unless a readable one exists, then repair older ones.

    Checkpoints from before a rebuild are not part of the log, and stay as they are.

    Raises:
        DamageError: An older checkpoint is damaged and the log cannot reproduce it; all others are written.
    """
    catalog.refresh()
    revision, store = catalog.require_snapshot().revision, catalog.store
    new = not is_whole(store, revision)
    path = catalog.checkpoint() if new else checkpoint_path(revision)
    written = WrittenCheckpoint(path, catalog.state.revision, store.head(path).size, new)
    own = [each for each in list_log(store).checkpoints if catalog.state.rebuilt_at <= each <= revision]
    damaged = [each for each in own if not is_whole(store, each) and is_there(store, checkpoint_path(each))]
    return replace(written, mended=mend_checkpoints(store, damaged))


def mend_checkpoints(store: ObjectStore, revisions: Iterable[int]) -> tuple[str, ...]:
    """Write damaged checkpoints again, and return their paths.

    Raises:
        DamageError: The log cannot reproduce one of them; all others are written.
    """
    mended, faults = list[str](), list[DamageError]()
    for revision in revisions:
        try:
            mended.append(write_checkpoint(store, read_from_log(store, revision)))
        except DamageError as fault:
            path = checkpoint_path(revision)
            what = f"{path} is damaged, and the log before it cannot reproduce it: {fault}"
            faults.append(DamageError(what, object=path, uri=store.uri))
    if faults:
        raise faults[0]
    return tuple(mended)


@dataclass(frozen=True)
class PrunePlan:
    """What pruning deletes.

    Attributes:
        released: What it deletes, oldest revision first: each a `transaction` or a `checkpoint`.
        kept: The oldest revision that the log still has in full; a checkpoint lies there. 0 if everything stays.
        newest: The newest readable checkpoint. 0 if everything stays.
        grace: How old everything is that it deletes.
        retained: The oldest object that the store keeps until a time, at which pruning stopped; None if there is none.
    """

    released: tuple[ReleasedObject, ...]
    kept: int
    newest: int
    grace: timedelta = field(default=timedelta(0), compare=False)
    retained: str | None = None

    @property
    def deleted(self) -> tuple[str, ...]:
        """Paths of what it deletes."""
        return tuple(each.path for each in self.released)


def plan_pruning(catalog: Catalog, *, grace: timedelta | None = None, unsafe: bool = False) -> PrunePlan:
    """Return which transactions and checkpoints pruning would delete; changes nothing.

    Two readable checkpoints stay, and all transactions since the older one. So do revision 1, and everything younger
    than the grace period. The log is read and both checkpoints are compared with it. `grace` is None for the plan's own
    grace period. `unsafe` accepts a shorter one: no writer may be at work.

    Raises:
        PlanError: The grace period is shorter than the plan's.
        LostLogError: The log's end was lost.
        DamageError: The log or a checkpoint has a fault.
    """
    catalog.refresh()
    refuse_lost_end(catalog.store)
    grace = checked_grace(catalog.require_snapshot(), grace, unsafe)
    store = catalog.store
    checkpoints = list_log(store).checkpoints
    whole = [*islice((each for each in reversed(checkpoints) if is_whole(store, each)), _KEPT)]
    if len(whole) < _KEPT:
        return PrunePlan((), 0, 0, grace)
    newest, kept = whole
    gone = _prunable(store, checkpoints, kept, catalog.now() - grace)
    if gone:
        refuse_faults(scan_log(store), "nothing was pruned")
    released = tuple(
        ReleasedObject(info.path, info.size, "transaction" if revision_of(info.path) else "checkpoint") for info in gone
    )
    return PrunePlan(released, kept, newest, grace)


def execute_pruning(catalog: Catalog, plan: PrunePlan) -> PrunePlan:
    """Delete what was planned and is old enough on the store's clock, strictly the oldest first.

    If interrupted, it has pruned less.

    Raises:
        LostLogError: The log's end was lost.
        DamageError: The log or a checkpoint has a fault; nothing was deleted.
        ConflictError: One of the two checkpoints that stay is no longer readable; nothing was deleted.
    """
    if not plan.released:
        return plan
    store, planned = catalog.store, {each.path: each for each in plan.released}
    refuse_lost_end(store)
    before = probe(store, single_writer=True).store_time - plan.grace
    old = _prunable(store, list_log(store).checkpoints, plan.kept, before)
    gone = [*takewhile(lambda path: path in planned, (info.path for info in old))]
    if gone:
        for each in (plan.kept, plan.newest):
            if not is_whole(store, each):
                raise ConflictError(
                    f"{checkpoint_path(each)} is missing or damaged since the pruning was planned; nothing was deleted."
                    " Run again."
                )
        refuse_faults(scan_log(store), "nothing was pruned")
    deleted = [*takewhile(lambda path: delete_unless_retained(store, path), gone)]
    retained = gone[len(deleted)] if len(deleted) < len(gone) else None
    return replace(plan, released=tuple(planned[path] for path in deleted), retained=retained)


def _prunable(store: ObjectStore, checkpoints: Iterable[int], kept: int, before: datetime) -> list[ObjectInfo]:
    """Return the log's objects before a revision, oldest first, up to the first one that is too young.

    Objects that a listing missed are included: if one stayed alone, a writer that slept could commit after it.
    """
    objects, last = Listed(store, TRANSACTIONS), kept - 1
    objects.missing(map(checkpoint_path, checkpoints))
    while last and transaction_path(last) in objects:
        last -= 1
    prunable: list[ObjectInfo] = []
    for info in sorted(objects.values(), key=lambda info: (log_revision(info.path), info.path)):
        if not 1 < log_revision(info.path) < kept:
            continue
        if info.modified > before:
            break
        prunable.append(info)
    # Before revision 3, a revision 2 that a writer creates late would look like the log's.
    leaves_next = bool(prunable) and log_revision(prunable[-1].path) == 2 and transaction_path(3) in objects
    return [] if leaves_next else prunable


@dataclass(frozen=True)
class RepairPlan:
    """What a repair writes again.

    Attributes:
        hints: Paths of the hints that differ from what the log gives; all hints are written again then.
        objects: The bytes of receipts, tags and savepoints, by path.
        checkpoints: Revisions of damaged checkpoints that the log before them gives.
    """

    hints: tuple[str, ...]
    objects: Mapping[str, bytes]
    checkpoints: tuple[int, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of everything that is damaged or missing, and is written again."""
        return (*self.hints, *sorted(self.objects), *map(checkpoint_path, self.checkpoints))


def plan_repair(catalog: Catalog) -> RepairPlan:
    """Return what the log can repair; changes nothing.

    Raises:
        ReplicaError: The location is a replica: replication brings its objects back.
        DamageError: The log itself is damaged.
    """
    store = catalog.store
    refuse_replica(store)
    scan = scan_log(store)
    refuse_faults(scan, "nothing was repaired")
    head = catalog.refresh()
    pinned = {known.pin.object for known in head.pins}
    whole = pinned - _damaged(store, pinned, "tag/", "savepoint/")
    # Damaged receipts that readable revisions name, as the newest state that names each gives them.
    named = {ref: revisions[-1] for ref, revisions in older_documents(head).items() if is_receipt(ref.path)}
    named |= {ref: head.revision for known in head.chunks.values() for ref in known.chunk.receipts}
    paths, receipts = frozenset(head.files.paths()), dict[str, bytes]()
    damaged = sorted(_damaged(store, named, "data/"), key=named.__getitem__)
    for revision, refs in groupby(damaged, named.__getitem__):
        state = head if revision == head.revision else head.at(revision)
        receipts |= {ref.path: receipt_again(state, ref, paths) for ref in refs}
    return RepairPlan(
        tuple(dict.fromkeys(fault.object for fault in hint_faults(scan, replica=False))),
        receipts | damaged_objects(head, whole),
        tuple(sorted(map(log_revision, scan.torn))),
    )


def execute_repair(catalog: Catalog, plan: RepairPlan) -> RepairPlan:
    """Write again what was planned. If interrupted, it has repaired less.

    Raises:
        DamageError: The log cannot reproduce a checkpoint; everything else is written.
    """
    store = catalog.store
    for path, data in plan.objects.items():
        store.put(path, data)
    if plan.hints:
        write_hints(store, shown_state(catalog.refresh()), catalog.refresh)
    mend_checkpoints(store, plan.checkpoints)
    return plan


def _damaged(store: ObjectStore, refs: Collection[ObjectRef], *folders: str) -> set[ObjectRef]:
    """Return the objects that are missing or damaged."""
    return {ref for ref, _ in faults_by_object(store, refs, Listed(store, *folders))}


@dataclass(frozen=True)
class UpgradePlan:
    """An upgrade.

    Attributes:
        revision: The revision of the upgrade; None until then, and if the location has that version already.
    """

    previous: int
    version: int
    revision: int | None = None


def plan_upgrade(catalog: Catalog, version: int | None = None) -> UpgradePlan:
    """Return which versions an upgrade goes from and to; changes nothing.

    `version` is None for the newest that this code writes.

    Raises:
        PlanError: This code does not write that version, or the location has a newer one.
    """
    wanted = documents.FORMAT_VERSION if version is None else version
    catalog.refresh()
    return UpgradePlan(_checked(catalog.require_snapshot(), wanted), wanted)


def execute_upgrade(catalog: Catalog, plan: UpgradePlan) -> UpgradePlan:
    """Upgrade a location; rewrites nothing. Runs that planned before the upgrade cannot commit afterwards.

    The plan that is returned has the version that the upgrade really replaced.

    Raises:
        PlanError: The location has a newer version.
    """
    previous = plan.previous

    def prepare(state: State) -> Sequence[act.Action] | None:
        nonlocal previous
        refuse_deleted(state)
        previous = _checked(state, plan.version)
        return [act.Upgraded(plan.version, previous)] if previous < plan.version else None

    revision = catalog.commit(prepare)
    return replace(plan, previous=previous, revision=revision)


def _checked(state: State, wanted: int) -> int:
    """Return the location's version if it can be upgraded to the one wanted."""
    if not state.format_version <= wanted <= documents.FORMAT_VERSION:
        raise PlanError(
            f"The location has format version {state.format_version} and this code writes up to "
            f"{documents.FORMAT_VERSION}; format version {wanted} was asked for. A location cannot go back to an older "
            "version; a newer version needs a newer snapshot_assets."
        )
    return state.format_version
