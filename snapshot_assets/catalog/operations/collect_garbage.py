"""Garbage collection: the only thing that deletes data.

What no retained revision, no pin and no adoptable receipt needs is garbage once it has been so for a grace period, so
that writers which hold it may still commit it (InfluxDB IOx, "Garbage Collection"). It fails closed: one root that
cannot be read, and nothing is deleted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from operator import itemgetter

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.log.truncation import check_receipt, newest_state, refuse_faults
from snapshot_assets.catalog.operations.pinned_paths import PinnedPaths
from snapshot_assets.catalog.receipts.receipts import adoptable_receipts, read_receipt
from snapshot_assets.catalog.state.chain import foreign_location
from snapshot_assets.catalog.state.file_columns import Removal
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.unreferenced import EXPIRED, expiries_since, needed_documents, unreferenced_schemas
from snapshot_assets.errors import DamageError, ObjectNotFoundError, PlanError
from snapshot_assets.format import documents
from snapshot_assets.format.layout import (
    in_layout,
    is_probe,
    is_receipt,
    is_temporary,
    log_revision,
    revision_of,
    transaction_path,
)
from snapshot_assets.format.units import duration_text
from snapshot_assets.storage.base import ObjectInfo, ObjectStore
from snapshot_assets.storage.probe import probe

_BYTES_PER_PATH = 2048


@dataclass(frozen=True)
class Garbage:
    """An object that nothing needs.

    Attributes:
        reason: `replaced` (no retained revision has it any more), `expired` (likewise, and one that expired had it, as
            far as the log still says), `orphan` (no transaction names it, or none that still counts), `probe`, or
            `temporary` (the local driver's file of an object that a writer began and did not finish).
        since: When it was written, or when it became unneeded, whichever is later; on the store's clock, or by the
            log's own times, where these are later.
    """

    path: str
    bytes: int
    reason: str
    since: datetime


@dataclass(frozen=True)
class Collection:
    """What a collection deleted, or would delete.

    Attributes:
        deleted: Garbage that is older than the grace period.
        waiting: Garbage that is not yet.
        foreign: Objects that are not part of the format, left where they are.
        grace: The period that was kept to.
    """

    deleted: tuple[Garbage, ...]
    waiting: tuple[Garbage, ...]
    foreign: tuple[str, ...]
    grace: timedelta


def collect_garbage(
    catalog: Catalog,
    *,
    grace: timedelta | None = None,
    unsafe: bool = False,
    dry_run: bool = False,
    only: Collection | None = None,
) -> Collection:
    """Delete what nothing needs: first the files leave the state, in as many commits as it takes, then the objects go.

    Cut off in between, objects are left that no transaction names; the next collection deletes them.

    Args:
        catalog: The location, opened for writing; for reading if `dry_run`.
        grace: How long garbage stays; None for the plan's own.
        unsafe: Accept a grace period that is shorter than the plan's: no writer may be at work.
        dry_run: Only tell.
        only: Delete nothing but what was told of here, and is still garbage.

    Raises:
        PlanError: The grace period is shorter than the plan's, or longer than twice that.
        LostLogError: The log's end was lost; nothing was deleted.
        DamageError: The log has a fault, or the object of a tag or savepoint, or a receipt, cannot be read; nothing was
            deleted.
        ConflictError: Somebody committed what was about to be deleted; nothing was deleted.
    """
    catalog.refresh()
    grace = _told_for(catalog.require_snapshot(), checked_grace(catalog.require_snapshot(), grace, unsafe))
    now = catalog.now() if dry_run else probe(catalog.store, single_writer=True).store_time
    pinned = PinnedPaths(catalog.store)
    found = _find_at_head(catalog.store, now - grace, grace, pinned)
    if only is not None:
        told = {each.path for each in only.deleted}
        found = replace(found, deleted=tuple(each for each in found.deleted if each.path in told))
    if found.deleted:
        refuse_faults(catalog.store, "nothing was deleted")
    if dry_run or not found.deleted:
        return found
    for paths in _in_portions([each.path for each in found.deleted]):
        catalog.commit(rules.purge(paths))
    again = {each.path for each in _find_at_head(catalog.store, now - grace, grace, pinned).deleted}
    for each in sorted(found.deleted, key=_can_come_back, reverse=True):
        if each.path in again:
            catalog.store.delete(each.path)
    return found


def checked_grace(state: State, grace: timedelta | None, unsafe: bool) -> timedelta:
    """Return the grace period to keep to: the plan's, if none is given.

    Raises:
        PlanError: It is shorter than the plan's, and not called unsafe.
    """
    assert state.header is not None
    own = timedelta(microseconds=state.header.grace)
    if grace is None:
        return own
    if grace < own and not unsafe:
        raise PlanError(
            f"A grace period of {duration_text(grace)} is shorter than the plan's {duration_text(own)}, which writers"
            " rely on; give --unsafe only if none is at work."
        )
    return grace


def _told_for(state: State, grace: timedelta) -> timedelta:
    """Return a grace period, if all that expired in it is told, whatever checkpoints lie on the way.

    Raises:
        PlanError: It is longer: what expired before that time might count from its removal, and go too early.
    """
    assert state.header is not None
    most = 2 * timedelta(microseconds=state.header.grace)
    if grace > most:
        raise PlanError(
            f"A grace period of {duration_text(grace)} is longer than twice the plan's: checkpoints tell what expired "
            f"for {duration_text(most)} only. Give at most that, or leave it out."
        )
    return grace


def _in_portions(paths: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield paths in portions that one transaction holds: none of them is longer than 1 KiB (object stores' limit)."""
    most = max(documents.MAX_TRANSACTION_BYTES // _BYTES_PER_PATH, 1)
    for start in range(0, len(paths), most):
        yield tuple(paths[start : start + most])


def _can_come_back(garbage: Garbage) -> bool:
    """Tell whether a writer may write an object of that name anew: such go first, while it is sure that nobody has."""
    return garbage.path.startswith("schema/")


def _find_at_head(store: ObjectStore, before: datetime, grace: timedelta, pinned: PinnedPaths) -> Collection:
    """Return what nothing at the head needs.

    The head is read from storage: to a process that slept while the log after its own state was pruned, that state
    looks like the newest. What cannot be read is a fault only if nobody has committed since, such as a tag's deletion.
    """
    while True:
        state = Catalog(store, newest_state(store)).require_snapshot()
        try:
            return _find(store, state, before, grace, pinned)
        except DamageError:
            if read_state(store).revision == state.revision:
                raise


def _find(store: ObjectStore, state: State, before: datetime, grace: timedelta, pinned: PinnedPaths) -> Collection:
    objects = list(store.list())  # before the roots are read: what is written later is not looked at
    clock = _LogTimes(store, objects)
    expiries = expiries_since(state, before, clock.of)
    unneeded = state.files.unreferenced(state.retained(), expiries)
    needed = _needed(store, state, pinned, unneeded, (info.path for info in objects))
    expired = _of_expired(state, unneeded)
    schemas = unreferenced_schemas(state, expiries)
    unneeded |= schemas.removals
    expired |= schemas.of_expired
    # The log does not record what expired before then.
    rebuilt = max(_rebuild_time(state, clock), state.expiries_dropped_until)
    garbage, foreign = [], []
    for info in objects:
        if not in_layout(info.path):
            foreign.append(info.path)
        elif info.path not in needed and _is_collected(info.path):
            files = _files_of(store, state, info.path) & unneeded.keys()
            removed = max((unneeded[path] for path in files), default=None)
            since = max(removed[1], clock.of(removed[0])) if removed else None
            found = _garbage(info, since, not files.isdisjoint(expired))
            garbage.append(replace(found, since=max(found.since, rebuilt)))
    left = (info for info in store.temporaries() if is_temporary(info.path))
    garbage += (Garbage(info.path, info.size, "temporary", info.modified) for info in left)
    return Collection(
        deleted=tuple(each for each in garbage if each.since <= before),
        waiting=tuple(each for each in garbage if each.since > before),
        foreign=tuple(foreign),
        grace=grace,
    )


class _LogTimes:
    """When revisions were committed, on the store's clock: their own times are those of the clocks of writers.

    Args:
        store: The location.
        objects: All objects of the location, as a listing shows them.
    """

    def __init__(self, store: ObjectStore, objects: Sequence[ObjectInfo]) -> None:
        self._store = store
        log = [info for info in objects if log_revision(info.path)]
        self._transactions = {log_revision(info.path): info.modified for info in log if revision_of(info.path)}
        self._log = sorted((log_revision(info.path), info.modified) for info in log)

    def of(self, revision: int) -> datetime:
        """Return when a revision was written; of a pruned one, when the oldest of what is left behind it was."""
        later = self._log[bisect_left(self._log, revision, key=itemgetter(0)) :]
        if not later:  # the listing passed it over, or it was committed since
            self._transactions[revision] = self._store.head(transaction_path(revision)).modified
        return self._transactions.get(revision) or later[0][1]


def _rebuild_time(state: State, clock: _LogTimes) -> datetime:
    """Return when a rebuild left out what it could not prove: until then, all of that may have been needed."""
    revision = state.rebuilt_at
    if not revision:
        return datetime.min.replace(tzinfo=UTC)
    return max(clock.of(revision), *(event.committed_at for event in state.events if event.revision == revision))


def _is_collected(path: str) -> bool:
    """Tell whether an object is of a kind that is collected; the log is pruned, and hints are only overwritten."""
    return path.startswith(("data/", "schema/", "tag/", "savepoint/")) or is_probe(path)


def _files_of(store: ObjectStore, state: State, path: str) -> set[str]:
    """Return the files that an object is unneeded with: a receipt's own, and what is no receipt by itself.

    Raises:
        LostLogError: It is the receipt of a chunk that was planned on a later revision than the head.
        ForeignLocationError: It is the receipt of another location, or the log is another location's.
    """
    if not is_receipt(path):
        return {path}
    try:
        receipt, _ = read_receipt(store, path)
    except (DamageError, ObjectNotFoundError):  # torn, or collected by another since it was listed
        return set()
    if receipt.location_id not in ("", state.location_id):  # else a log copied over this one would delete all of it
        raise foreign_location(path, receipt.location_id, state.location_id, transaction_path(1))
    check_receipt(store, state, receipt)
    return {file.path for file in receipt.files}


def _of_expired(state: State, unneeded: Mapping[str, Removal]) -> set[str]:
    """Return the files that are only unneeded because revisions expired, or lost their last tag or savepoint then.

    Checkpoints leave the seals of such revisions out, but tell for two grace periods that they expired.
    """
    if not state.expired:
        return set()
    return unneeded.keys() - state.files.unreferenced(sorted(state.expired.union(state.retained()))).keys()


def _garbage(info: ObjectInfo, removed_at: datetime | None, expired: bool) -> Garbage:
    if removed_at is not None:
        return Garbage(info.path, info.size, EXPIRED if expired else "replaced", max(info.modified, removed_at))
    return Garbage(info.path, info.size, "probe" if is_probe(info.path) else "orphan", info.modified)


def _needed(
    store: ObjectStore, state: State, pinned: PinnedPaths, unneeded: Mapping[str, Removal], shown: Iterable[str]
) -> set[str]:
    """Return the paths of all objects that must stay.

    Args:
        store: The location.
        state: The head.
        pinned: What was read of pins before.
        unneeded: The files that no retained revision has.
        shown: All paths that a listing showed.

    Raises:
        DamageError: A root cannot be read, or a receipt was planned on a later revision than the head.
    """
    needed = state.files.paths() - unneeded.keys()
    needed.update(needed_documents(state))
    needed.update(pinned.by(state.pins))
    for receipt, ref in adoptable_receipts(store, state, state.missing(), shown):
        check_receipt(store, state, receipt)
        needed.add(ref.path)
        needed.update(file.path for file in receipt.files)
    return needed
