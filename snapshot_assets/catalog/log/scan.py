"""Reads a whole log, and collects every fault instead of stopping at the first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from snapshot_assets.catalog.log.checkpoints import read_checkpoint, read_own_checkpoint, same_states
from snapshot_assets.catalog.log.replay import FAULTS, FaultError, despite_pruning, gap, read_entries
from snapshot_assets.catalog.log.store import Listing, is_there, list_log, log_after, read_entry
from snapshot_assets.catalog.replica import Replica, marker_or_fault, with_versions
from snapshot_assets.catalog.state.fold import LogEntry, State, check_location, foreign_location
from snapshot_assets.errors import (
    DamageError,
    DocumentError,
    ForeignLocationError,
    ForkError,
    GapError,
    MisnamedError,
    ObjectNotFoundError,
)
from snapshot_assets.format.layout import REPLICA, checkpoint_path, transaction_path
from snapshot_assets.storage.base import ObjectStore


@dataclass
class LogScan:
    """A whole log: the state up to its first fault, and every fault.

    A checkpoint after a fault gives the state from which folding continues.

    Attributes:
        state: The state after the last entry; of a replica of chosen versions, what it has.
        first: The checkpoint that folding started from; 0 for none.
        transactions: Revisions that have a transaction, ascending.
        start: The checkpoint that the log starts with, 0 for none. Nothing else gives it again.
        entries: The last unbroken run of folded entries.
        faults: Path and error of every object that is unreadable or does not follow.
        torn: Paths of the checkpoints among them that are damaged, and that the log before them gives again.
        replica: The marker of a replica, unless it is damaged, which is one of the faults.
    """

    store: ObjectStore
    state: State = field(default_factory=State)
    first: int = 0
    transactions: list[int] = field(default_factory=list)
    start: int = 0
    entries: list[LogEntry] = field(default_factory=list)
    faults: list[tuple[str, FaultError]] = field(default_factory=list)
    torn: set[str] = field(default_factory=set)
    replica: Replica | None = None

    @property
    def reaches_end(self) -> bool:
        """Whether the state is that of the log's last transaction."""
        return self.state.revision >= max(self.transactions, default=1)

    def fold_again(self) -> None:
        """Compute the state again: a transaction that contradicts it has changed a part of it."""
        for state in self._folded():
            self.state = state

    def states(self) -> Iterator[State]:
        """Yield the state after each revision of a snapshot; each is the same object, changed."""
        return (state for state in self._folded() if state.header is not None)

    def _folded(self) -> Iterator[State]:
        state = read_checkpoint(self.store, self.first) if self.first else State()
        yield state
        for entry in self.entries:
            state.apply(entry, transaction_path(entry.transaction.revision))
            yield state


def faults_of_log(scan: LogScan) -> Iterator[tuple[str, FaultError]]:
    """Yield the faults of a scan, except those of damaged checkpoints that the log gives again."""
    return (noted for noted in scan.faults if noted[0] not in scan.torn)


def scan_log(store: ObjectStore) -> LogScan:
    """Read and fold the log, compare every checkpoint with it, and collect all faults."""
    marker, fault = marker_or_fault(store)
    scan = despite_pruning(lambda: _scan_log(store))
    scan.replica = marker
    scan.state = with_versions(scan.state, marker.revisions if marker is not None else None)
    if fault is not None:
        scan.faults.append((REPLICA, fault))
    return scan


def _scan_log(store: ObjectStore) -> LogScan:
    listing = list_log(store)
    previous = listing.start
    scan = LogScan(store, start=previous, transactions=listing.transactions)
    known = set(listing.checkpoints)
    folding = _Folding(scan, known, not previous or _start_at(scan, previous))
    if previous:
        _look_below(scan, listing, previous)
    for revision, entry in read_entries(store, log_after(store, listing, previous)):
        if stray := _stray(scan, revision, entry):
            _note(scan, transaction_path(revision), stray)
            scan.transactions = [each for each in scan.transactions if each != revision]
            continue
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


def _stray(scan: LogScan, revision: int, entry: LogEntry | FaultError) -> FaultError | None:
    """Return why a transaction is no evidence that its revision was committed; None if it is."""
    if isinstance(entry, MisnamedError):
        return entry
    if isinstance(entry, LogEntry) and not entry.starts_log:
        try:
            check_location(scan.state, entry.transaction, transaction_path(revision))
        except ForeignLocationError as foreign:
            return foreign
    return None


