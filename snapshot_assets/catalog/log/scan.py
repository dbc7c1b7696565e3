"""Reads a whole log, and collects every fault instead of stopping at the first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from snapshot_assets.catalog.log.checkpoints import is_damaged, read_checkpoint, same_states
from snapshot_assets.catalog.log.listing import Listing, is_there, list_log, log_after
from snapshot_assets.catalog.log.own_checkpoints import read_own_checkpoint
from snapshot_assets.catalog.log.replay import FAULTS, FaultError, despite_pruning, gap, read_entries
from snapshot_assets.catalog.log.store import read_entry
from snapshot_assets.catalog.state.chain import LogEntry, check_location, foreign_location
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.errors import (
    DamageError,
    DocumentError,
    ForeignLocationError,
    ForkError,
    GapError,
    MisnamedError,
    ObjectNotFoundError,
)
from snapshot_assets.format.layout import checkpoint_path, checkpointed_revision, transaction_path
from snapshot_assets.storage.base import ObjectStore


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
        revision = checkpointed_revision(path) or 0
        given = scan.start < revision <= scan.state.revision and not isinstance(fault, GapError)
        if not (given and is_damaged(scan.store, revision)):
            yield path, fault


def scan_log(store: ObjectStore, *, since: int | None = None, through: int | None = None) -> LogScan:
    """Read and fold the log, collecting faults instead of stopping at the first; every checkpoint is compared with it.

    Args:
        store: The location.
        since: The checkpoint to begin with; None for the log's own beginning.
        through: Last revision to read; None for the head.
    """
    return despite_pruning(lambda: _scan_log(store, since, through))


def _scan_log(store: ObjectStore, since: int | None, through: int | None) -> LogScan:
    listing = list_log(store).through(through)
    previous = listing.start if since is None else since
    scan = LogScan(store, start=previous, transactions=listing.transactions, foreign=listing.foreign)
    known = set(listing.checkpoints)
    folding = _Folding(scan, known, not previous or _begin_at(scan, previous))
    if previous:
        _look_below(scan, listing, previous)
    for revision, entry in read_entries(store, log_after(store, listing, previous, through)):
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
        path = transaction_path(revision)
        if not self.gap and path not in {noted for noted, _ in self.scan.faults}:
            _note(self.scan, path, gap(revision, later))
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
            except (ForeignLocationError, ForkError, MisnamedError) as fault:
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
            path, checkpoint = checkpoint_path(revision), read_checkpoint(self.scan.store, revision, statistics=True)
            if checkpoint.location_id != self.scan.state.location_id:
                raise foreign_location(path, checkpoint.location_id, self.scan.state.location_id)
            if not same_states(checkpoint, self.scan.state):
                raise DocumentError(f"{path} is not what the log gives for revision {revision}.", object=path)
        except ObjectNotFoundError:
            pass  # pruned since it was listed
        except FAULTS as fault:
            _note(self.scan, checkpoint_path(revision), fault)


def _note(scan: LogScan, path: str, fault: FaultError) -> None:
    scan.faults.append((fault.attributes.get("object", path), fault))
