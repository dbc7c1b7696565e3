"""Computes states from the log: the newest one, and older ones.

The log is the contiguous run of transactions from the oldest kept checkpoint, or from revision 1, to the head. Older
revisions were pruned and are not read. A rebuild starts a new log: revisions below its checkpoint are not part of it.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator
from typing import TypeVar

from snapshot_assets.catalog.log.checkpoints import read_own_checkpoint
from snapshot_assets.catalog.log.remedies import FAULTS as FAULTS  # for those who read the log
from snapshot_assets.catalog.log.remedies import FaultError as FaultError
from snapshot_assets.catalog.log.remedies import naming_location
from snapshot_assets.catalog.log.store import Listing, is_there, log_after, read_entry
from snapshot_assets.catalog.log.store import list_log as list_log  # for those who read the log
from snapshot_assets.catalog.replica import reader_view
from snapshot_assets.catalog.state.chain import LogEntry, check_location
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.errors import (
    DamageError,
    ForeignLocationError,
    ForkError,
    GapError,
    LocationDeletedError,
    MisnamedError,
    NotAFileError,
    ObjectNotFoundError,
)
from snapshot_assets.format import actions as act
from snapshot_assets.format.layout import checkpoint_path, transaction_path
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.in_parallel import in_parallel
from snapshot_assets.storage.warn_once import warn_once

_READS = 10
_Read = TypeVar("_Read")


def read_state(store: ObjectStore, *, through: int | None = None, statistics: bool = False) -> State:
    """Return the state at the head or at an older revision, from the newest readable checkpoint and the log after it.

    Of a replica of chosen versions, this is what it has; see `recorded_state`.

    Args:
        store: The location.
        through: The revision; None for the head. A pruned revision is computed from a later state if it is retained.
        statistics: Read all statistics of files now, and ignore a checkpoint that is not whole.

    Raises:
        DamageError: The first fault of the log.
        LocationDeletedError: A deletion of the snapshot was interrupted.
    """
    with naming_location(store):
        view = reader_view(store)
        return view(despite_pruning(lambda: _read_state(store, through, statistics)))


def recorded_state(store: ObjectStore) -> State:
    """Return the head's state as the log records it, with versions that a replica may lack; see `read_state`."""
    with naming_location(store):
        return despite_pruning(lambda: _read_state(store, None, False))


def open_log(store: ObjectStore) -> tuple[State, Listing]:
    """Return the head's state, as the log records it, and the log's objects; see `recorded_state`."""

    def read() -> tuple[State, Listing]:
        listing = list_log(store)
        return _replayed(store, listing, None, False), listing

    with naming_location(store):
        return despite_pruning(read)


def read_from_log(store: ObjectStore, revision: int) -> State:
    """Return the state at a revision, with statistics, from older checkpoints and the transactions after them.

    Raises:
        DamageError: The first fault on the way.
    """
    with naming_location(store):
        state = despite_pruning(lambda: _replayed(store, list_log(store).through(revision), revision, statistics=True))
        if state.revision != revision:
            raise gap(state.revision + 1, revision)
        return state


def despite_pruning(read: Callable[[], _Read]) -> _Read:
    """Call `read` again when an object that it listed is gone: others may be pruning or deleting the log."""
    for _ in range(_READS):
        try:
            return read()
        except ObjectNotFoundError as error:
            if isinstance(error, NotAFileError):
                raise
    return read()


def _read_state(store: ObjectStore, through: int | None, statistics: bool) -> State:
    listing = list_log(store)
    if through is None:
        return _replayed(store, listing, None, statistics)
    if not _is_pruned(store, listing, through):
        known = listing.through(through)
        try:
            state = _replayed(store, known, through, statistics)
            if state.revision >= max(known.checkpoints, default=0):  # else its only checkpoint is damaged
                return state
        except DamageError:  # the revision may be below a rebuild
            if not listing.checkpoints or listing.checkpoints[-1] <= through:
                raise
    later = _newest_checkpoint(store, listing, statistics)  # has the revision, whatever faults the log has after it
    if later is None or later.revision < through:
        later = _replayed(store, listing, None, statistics)
    return later.at(through)


def _is_pruned(store: ObjectStore, listing: Listing, revision: int) -> bool:
    """Return whether the objects up to a revision do not give its state."""
    if revision < listing.start:
        return True
    start = max((known for known in listing.checkpoints if known <= revision), default=0)
    needed = log_after(store, listing, start, revision)
    return bool(listing.checkpoints) and len(needed) < revision - start


def _replayed(store: ObjectStore, listing: Listing, through: int | None, statistics: bool) -> State:
    state = _newest_checkpoint(store, listing, statistics) or State()
    newer = log_after(store, listing, state.revision, through)
    for revision, entry in read_entries(store, newer):
        if isinstance(entry, FAULTS):
            raise entry
        if revision != state.revision + 1:
            _refuse_half_deleted(store, newer[-1])
            if not entry.starts_log:
                check_location(state, entry.transaction, transaction_path(revision))
            raise listing.strays[0] if listing.strays else gap(state.revision + 1, revision)
        if entry.starts_log and revision not in listing.checkpoints and is_there(store, checkpoint_path(revision)):
            insort(listing.checkpoints, revision)  # the listing passed it over
            return _replayed(store, listing, through, statistics)
        state.apply(entry, transaction_path(revision))
    return state


def _newest_checkpoint(store: ObjectStore, listing: Listing, statistics: bool) -> State | None:
    for revision in reversed(listing.checkpoints):
        try:
            return read_own_checkpoint(store, revision, listing.transactions, statistics=statistics)
        except DamageError as fault:
            above = not listing.transactions or revision > listing.transactions[-1]
            if isinstance(fault, ForeignLocationError | ForkError) or (above and isinstance(fault, MisnamedError)):
                listing.strays.append(fault)
            warn_once(
                store.uri,
                f"A checkpoint of {store.uri} is ignored: {fault} `snapshots export verify` says what repairs it.",
            )
    return None


def gap(missing: int, found: int) -> GapError:
    """Return the error for the missing transaction of a revision; `found` is a later one that exists."""
    path = transaction_path(missing)
    return GapError(f"{path} is missing; revision {found} exists.", object=path)


def read_entries(store: ObjectStore, revisions: list[int]) -> Iterator[tuple[int, LogEntry | FaultError]]:
    """Yield revisions with their entries, or with the faults of these."""

    def read(revision: int) -> LogEntry | FaultError:
        try:
            return read_entry(store, revision)
        except FAULTS as fault:
            return fault

    yield from zip(revisions, in_parallel(store, read, revisions), strict=True)


def _refuse_half_deleted(store: ObjectStore, revision: int) -> None:
    """Refuse a log whose deletion was interrupted: only its end is left, and its last action is `deleted`."""
    head = read_entry(store, revision)
    if any(isinstance(action, act.Deleted) for action in head.transaction.actions):
        raise LocationDeletedError(
            f"The snapshot at {store.uri} was deleted, but some of its objects remain. Delete it again to finish.",
            uri=store.uri,
        )
