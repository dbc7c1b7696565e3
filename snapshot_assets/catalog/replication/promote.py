"""Promotes a replica: it becomes a location of its own, which writers accept, and whose log has only what it has.

The marker is replaced first, so that a replication at work stops. Then one transaction ends what a replica of chosen
versions lacks. It also takes the next revision, so that no transaction of the source can follow. The marker goes last:
a promotion that was killed is finished by the next one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from snapshot_assets.catalog.catalog import Actions, Catalog, proved
from snapshot_assets.catalog.log.replay import open_log
from snapshot_assets.catalog.log.scan import faults_of_log, scan_log
from snapshot_assets.catalog.log.truncation import contradictions, newest_recorded_state
from snapshot_assets.catalog.replica import MissingVersions, Replica, missing_versions, read_marker
from snapshot_assets.catalog.replication.objects import is_evidence
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.pins import TagState, held_text
from snapshot_assets.catalog.verify.records import damage_on_record
from snapshot_assets.errors import ConflictError, DamageError, ReplicaError, TagHeldError, UsageError
from snapshot_assets.format import actions as act
from snapshot_assets.format.layout import REPLICA
from snapshot_assets.storage.base import ObjectStore, delete_unless_retained

_REASON = "The replica never had this tag's data, and was promoted without it."


@dataclass(frozen=True)
class PromotionPlan:
    """What a promotion ends.

    Attributes:
        replica: The marker that it deletes.
        revision: The last revision that was replicated.
        sealed: Whether that revision is sealed.
        ends: Versions and pins of the source that the replica lacks.
        released: Names of the held tags among them whose holds the caller gives up.
        damaged: Whether the log has a fault, so that it must be rebuilt.
        leftovers: Paths of receipts and pins that an interrupted replication copied ahead of the log.
        known_damage: Paths of the replica's objects that were damaged when they were last verified.
        committed: The first revision of its own; None until then, and for a log that must be rebuilt.
    """

    replica: Replica
    revision: int
    sealed: bool
    ends: MissingVersions
    released: tuple[str, ...] = ()
    damaged: bool = False
    leftovers: tuple[str, ...] = ()
    known_damage: tuple[str, ...] = field(default=(), compare=False)
    committed: int | None = None


def plan_promotion(catalog: Catalog, *, incomplete: bool = False, release: Collection[str] = ()) -> PromotionPlan:
    """Return what a promotion would do; changes nothing.

    `incomplete` accepts a log of which a part was not copied; it must be rebuilt then. `release` names all held tags
    that the replica lacks; their holds end with them.

    Raises:
        ReplicaError: The location is no replica.
        TagHeldError: It lacks a held tag that `release` does not name.
        UsageError: `release` names another tag.
        DamageError: Its log has a fault, for example because the last replication was interrupted.
    """
    marker = read_marker(catalog.store)
    if marker is None:
        raise ReplicaError(f"{catalog.store.uri} is not a replica; there is nothing to promote.", uri=catalog.store.uri)
    fault = next(iter(faults_of_log(scan_log(catalog.store))), None)
    if fault is not None and not incomplete:
        raise DamageError(
            f"The log of the replica {catalog.store.uri} has a fault, so it was not promoted: {fault[1]} Replicate "
            "again. If the source is lost, promote with --incomplete, and rebuild the log with `snapshots catalog "
            "rebuild`.",
            object=fault[0],
        )
    state, _ = open_log(catalog.store)
    ends = missing_versions(state, marker.revisions)
    held = {known.pin.name: known for known in ends.held}
    for name in sorted(set(release) - held.keys()):
        if name in state.tags or not marker.promoting:  # else an earlier run, which was killed, ended it
            has = ", ".join(map(repr, held)) or "none"
            raise UsageError(f"{name!r} is no held tag that {catalog.store.uri} lacks; it lacks {has}.", tag=name)
    _check_holds(catalog.store.uri, marker, [held[name] for name in held if name not in release])
    damaged = fault is not None
    leftovers: list[str] = []  # with receipts and pins of revisions that were not replicated, the log looks cut off
    objects = [] if damaged else [info.path for info in catalog.store.list()]
    for error in () if damaged else contradictions(catalog.store, state, objects):
        leftovers.append(error.attributes.get("evidence", ""))
        if not is_evidence(leftovers[-1]):
            raise error
    known = tuple(sorted(damage_on_record(catalog.store, state.location_id)))
    return PromotionPlan(
        marker, state.revision, state.sealed, ends, tuple(sorted(release)), damaged, tuple(leftovers), known
    )


def _check_holds(uri: str, marker: Replica, left: Sequence[TagState]) -> None:
    """Refuse to end holds that the caller did not name: a promoted location cannot keep what it never had."""
    if left:
        options = " ".join(f"--release {known.pin.name}" for known in left)
        raise TagHeldError(
            f"The replica {uri} has only chosen versions, and lacks tags under legal hold: "
            f"{'; '.join(map(held_text, left))}. Nothing was changed. Replicate them first from {marker.source}, with "
            f"--only for each. If that is lost, {options} gives them up; the log records that.",
            tags=[known.pin.name for known in left],
        )


def execute_promotion(catalog: Catalog, plan: PromotionPlan, *, single_writer: bool = False) -> PromotionPlan:
    """Carry a plan out; see this module.

    Nothing ends but what was planned. `single_writer` accepts a store without conditional creates: the caller promises
    to be the only writer.

    Raises:
        ConflictError: A replication changed the replica since it was planned; it stays a replica.
        SnapshotError: See `plan_promotion`, and `Catalog.open_for_writing`.
    """
    store = proved(catalog.store, single_writer=single_writer, clock=catalog.now)
    if read_marker(store) != plan.replica:
        raise _changed(store)
    store.put(REPLICA, replace(plan.replica, promoting=True).document())  # stops a replication at work
    try:
        again = plan_promotion(catalog, incomplete=plan.damaged, release=plan.released)
        if replace(again, leftovers=plan.leftovers) != _begun(plan):
            raise _changed(store)
        for path in again.leftovers:  # more may have been copied since it was planned
            store.delete(path)
        committed = None if plan.damaged else _end_missing_versions(store, plan)
    except (ConflictError, DamageError, UsageError):  # nothing was committed, so the marker is put back
        if (found := read_marker(store)) is not None and plan.replica.is_same(found):
            store.put(REPLICA, replace(found, promoting=False).document())
        raise
    for tag in plan.ends.tags:
        delete_unless_retained(store, tag.pin.object.path)
    for savepoint in plan.ends.savepoints:
        delete_unless_retained(store, savepoint.pin.object.path)
    store.delete(REPLICA)
    return replace(plan, committed=committed)


def _begun(plan: PromotionPlan) -> PromotionPlan:
    return replace(plan, replica=replace(plan.replica, promoting=True))


def _changed(store: ObjectStore) -> ConflictError:
    return ConflictError(f"A replication changed {store.uri} meanwhile; it stays a replica. Promote it again.")


def _end_missing_versions(store: ObjectStore, plan: PromotionPlan) -> int:
    """Commit the first revision of its own, which ends what the replica lacks; returns it."""
    catalog = Catalog(store, newest_recorded_state(store))
    note = act.HoldNote(catalog.now(), catalog.writer_id, _REASON)

    def prepare(state: State) -> Actions:
        if state.revision != plan.revision or read_marker(store) != _begun(plan).replica:
            raise _changed(store)
        return plan.ends.ended(note)

    committed = catalog.commit(prepare)
    assert committed is not None
    return committed
