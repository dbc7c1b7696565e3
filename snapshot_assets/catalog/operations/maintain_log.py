"""Maintains the log's own objects: writes checkpoints on demand, and prunes old transactions.

Pruning deletes the oldest part of the log, which a checkpoint also holds (InfluxDB IOx, "Pruning").
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice, takewhile

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import is_whole, write_checkpoint
from snapshot_assets.catalog.log.replay import read_from_log
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.log.store import is_there, list_log
from snapshot_assets.catalog.log.truncation import refuse_faults, refuse_lost_end
from snapshot_assets.catalog.operations.collect_garbage import checked_grace
from snapshot_assets.catalog.state.retained import ReleasedObject
from snapshot_assets.errors import ConflictError, DamageError
from snapshot_assets.format.layout import TRANSACTIONS, checkpoint_path, log_revision, revision_of, transaction_path
from snapshot_assets.storage.base import ObjectInfo, ObjectStore
from snapshot_assets.storage.listed import Listed
from snapshot_assets.storage.probe import probe

_KEPT = 2


@dataclass(frozen=True)
class WrittenCheckpoint:
    """The checkpoint of the newest revision.

    Attributes:
        bytes: Its size.
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

    Args:
        catalog: The location, opened for writing.

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
    """

    released: tuple[ReleasedObject, ...]
    kept: int
    newest: int
    grace: timedelta = field(default=timedelta(0), compare=False)

    @property
    def deleted(self) -> tuple[str, ...]:
        """Paths of what it deletes."""
        return tuple(each.path for each in self.released)


def plan_pruning(catalog: Catalog, *, grace: timedelta | None = None, unsafe: bool = False) -> PrunePlan:
    """Return which transactions and checkpoints pruning would delete; changes nothing.

    Two readable checkpoints stay, and all transactions since the older one. So do revision 1, and everything younger
    than the grace period. The log is read and both checkpoints are compared with it.

    Args:
        catalog: The location.
        grace: How old everything must be that goes; None for the plan's own grace period.
        unsafe: Accept a grace period that is shorter than the plan's: no writer may be at work.

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
    for path in gone:
        store.delete(path)
    return replace(plan, released=tuple(planned[path] for path in gone))


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
    return prunable
