"""Garbage collection: the only operation that deletes data.

Garbage is deleted after a grace period, so that writers which work on it can still commit it (InfluxDB IOx, "Garbage
Collection").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.log.truncation import refuse_faults
from snapshot_assets.catalog.operations.garbage import Garbage, PinnedPaths, scan_head
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.errors import PlanError
from snapshot_assets.format import documents
from snapshot_assets.format.units import duration_text
from snapshot_assets.storage.probe import probe

_BYTES_PER_PATH = 2048  # none is longer than 1 KiB (object stores' limit)


@dataclass(frozen=True)
class GarbagePlan:
    """What a garbage collection deletes.

    Attributes:
        deleted: Garbage that is older than the grace period.
        waiting: Garbage that is younger.
        foreign: Objects that are not part of the format; they stay.
        grace: The grace period.
        pinned: What the pins of the head name that this was planned on.
    """

    deleted: tuple[Garbage, ...]
    waiting: tuple[Garbage, ...]
    foreign: tuple[str, ...]
    grace: timedelta
    pinned: PinnedPaths = field(repr=False, compare=False)


def plan_collection(catalog: Catalog, *, grace: timedelta | None = None, unsafe: bool = False) -> GarbagePlan:
    """Return what a garbage collection would delete; changes nothing.

    Args:
        catalog: The location.
        grace: How long garbage stays; None for the plan's own grace period.
        unsafe: Accept a grace period that is shorter than the plan's: no writer may be at work.

    Raises:
        PlanError: The grace period is shorter than the plan's, or longer than twice that.
        LostLogError: The log's end was lost.
        DamageError: The log has a fault, or the object of a tag or savepoint, or a receipt, cannot be read.
    """
    catalog.refresh()
    grace = checked_grace(catalog.require_snapshot(), grace, unsafe)
    most = 2 * _own_grace(catalog.state)
    if grace > most:  # files of a forgotten expiry would count from their removal, and go too early
        raise PlanError(
            f"A grace period of {duration_text(grace)} is longer than twice the plan's: checkpoints record what expired"
            f" for {duration_text(most)} only. Give at most that, or leave it out."
        )
    before = catalog.now() - grace
    pinned = PinnedPaths()
    scan = scan_head(catalog.store, before, pinned)
    deleted, waiting = scan.by_age(before)
    if deleted:
        refuse_faults(scan_log(catalog.store), "nothing was deleted")
    return GarbagePlan(deleted, waiting, scan.foreign, grace, pinned)


def execute_collection(
    catalog: Catalog, plan: GarbagePlan, progress: Callable[[Garbage], None] = lambda _: None
) -> GarbagePlan:
    """Delete the garbage of a plan: commits that the files leave the state, then deletes the objects.

    Deletes nothing but what was planned, and is still garbage and old enough on the store's clock. If interrupted, it
    leaves objects that no transaction names; the next collection deletes them.

    Args:
        catalog: The location.
        plan: What is to be deleted.
        progress: Called for each deleted object.

    Returns:
        The plan with what was really deleted. Other planned garbage is `waiting`, unless it is needed again or gone.

    Raises:
        LostLogError: The log's end was lost.
        DamageError: The log has a fault, or the object of a tag or savepoint, or a receipt, cannot be read.
        ConflictError: Another writer committed what was about to be deleted; nothing was deleted.
    """
    if not plan.deleted:
        return plan
    catalog.refresh()
    before = probe(catalog.store, single_writer=True).store_time - plan.grace
    # Before the purge: a purged file is an orphan, so its age no longer shows when a revision that had it expired.
    scan = scan_head(catalog.store, before, plan.pinned)
    planned = {each.path for each in plan.deleted}
    due = planned.intersection(each.path for each in scan.by_age(before)[0])
    if due:
        refuse_faults(scan_log(catalog.store), "nothing was deleted")
    paths, most = sorted(due), max(documents.MAX_TRANSACTION_BYTES // _BYTES_PER_PATH, 1)
    for start in range(0, len(paths), most):  # as many as one transaction holds
        catalog.commit(rules.purge(paths[start : start + most]))
    scan = scan_head(catalog.store, before, plan.pinned)
    due.intersection_update(each.path for each in scan.by_age(before)[0])
    planned -= due
    waiting = tuple(each for each in scan.garbage if each.path in planned)
    deleted = tuple(each for each in plan.deleted if each.path in due)
    # Schema documents go first, soon after the scan: a writer may create them again.
    for each in sorted(deleted, key=lambda each: not each.path.startswith("schema/")):
        catalog.store.delete(each.path)
        progress(each)
    return replace(plan, deleted=deleted, waiting=plan.waiting + waiting)


def checked_grace(state: State, grace: timedelta | None, unsafe: bool) -> timedelta:
    """Return a grace period; the plan's own if none is given.

    Raises:
        PlanError: It is shorter than the plan's, and `unsafe` is not given.
    """
    own = _own_grace(state)
    if grace is None:
        return own
    if grace < own and not unsafe:
        raise PlanError(
            f"A grace period of {duration_text(grace)} is shorter than the plan's {duration_text(own)}, which writers"
            " rely on; give --unsafe only if none is at work."
        )
    return grace


def _own_grace(state: State) -> timedelta:
    assert state.header is not None
    return timedelta(microseconds=state.header.grace)
