"""Pruning: the log's beginning is deleted where a checkpoint holds all that it says (InfluxDB IOx, "Pruning")."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice, takewhile

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import is_damaged
from snapshot_assets.catalog.log.replay import list_log
from snapshot_assets.catalog.log.truncation import refuse_faults, refuse_lost_end
from snapshot_assets.catalog.operations.collect_garbage import checked_grace
from snapshot_assets.catalog.state.unreferenced import ReleasedObject
from snapshot_assets.format.layout import TRANSACTIONS, checkpoint_path, log_revision, revision_of, transaction_path
from snapshot_assets.storage.base import ObjectInfo, ObjectStore
from snapshot_assets.storage.listed import Listed
from snapshot_assets.storage.probe import probe

_KEPT = 2


@dataclass(frozen=True)
class Pruning:
    """What pruning deleted, or would delete.

    Attributes:
        released: What goes, oldest revision first: each a `transaction` or a `checkpoint`.
        kept: The oldest revision that the log still has in full; a checkpoint lies there. 0 where all is kept.
    """

    released: tuple[ReleasedObject, ...]
    kept: int

    @property
    def deleted(self) -> tuple[str, ...]:
        """The paths."""
        return tuple(each.path for each in self.released)

    @property
    def bytes(self) -> int:
        """Size of what goes."""
        return sum(each.bytes for each in self.released)


def prune(
    catalog: Catalog,
    *,
    grace: timedelta | None = None,
    unsafe: bool = False,
    dry_run: bool = False,
    only: Pruning | None = None,
) -> Pruning:
    """Delete transactions and checkpoints from the log's beginning; every retained revision stays readable.

    Two checkpoints that can be read stay, and all transactions from the older one on; so does revision 1, and what is
    younger than the grace period. First the log is read and both checkpoints are compared with it; where the checkpoint
    that it begins with is damaged, the newer one with the log since the older one. Strictly the oldest goes first, so a
    pruning that was cut off is one of less.

    Args:
        catalog: The location, opened for writing; for reading if `dry_run`.
        grace: How old what is deleted must be; None for the plan's grace period.
        unsafe: Accept a shorter one than the plan's: no writer may be at work.
        dry_run: Only tell.
        only: Delete nothing but what was told of here, and may still go.

    Raises:
        PlanError: The grace period is shorter than the plan's.
        LostLogError: The log's end was lost; nothing was deleted.
        DamageError: The log or a checkpoint has a fault; nothing was deleted.
    """
    catalog.refresh()
    refuse_lost_end(catalog.store)
    grace = checked_grace(catalog.require_snapshot(), grace, unsafe)
    store = catalog.store
    checkpoints = list_log(store).checkpoints
    whole = [*islice((each for each in reversed(checkpoints) if not is_damaged(store, each)), _KEPT)]
    if len(whole) < _KEPT:
        return Pruning((), 0)
    newest, kept = whole
    now = catalog.now() if dry_run else probe(store, single_writer=True).store_time
    gone = _prunable(store, checkpoints, kept, now - grace)
    if only is not None:
        told, kept = set(only.deleted), only.kept
        gone = list(takewhile(lambda info: info.path in told, gone))
    if gone:
        _refuse_faults(store, kept, newest)
    for info in gone if not dry_run else ():
        store.delete(info.path)
    return Pruning(tuple(ReleasedObject(info.path, info.size, _kind(info.path)) for info in gone), kept)


def _kind(path: str) -> str:
    return "checkpoint" if revision_of(path) is None else "transaction"


def _prunable(store: ObjectStore, checkpoints: Iterable[int], kept: int, before: datetime) -> list[ObjectInfo]:
    """Return what lies below a revision, oldest first, up to the first object that is too young.

    What a listing passes over must not stay where older and newer objects go: a writer that slept could commit behind
    it.
    """
    objects, last = Listed(store, TRANSACTIONS), kept - 1
    objects.missing(map(checkpoint_path, checkpoints))
    while last and transaction_path(last) in objects:
        last -= 1
    found: list[ObjectInfo] = []
    for info in sorted(objects.values(), key=lambda info: (log_revision(info.path), info.path)):
        if not 1 < log_revision(info.path) < kept:
            continue
        if info.modified > before:
            break
        found.append(info)
    return found


def _refuse_faults(store: ObjectStore, kept: int, newest: int) -> None:
    """Refuse a log with faults; one whose first checkpoint goes and is damaged is read from the one that stays."""
    start = list_log(store).start
    since = kept if start < kept and is_damaged(store, start) else None
    refuse_faults(store, "nothing was pruned", since=since, through=newest)
