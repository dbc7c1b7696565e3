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
from dataclasses import dataclass, field
from typing import TypeVar

from snapshot_assets.catalog.log.checkpoints import is_damaged, read_checkpoint, same_states
from snapshot_assets.catalog.log.listing import Listing, is_there, log_after
from snapshot_assets.catalog.log.listing import list_log as list_log  # for those who read the log
from snapshot_assets.catalog.log.own_checkpoints import read_own_checkpoint
from snapshot_assets.catalog.log.store import read_entry
from snapshot_assets.catalog.state.chain import LogEntry, foreign_location
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.errors import (
    DamageError,
    DocumentError,
    ForeignLocationError,
    ForkError,
    GapError,
    LocationDeletedError,
    ObjectNotFoundError,
    UnsupportedVersionError,
)
from snapshot_assets.format import actions as act
from snapshot_assets.format.layout import (
    checkpoint_path,
    checkpointed_revision,
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
    return _despite_pruning(lambda: _read_state(store, through, statistics))


def open_log(store: ObjectStore) -> tuple[State, Listing]:
    """Return the head's state, and what lies in the log's folder; see `read_state`."""

    def read() -> tuple[State, Listing]:
        listing = list_log(store, head=True)
        return _replayed(store, listing, None, False), listing

    return _despite_pruning(read)


def read_from_log(store: ObjectStore, revision: int) -> State:
    """Return the state at a revision as older checkpoints and the transactions after them give it, with statistics.

    Raises:
        DamageError: They do not give it; the first fault.
    """
    state = _despite_pruning(lambda: _replayed(store, list_log(store).through(revision), revision, statistics=True))
    if state.revision != revision:
        raise _gap(state.revision + 1, revision)
    return state


def _despite_pruning(read: Callable[[], _Read]) -> _Read:
    """Read anew where an object is gone since it was listed: others prune the log's beginning, or delete all of it."""
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
            raise listing.strays[0] if listing.strays else _gap(state.revision + 1, revision)
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
            if isinstance(fault, ForeignLocationError | ForkError):
                listing.strays.append(fault)
            _LOG.warning("A checkpoint is passed over for an older one: %s", fault)
    return None


def _gap(missing: int, found: int) -> GapError:
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


# The whole log


@dataclass
class LogScan:
    """What reading a whole log gave: the folded state up to the first fault, and every fault on the way.

    Where a checkpoint lies behind a fault, folding goes on from it.

    Attributes:
        state: The state after the last of the entries.
        first: The checkpoint that folding began with, 0 for none.
        transactions: Revisions that have a transaction, ascending.
        start: The checkpoint that the log begins with, 0 for none; no older one, and no transaction, gives it again.
        entries: The entries folded, as far as they follow one another up to the last.
        faults: Path and error of every object that could not be read, decoded or linked.
    """

    store: ObjectStore
    state: State = field(default_factory=State)
    first: int = 0
    transactions: list[int] = field(default_factory=list)
    start: int = 0
    entries: list[LogEntry] = field(default_factory=list)
    faults: list[tuple[str, FaultError]] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def states(self) -> Iterator[State]:
        """Yield the state after each revision of a snapshot; it is the same object, folded on."""
        state = read_checkpoint(self.store, self.first) if self.first else State()
        if state.header is not None:
            yield state
        for entry in self.entries:
            state.apply(entry, transaction_path(entry.transaction.revision))
            if state.header is not None:
                yield state


def faults_of_log(scan: LogScan) -> Iterator[tuple[str, FaultError]]:
    """Yield the faults of a scan but for those of damaged checkpoints that the log gives again."""
    for path, fault in scan.faults:
        revision = checkpointed_revision(path)
        given = revision is not None and revision != scan.start and not isinstance(fault, GapError)
        if revision is None or not (given and is_damaged(scan.store, revision)):
            yield path, fault


def scan_log(store: ObjectStore, *, since: int | None = None, through: int | None = None) -> LogScan:
    """Read and fold the log, collecting faults instead of stopping at the first; every checkpoint is compared with it.

    Args:
        store: The location.
        since: The checkpoint to begin with; None for the log's own beginning.
        through: Last revision to read; None for the head.
    """
    return _despite_pruning(lambda: _scan_log(store, since, through))


def _scan_log(store: ObjectStore, since: int | None, through: int | None) -> LogScan:
    listing = list_log(store).through(through)
    previous = listing.start if since is None else since
    scan = LogScan(store, start=previous, transactions=listing.transactions, foreign=listing.foreign)
    known = set(listing.checkpoints)
    folding = _Folding(scan, known, not previous or _begin_at(scan, previous))
    if previous:
        _look_below(scan, listing, previous)
    for revision, entry in read_entries(store, log_after(store, listing, previous, through)):
        for skipped in range(previous + 1, revision):
            folding.miss(skipped, revision)
            folding.meet_checkpoint(skipped)
        folding.meet(revision, entry)
        folding.meet_checkpoint(revision)
        previous = revision
    folding.pass_over_strays(previous)
    for skipped in range(previous + 1, max(known, default=0) + 1):
        folding.miss(skipped, max(known))
        folding.meet_checkpoint(skipped)
    return scan


def _look_below(scan: LogScan, listing: Listing, start: int) -> None:
    """Note the faults of the two transactions of a pruned log that folding does not meet.

    Revision 1 is never pruned: where it were free, a sleeping writer could begin anew. That of the checkpoint which the
    log begins with may be missing; the checkpoint names it.
    """
    if listing.transactions[:1] != [1]:
        path = transaction_path(1)
        _note(scan, path, GapError(f"{path} is missing, which is never pruned.", object=path))
    for revision in {1, start}.intersection(listing.transactions):
        path = transaction_path(revision)
        try:
            entry = read_entry(scan.store, revision)
        except FAULTS as fault:
            if revision == start or not scan.state.rebuilt_at:  # what lies below a rebuild may have any fault
                _note(scan, path, fault)
        else:
            if revision == scan.first and entry.sha256 != scan.state.sha256:
                _note(scan, path, _not_named(path))


def _not_named(path: str) -> ForkError:
    return ForkError(f"{path} is not the transaction that its checkpoint names.", object=path)


def _begin_at(scan: LogScan, revision: int) -> bool:
    """Let a scan go on from a checkpoint; False, with its fault noted, where it cannot be read."""
    try:
        scan.state = read_own_checkpoint(scan.store, revision, scan.transactions)
    except FAULTS as fault:
        _note(scan, checkpoint_path(revision), fault)
        return False
    try:
        read_checkpoint(scan.store, revision, statistics=True)
    except DamageError as fault:
        _note(scan, checkpoint_path(revision), fault)
    scan.first, scan.entries = revision, []
    return True


@dataclass
class _Folding:
    """A scan under way.

    Attributes:
        known: Revisions that have a checkpoint.
        usable: Whether the state is that of the revision before the one that is looked at.
        gap: Whether the revision before is missing, and that is noted.
    """

    scan: LogScan
    known: set[int]
    usable: bool
    gap: bool = False

    def miss(self, revision: int, later: int) -> None:
        """A transaction is not there."""
        if not self.gap:
            _note(self.scan, transaction_path(revision), _gap(revision, later))
        self.gap, self.usable = True, False

    def meet(self, revision: int, entry: LogEntry | FaultError) -> None:
        """A transaction is there: fold it if the state is the one before it."""
        self.gap = False
        path = transaction_path(revision)
        if isinstance(entry, FAULTS):
            _note(self.scan, path, entry)
            self.usable = False
        elif entry.starts_log and self._begin_anew(entry, path):
            self.usable = True
        elif self.usable or entry.starts_log:
            try:
                self.scan.state.apply(entry, path)
            except FAULTS as fault:
                _note(self.scan, path, fault)
                self.usable = False
            else:
                self.scan.entries.append(entry)

    def _begin_anew(self, entry: LogEntry, path: str) -> bool:
        """Go on from a rebuild's checkpoint: what lies below is no part of the log, and its faults are none."""
        revision = entry.transaction.revision
        there = revision in self.known or is_there(self.scan.store, checkpoint_path(revision))
        if not there or not _begin_at(self.scan, revision):
            return False
        self.scan.faults.clear()
        if self.scan.state.sha256 != entry.sha256:
            _note(self.scan, path, _not_named(path))
        return True

    def pass_over_strays(self, last: int) -> None:
        """Note the checkpoints after the last transaction that are not of this log: they do not show that more was."""
        for revision in [each for each in self.known if each > last]:
            try:
                read_own_checkpoint(self.scan.store, revision, self.scan.transactions)
            except (ForeignLocationError, ForkError) as fault:
                _note(self.scan, checkpoint_path(revision), fault)
                self.known.discard(revision)
            except FAULTS:
                pass  # it is there: a gap is noted before it

    def meet_checkpoint(self, revision: int) -> None:
        """Where a checkpoint lies, compare it with the state, or go on from it if the state is lost."""
        if revision not in self.known or revision == self.scan.first:
            return
        if not self.usable:
            self.usable = _begin_at(self.scan, revision)
            return
        try:
            if not compare_checkpoint(self.scan.store, self.scan.state):
                path = checkpoint_path(revision)
                raise DocumentError(f"{path} is not what the log gives for revision {revision}.", object=path)
        except ObjectNotFoundError:
            pass  # pruned since it was listed
        except FAULTS as fault:
            _note(self.scan, checkpoint_path(revision), fault)


def _note(scan: LogScan, path: str, fault: FaultError) -> None:
    scan.faults.append((fault.attributes.get("object", path), fault))


def compare_checkpoint(store: ObjectStore, state: State) -> bool:
    """Tell whether the checkpoint at a state's revision holds exactly that state.

    Raises:
        DamageError: It cannot be read, or belongs to another location.
        ObjectNotFoundError: There is none.
    """
    found = read_checkpoint(store, state.revision)
    if found.location_id != state.location_id:
        raise foreign_location(checkpoint_path(state.revision), found.location_id, state.location_id)
    return same_states(found, state)