def _look_below(scan: LogScan, listing: Listing, start: int) -> None:
    """Note the faults of the two transactions of a pruned log that folding does not reach.

    Revision 1 is never pruned: if it were free, a writer that slept could create it. The transaction of the checkpoint
    that the log starts with may be missing; the checkpoint names it.
    """
    if listing.transactions[:1] != [1]:
        path = transaction_path(1)
        _note(scan, path, GapError(f"{path} is missing, which is never pruned.", object=path))
    known = set(listing.transactions)
    for revision in range(3, start - 1 if not scan.state.rebuilt_at else 0):
        # Pruning goes by ascending revision. One transaction alone may be of a writer that slept and died.
        following = transaction_path(revision + 1)
        if {revision - 1, revision} <= known and revision + 1 not in known and not is_there(scan.store, following):
            _note(scan, following, gap(revision + 1, start))
    for revision in {1, start}.intersection(listing.transactions):
        path = transaction_path(revision)
        try:
            entry = read_entry(scan.store, revision)
        except FAULTS as fault:
            if revision == start or not scan.state.rebuilt_at:  # revisions below a rebuild may have any fault
                _note(scan, path, fault)
        else:
            if revision == scan.first and entry.sha256 != scan.state.sha256:
                _note(scan, path, _not_named(path))


def _not_named(path: str) -> ForkError:
    return ForkError(f"{path} is not the transaction that its checkpoint names.", object=path)


def _start_at(scan: LogScan, revision: int) -> bool:
    """Continue a scan from a checkpoint; return False, with its fault noted, if it is unreadable."""
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
    """A scan in progress.

    Attributes:
        known: Revisions that have a checkpoint.
        usable: Whether the state is that of the revision before the current one.
        gap: Whether the revision before is missing, and noted.
    """

    scan: LogScan
    known: set[int]
    usable: bool
    gap: bool = False

    def miss(self, revision: int, later: int) -> None:
        """Note that a transaction is missing."""
        path = transaction_path(revision)
        if not self.gap and path not in {noted for noted, _ in self.scan.faults}:
            _note(self.scan, path, gap(revision, later))
        self.gap, self.usable = True, False

    def meet(self, revision: int, entry: LogEntry | FaultError) -> None:
        """Fold a transaction if the state is that of the revision before it."""
        self.gap = False
        path = transaction_path(revision)
        if isinstance(entry, FAULTS):
            _note(self.scan, path, entry)
            self.usable = False
        elif entry.starts_log and self._start_again(entry, path):
            self.usable = True
        elif self.usable or entry.starts_log:
            try:
                self.scan.state.apply(entry, path)
            except FAULTS as fault:
                _note(self.scan, path, fault)
                self.usable = False
                self.scan.fold_again()
            else:
                self.scan.entries.append(entry)

    def _start_again(self, entry: LogEntry, path: str) -> bool:
        """Continue from a rebuild's checkpoint: revisions below are no part of the log, so their faults are dropped."""
        revision = entry.transaction.revision
        there = revision in self.known or is_there(self.scan.store, checkpoint_path(revision))
        if not there or not _start_at(self.scan, revision):
            return False
        self.scan.faults.clear()
        self.scan.torn.clear()
        if self.scan.state.sha256 != entry.sha256:
            _note(self.scan, path, _not_named(path))
        return True

    def pass_over_strays(self, last: int) -> None:
        """Note checkpoints above the last transaction that are not of this log: they are no evidence of a revision."""
        for revision in [each for each in self.known if each > last]:
            try:
                read_own_checkpoint(self.scan.store, revision, self.scan.transactions)
            except (ForeignLocationError, ForkError, MisnamedError) as fault:
                _note(self.scan, checkpoint_path(revision), fault)
                self.known.discard(revision)
            except FAULTS:
                pass  # its name is evidence: a gap is noted before it

    def meet_checkpoint(self, revision: int) -> None:
        """Compare a revision's checkpoint with the state, or continue from it if the state is lost."""
        if revision not in self.known or revision == self.scan.first:
            return
        if not self.usable:
            self.usable = _start_at(self.scan, revision)
            return
        path, checkpoint = checkpoint_path(revision), None
        try:
            checkpoint = read_checkpoint(self.scan.store, revision, statistics=True)
            if checkpoint.location_id != self.scan.state.location_id:
                raise foreign_location(path, checkpoint.location_id, self.scan.state.location_id)
            if not same_states(checkpoint, self.scan.state):
                raise DocumentError(f"{path} is not what the log gives for revision {revision}.", object=path)
        except ObjectNotFoundError:
            pass  # pruned since it was listed
        except FAULTS as fault:
            _note(self.scan, path, fault)
            if checkpoint is None and isinstance(fault, DamageError):
                self.scan.torn.add(path)


def _note(scan: LogScan, path: str, fault: FaultError) -> None:
    scan.faults.append((fault.attributes.get("object", path), fault))
