"""From the log to states: opening a location, reading an older state, and looking at a whole log with all its faults.

The log is the contiguous run of transactions from the oldest kept checkpoint, or from revision 1, to the head; what
lies below was pruned and is not looked at. A rebuild begins the log anew: what lies below its checkpoint is no part of
it either.
"""

from __future__ import annotations

import logging
from bisect import insort
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from typing import TypeVar

from snapshot_assets.catalog.log.listing import Listing, is_there, log_after
from snapshot_assets.catalog.log.listing import list_log as list_log  # for those who read the log
from snapshot_assets.catalog.log.own_checkpoints import read_own_checkpoint
from snapshot_assets.catalog.log.store import read_entry
from snapshot_assets.catalog.state.chain import LogEntry, check_location
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.errors import (
    DamageError,
    ForeignLocationError,
    ForkError,
    GapError,
    LocationDeletedError,
    MisnamedError,
    ObjectNotFoundError,
    UnsupportedVersionError,
)
from snapshot_assets.format import actions as act
from snapshot_assets.format.layout import (
    checkpoint_path,
    transaction_path,
)
from snapshot_assets.storage.base import ObjectStore

_READERS = 16
_READS = 10
_Read = TypeVar("_Read")
_LOG = logging.getLogger(__name__)

FAULTS = (DamageError, UnsupportedVersionError)
FaultError = DamageError | UnsupportedVersionError


def read_state(store: ObjectStore, *, through: int | None = None, statistics: bool = False) -> State:
    """Return the state at the head, or at an older revision: from the newest readable checkpoint, and the log after it.

    Args:
        store: The location.
        through: The revision; None for the head. One that was pruned is computed from a later state, which knows it if
            it is retained.
        statistics: Read all statistics of files now, and pass over a checkpoint of which some cannot be read.

    Raises:
        DamageError: The log has a fault; the first one.
        LocationDeletedError: A deletion of the snapshot was begun and not finished.
    """
    return despite_pruning(lambda: _read_state(store, through, statistics))


def open_log(store: ObjectStore) -> tuple[State, Listing]:
    """Return the head's state, and what lies in the log's folder; see `read_state`."""

    def read() -> tuple[State, Listing]:
        listing = list_log(store, head=True)
        return _replayed(store, listing, None, False), listing

    return despite_pruning(read)


def read_from_log(store: ObjectStore, revision: int) -> State:
    """Return the state at a revision as older checkpoints and the transactions after them give it, with statistics.

    Raises:
        DamageError: They do not give it; the first fault.
    """
    state = despite_pruning(lambda: _replayed(store, list_log(store).through(revision), revision, statistics=True))
    if state.revision != revision:
        raise gap(state.revision + 1, revision)
    return state


def despite_pruning(read: Callable[[], _Read]) -> _Read:
    """Call `read` again when an object that it listed is gone: others may be pruning or deleting the log."""
    for _ in range(_READS):
        with suppress(ObjectNotFoundError):
            return read()
    return read()


def _read_state(store: ObjectStore, through: int | None, statistics: bool) -> State:
    listing = list_log(store, head=through is None)
    if through is None:
        return _replayed(store, listing, None, statistics)
    if not _is_pruned(store, listing, through):
        known = listing.through(through)
        try:
            state = _replayed(store, known, through, statistics)
            if state.revision >= max(known.checkpoints, default=0):  # else the only one that holds it was passed over
                return state
        except DamageError:  # it may lie below a rebuild
            if not listing.checkpoints or listing.checkpoints[-1] <= through:
                raise
    later = _newest_checkpoint(store, listing, statistics)  # holds it, whatever became of the log behind
    if later is None or later.revision < through:
        later = _replayed(store, listing, None, statistics)
    return later.at(through)


def _is_pruned(store: ObjectStore, listing: Listing, revision: int) -> bool:
    """Tell whether a revision cannot be reached from what the log has up to it."""
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
        if entry.starts_log and _begins_unlisted(store, revision, listing):
            return _replayed(store, listing, through, statistics)
        state.apply(entry, transaction_path(revision))
    return state


def _begins_unlisted(store: ObjectStore, revision: int, listing: Listing) -> bool:
    """Add a rebuild's checkpoint to a listing that passed it over; False if it did not, or there is none."""
    unlisted = revision not in listing.checkpoints and is_there(store, checkpoint_path(revision))
    if unlisted:
        insort(listing.checkpoints, revision)
    return unlisted


def _newest_checkpoint(store: ObjectStore, listing: Listing, statistics: bool) -> State | None:
    for revision in reversed(listing.checkpoints):
        try:
            return read_own_checkpoint(store, revision, listing.transactions, statistics=statistics)
        except DamageError as fault:
            above = not listing.transactions or revision > listing.transactions[-1]
            if isinstance(fault, ForeignLocationError | ForkError) or (above and isinstance(fault, MisnamedError)):
                listing.strays.append(fault)
            warn_once(store, f"A checkpoint is passed over for an older one: {fault}")
    return None


def warn_once(store: ObjectStore, message: str) -> None:
    """Log a warning about a location, once per process: a command reads the log several times."""
    _warn(store.uri, message)


@lru_cache(maxsize=256)
def _warn(_: str, message: str) -> None:
    _LOG.warning("%s", message)


def gap(missing: int, found: int) -> GapError:
    """Return the error for a missing transaction.

    Args:
        missing: Its revision.
        found: A later revision that is there.
    """
    path = transaction_path(missing)
    return GapError(f"{path} is missing; revision {found} exists.", object=path)


def read_entries(store: ObjectStore, revisions: list[int]) -> Iterator[tuple[int, LogEntry | FaultError]]:
    """Yield revisions with their entries, or with why these cannot be read."""

    def read(revision: int) -> LogEntry | FaultError:
        try:
            return read_entry(store, revision)
        except FAULTS as fault:
            return fault

    if len(revisions) < _READERS:
        yield from ((revision, read(revision)) for revision in revisions)
        return
    with ThreadPoolExecutor(_READERS) as pool:
        yield from zip(revisions, pool.map(read, revisions), strict=True)


def _refuse_half_deleted(store: ObjectStore, revision: int) -> None:
    """A deletion that was cut off left only the log's end, whose last word is `deleted`."""
    head = read_entry(store, revision)
    if any(isinstance(action, act.Deleted) for action in head.transaction.actions):
        raise LocationDeletedError(
            f"The snapshot at {store.uri} was deleted, but some of its objects remain. Delete it once more to finish.",
            uri=store.uri,
        )
