"""Computes states from the log: the newest one, and older ones.

The log is the contiguous run of transactions from the oldest kept checkpoint, or from revision 1, to the head. Older
revisions were pruned and are not read. A rebuild starts a new log: revisions below its checkpoint are not part of it.
Errors of a damaged log name its location, and how the fault is repaired.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from snapshot_assets.catalog.log.checkpoints import read_own_checkpoint
from snapshot_assets.catalog.log.store import Listing, is_there, log_after, read_entry
from snapshot_assets.catalog.log.store import list_log as list_log  # for those who read the log
from snapshot_assets.catalog.replica import marker_or_fault, reader_view
from snapshot_assets.catalog.state.fold import LogEntry, State, check_location
from snapshot_assets.errors import (
    BrokenLinkError,
    DamageError,
    DocumentError,
    ForeignLocationError,
    ForkError,
    GapError,
    LocationDeletedError,
    LostLogError,
    MisnamedError,
    NotAFileError,
    ObjectNotFoundError,
    SnapshotError,
    StorageError,
    TornObjectError,
    UnsupportedVersionError,
)
from snapshot_assets.format import actions as act
from snapshot_assets.format.layout import REPLICA, checkpoint_path, checkpointed_revision, revision_of, transaction_path
from snapshot_assets.storage.base import ObjectStore, warn_once
from snapshot_assets.storage.bulk import in_parallel
from snapshot_assets.storage.s3_bucket import bucket_of

FAULTS = (DamageError, UnsupportedVersionError)
FaultError = DamageError | UnsupportedVersionError


def bring_back(store: ObjectStore) -> str:
    """Return a sentence on how a lost object of the log comes back; versions, which S3 may keep, lose nothing."""
    bucket, versions = bucket_of(store), ""
    with suppress(StorageError):  # whoever may not ask cannot recover either
        if bucket is not None and bucket.protection.versioned:
            versions = ", or from older versions with `snapshots catalog recover`"
    return f"Bring it back from a copy{versions}, or else rebuild the log with `snapshots catalog rebuild`."


def fault_remedy(store: ObjectStore, path: str, error: FaultError) -> str:
    """Return a sentence on how a fault of the log, at a path, is repaired; "" if the error states it."""
    if path == REPLICA:
        return ""
    if isinstance(error, TornObjectError | DocumentError) and _is_replica(store):
        return " `snapshots replicate` writes it again."
    if isinstance(error, MisnamedError) and revision_of(path):
        return f" If it overwrote a transaction of this log: {bring_back(store)}"
    if isinstance(error, ForeignLocationError | MisnamedError | LostLogError | UnsupportedVersionError):
        return ""
    if checkpointed_revision(path) is not None and isinstance(error, ForkError):
        return ""
    if _is_replica(store):
        return " Move the replica's `transactions/` away, then run `snapshots replicate` again, which copies the log."
    copied = " If it was copied here, move it away." if isinstance(error, ForkError | BrokenLinkError) else ""
    return f"{copied} {bring_back(store)}"


def _is_replica(store: ObjectStore) -> bool:
    """Return whether a location has a replica's marker, damaged or not."""
    try:
        return marker_or_fault(store) != (None, None)
    except SnapshotError:  # the store fails: the fault is reported without it
        return False


@contextmanager
def naming_location(store: ObjectStore) -> Iterator[None]:
    """Raise faults of a location's log as errors of their kind that name the location and the remedy."""
    try:
        yield
    except FAULTS as fault:
        if "uri" in fault.attributes:  # it names the location
            raise
        what = "cannot be read" if isinstance(fault, UnsupportedVersionError) else "is damaged"
        remedy = fault_remedy(store, fault.attributes.get("object", ""), fault)
        message = f"The log of {store.uri} {what}: {fault}{remedy}"
        raise type(fault)(message, **fault.attributes, uri=store.uri) from fault


_READS = 10
_Read = TypeVar("_Read")


def read_state(store: ObjectStore, *, through: int | None = None, statistics: bool = False) -> State:
    """Return the state at the head or at an older revision, from the newest readable checkpoint and the log after it.

    Of a replica of chosen versions, this is what it has; see `open_log`.

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


def open_log(store: ObjectStore) -> tuple[State, Listing]:
    """Return the head's state, as the log records it, and the log's objects.

    The state has versions that a replica may lack; see `read_state`.
    """

    def read() -> tuple[State, Listing]:
        listing = list_log(store)
        return _replay(store, listing, None, False), listing

    with naming_location(store):
        return despite_pruning(read)


def read_from_log(store: ObjectStore, revision: int) -> State:
    """Return the state at a revision, with statistics, from older checkpoints and the transactions after them."""
    with naming_location(store):
        state = despite_pruning(lambda: _replay(store, list_log(store).through(revision), revision, statistics=True))
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
        return _replay(store, listing, None, statistics)
    known = listing.through(through)
    is_pruned = through < listing.start  # so that the objects up to the revision do not give its state
    if not is_pruned:
        start = max(known.checkpoints, default=0)
        needed = log_after(store, listing, start, through)
        is_pruned = bool(listing.checkpoints) and len(needed) < through - start
    if not is_pruned:
        try:
            state = _replay(store, known, through, statistics)
            if state.revision >= max(known.checkpoints, default=0):  # else its only checkpoint is damaged
                return state
        except DamageError:  # the revision may be below a rebuild
            if not listing.checkpoints or listing.checkpoints[-1] <= through:
                raise
    later = _newest_checkpoint(store, listing, statistics)  # has the revision, whatever faults the log has after it
    if later is None or later.revision < through:
        later = _replay(store, listing, None, statistics)
    return later.at(through)


def _replay(store: ObjectStore, listing: Listing, through: int | None, statistics: bool) -> State:
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
            return _replay(store, listing, through, statistics)
        state.apply(entry, transaction_path(revision))
    return state


def _newest_checkpoint(store: ObjectStore, listing: Listing, statistics: bool) -> State | None:
    for revision in reversed(listing.checkpoints):
        try:
            return read_own_checkpoint(store, revision, listing.transactions, whole=statistics)
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

    entries = in_parallel(store, read, revisions)
    for revision in revisions:  # `zip` would keep the last entry, of tens of megabytes, until it has the next one
        yield revision, next(entries)


def _refuse_half_deleted(store: ObjectStore, revision: int) -> None:
    """Refuse a log whose deletion was interrupted: only its end is left, and its last action is `deleted`."""
    head = read_entry(store, revision)
    if any(isinstance(action, act.Deleted) for action in head.transaction.actions):
        raise LocationDeletedError(
            f"The snapshot at {store.uri} was deleted, but some of its objects remain. Delete it again to finish.",
            uri=store.uri,
        )
