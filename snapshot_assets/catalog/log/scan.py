"""Reads a whole log, and collects every fault instead of stopping at the first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from snapshot_assets.catalog.log.checkpoints import read_checkpoint, read_own_checkpoint, same_bounds, same_states
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
from snapshot_assets.format import actions as act
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
        folded: Revisions of the last unbroken run of folded entries, which are read again where they are needed: a
            million files take gigabytes as actions.
        purged: Paths of files that these entries removed from the state, a text of lines for each action.
        faults: Path and error of every object that is unreadable or does not follow.
        torn: Paths of the checkpoints among them that are damaged, and that the log before them gives again.
        replica: The marker of a replica, unless it is damaged, which is one of the faults.
    """

    store: ObjectStore
    state: State = field(default_factory=State)
    first: int = 0
    transactions: list[int] = field(default_factory=list)
    start: int = 0
    folded: list[int] = field(default_factory=list)
    purged: list[str] = field(default_factory=list)
    faults: list[tuple[str, FaultError]] = field(default_factory=list)
    torn: set[str] = field(default_factory=set)
    replica: Replica | None = None
    _checkpoints: set[int] = field(default_factory=set)
    _usable: bool = True
    """Whether the state is that of the revision before the current one."""
    _gap: bool = False
    """Whether the revision before is missing, and noted."""

    @property
    def reaches_end(self) -> bool:
        """Whether the state is that of the log's last transaction."""
        return self.state.revision >= max(self.transactions, default=1)

    @property
    def entries(self) -> Iterator[LogEntry]:
        """The folded entries.

        Raises:
            ObjectNotFoundError: One was pruned or damaged since it was read.
        """
        for revision in self.folded:
            try:
                entry = read_entry(self.store, revision)
            except FAULTS as fault:
                raise ObjectNotFoundError(f"It was readable before: {fault}", **fault.attributes) from fault
            yield entry

    def states(self) -> Iterator[State]:
        """Yield the state after each revision of a snapshot; each is the same object, changed. See `entries`."""
        return (state for state in self._folded() if state.header is not None)

    def _folded(self) -> Iterator[State]:
        state = read_checkpoint(self.store, self.first) if self.first else State()
        yield state
        for entry in self.entries:
            state.apply(entry, transaction_path(entry.transaction.revision))
            yield state

    def read(self) -> None:
        """Read and fold the log, and compare every checkpoint with it."""
        listing = list_log(self.store)
        previous = self.start = listing.start
        self.transactions, self._checkpoints = listing.transactions, set(listing.checkpoints)
        if previous:
            self._usable = self._start_at(previous)
            self._look_below(listing)
        for revision, entry in read_entries(self.store, log_after(self.store, listing, previous)):
            if stray := self._stray(revision, entry):
                self._note(transaction_path(revision), stray)
                self.transactions = [each for each in self.transactions if each != revision]
                continue
            self._pass_over(range(previous + 1, revision), revision)
            self._meet(revision, entry)
            del entry  # of tens of megabytes
            self._meet_checkpoint(revision)
            previous = revision
        # Checkpoints above the last transaction that are not of this log are no evidence of a revision.
        for revision in [each for each in self._checkpoints if each > previous]:
            try:
                read_own_checkpoint(self.store, revision, self.transactions)
            except (ForeignLocationError, ForkError, MisnamedError) as fault:
                self._note(checkpoint_path(revision), fault)
                self._checkpoints.discard(revision)
            except FAULTS:
                pass  # its name is evidence: a gap is noted before it
        last = max(self._checkpoints, default=0)
        self._pass_over(range(previous + 1, last + 1), last)

    def _stray(self, revision: int, entry: LogEntry | FaultError) -> FaultError | None:
        """Return why a transaction is no evidence that its revision was committed; None if it is."""
        if isinstance(entry, MisnamedError):
            return entry
        if isinstance(entry, LogEntry) and not entry.starts_log:
            try:
                check_location(self.state, entry.transaction, transaction_path(revision))
            except ForeignLocationError as foreign:
                return foreign
        return None

    def _look_below(self, listing: Listing) -> None:
        """Note the faults of the two transactions of a pruned log that folding does not reach.

        Revision 1 is never pruned: if it were free, a writer that slept could create it. The transaction of the
        checkpoint that the log starts with may be missing; the checkpoint names it.
        """
        start, known = listing.start, set(listing.transactions)
        if 1 not in known:
            path = transaction_path(1)
            self._note(path, GapError(f"{path} is missing, which is never pruned.", object=path))
        end = start - 1 if not self.state.rebuilt_at else 0
        for revision in (each for each in listing.transactions if 3 <= each < end):
            # Pruning goes by ascending revision. One transaction alone may be of a writer that slept and died.
            following = transaction_path(revision + 1)
            if revision - 1 in known and revision + 1 not in known and not is_there(self.store, following):
                self._note(following, gap(revision + 1, start))
        for revision in known & {1, start}:
            path = transaction_path(revision)
            try:
                entry = read_entry(self.store, revision)
            except FAULTS as fault:
                if revision == start or not self.state.rebuilt_at:  # revisions below a rebuild may have any fault
                    self._note(path, fault)
            else:
                if revision == self.first and entry.sha256 != self.state.sha256:
                    self._note(path, _not_named(path))

    def _start_at(self, revision: int) -> bool:
        """Continue from a checkpoint; return False, with its fault noted, if it is unreadable."""
        path = checkpoint_path(revision)
        try:
            self.state = read_own_checkpoint(self.store, revision, self.transactions)
        except FAULTS as fault:
            self._note(path, fault)
            return False
        try:
            read_checkpoint(self.store, revision, whole=True)
        except DamageError as fault:
            self._note(path, fault)
        self.first, self.folded, self.purged = revision, [], []
        return True

    def _pass_over(self, missing: range, later: int) -> None:
        """Note that the first of some transactions is missing, which lie before one that exists.

        Of the others only those with a checkpoint matter: whoever may write can name any revision.
        """
        checkpoints = (each for each in self._checkpoints if each in missing)
        for revision in sorted({*missing[:1], *checkpoints, *missing[-1:]}):
            path = transaction_path(revision)
            if not self._gap and path not in {noted for noted, _ in self.faults}:
                self._note(path, gap(revision, later))
            self._gap, self._usable = True, False
            self._meet_checkpoint(revision)

    def _meet(self, revision: int, entry: LogEntry | FaultError) -> None:
        """Fold a transaction if the state is that of the revision before it."""
        self._gap = False
        path = transaction_path(revision)
        if isinstance(entry, FAULTS):
            self._note(path, entry)
            self._usable = False
        elif entry.starts_log and self._start_again(entry, path):
            self._usable = True
        elif self._usable or entry.starts_log:
            try:
                self.state.apply(entry, path)
            except FAULTS as fault:
                self._note(path, fault)
                self._usable = False
                for state in self._folded():  # again: a transaction that contradicts it has changed a part of it
                    self.state = state
            else:
                self.folded.append(revision)
                actions = entry.transaction.actions
                self.purged += ["\n".join(each.paths) for each in actions if isinstance(each, act.Purged)]

    def _start_again(self, entry: LogEntry, path: str) -> bool:
        """Continue from a rebuild's checkpoint: revisions below are no part of the log, so their faults are dropped."""
        revision = entry.transaction.revision
        there = revision in self._checkpoints or is_there(self.store, checkpoint_path(revision))
        if not there or not self._start_at(revision):
            return False
        self.faults.clear()
        self.torn.clear()
        if self.state.sha256 != entry.sha256:
            self._note(path, _not_named(path))
        return True

    def _meet_checkpoint(self, revision: int) -> None:
        """Compare a revision's checkpoint with the state, or continue from it if the state is lost."""
        if revision not in self._checkpoints or revision == self.first:
            return
        if not self._usable:
            self._usable = self._start_at(revision)
            return
        path, checkpoint, files = checkpoint_path(revision), None, self.state.files
        with files.packed():  # beside the checkpoint's
            try:
                checkpoint = read_checkpoint(self.store, revision, whole=True)
                if checkpoint.location_id != self.state.location_id:
                    raise foreign_location(path, checkpoint.location_id, self.state.location_id)
                is_same = same_states(checkpoint, self.state, statistics=False)
                bounds = checkpoint.files.take_bounds()
                if not is_same or not same_bounds(bounds, files.merged().bounds):
                    raise DocumentError(f"{path} is not what the log gives for revision {revision}.", object=path)
                files.replace_bounds(bounds)  # by the same, in one part
            except ObjectNotFoundError:
                pass  # pruned since it was listed
            except FAULTS as fault:
                self._note(path, fault)
                if checkpoint is None and isinstance(fault, DamageError):
                    self.torn.add(path)

    def _note(self, path: str, fault: FaultError) -> None:
        self.faults.append((fault.attributes.get("object", path), fault))


def _not_named(path: str) -> ForkError:
    return ForkError(f"{path} is not the transaction that its checkpoint names.", object=path)


def faults_of_log(scan: LogScan) -> Iterator[tuple[str, FaultError]]:
    """Yield the faults of a scan, except those of damaged checkpoints that the log gives again."""
    return (noted for noted in scan.faults if noted[0] not in scan.torn)


def scan_log(store: ObjectStore) -> LogScan:
    """Read and fold the log, compare every checkpoint with it, and collect all faults."""

    def read() -> LogScan:
        scan = LogScan(store)
        scan.read()
        return scan

    marker, fault = marker_or_fault(store)
    scan = despite_pruning(read)
    scan.replica = marker
    scan.state = with_versions(scan.state, marker.revisions if marker is not None else None)
    if fault is not None:
        scan.faults.append((REPLICA, fault))
    return scan
