"""What lies in a log's folder, by its names.

Absence in one listing proves nothing: while others commit, one may show a revision and not the one before it. So what a
listing passes over is asked for by its name before it counts as missing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count, takewhile

from snapshot_assets.errors import DamageError, ObjectNotFoundError
from snapshot_assets.format.layout import TRANSACTIONS, checkpointed_revision, revision_of, transaction_path
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.listed import Listed


@dataclass
class Listing:
    """What lies in the log's folder.

    Attributes:
        transactions: Revisions that have a transaction, ascending.
        checkpoints: Revisions that have a checkpoint, ascending.
        foreign: Paths of anything else.
        strays: Why checkpoints that were read are not of this log, or not of this location.
    """

    transactions: list[int] = field(default_factory=list)
    checkpoints: list[int] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    strays: list[DamageError] = field(default_factory=list)

    @property
    def start(self) -> int:
        """The checkpoint that the log begins with, because the revisions before were pruned; 0 where it is whole.

        Pruning deletes the oldest first, but for revision 1. Revision 2 alone proves nothing: a writer that slept while
        the log was pruned may have died before it took back what it created there.
        """
        if not self.checkpoints:
            return 0
        first = range(1, min(3, self.checkpoints[0]) + 1)
        return 0 if self.transactions[: len(first)] == [*first] else self.checkpoints[0]

    def left(self) -> set[int]:
        """Return the revisions up to the log's start whose transactions a pruning that was cut off left there."""
        there, last = set(self.transactions), self.start
        while last in there:
            last -= 1
        return there & {1, *range(last + 1, self.start + 1)}

    @property
    def has_gap(self) -> bool:
        """Whether a transaction of the log is not there, or one is there below the checkpoint that it begins with."""
        newer, start = self.after(self.start), self.start
        return len(newer) < (newer[-1] - start if newer else 0) or not self.left() <= {1, start}

    @property
    def has_new_gap(self) -> bool:
        """Whether a transaction after the newest checkpoint is not there; opening the head needs no older one."""
        start = max(self.checkpoints, default=0)
        newer = self.after(start)
        return len(newer) < (newer[-1] - start if newer else 0)

    def through(self, revision: int | None) -> Listing:
        """Return what is not newer than a revision."""
        if revision is None:
            return self
        first, second = (items[: bisect_right(items, revision)] for items in (self.transactions, self.checkpoints))
        return Listing(first, second, self.foreign)

    def after(self, revision: int) -> list[int]:
        """Return the revisions of the transactions after one."""
        return self.transactions[bisect_right(self.transactions, revision) :]


def list_log(store: ObjectStore, *, head: bool = False) -> Listing:
    """Return what lies in the log's folder; where that shows a gap, what two listings show together.

    While others commit, a listing may show a revision and not the one before it: see `log_after`.

    Args:
        store: The location.
        head: Only the newest state is wanted: gaps below the newest checkpoint, as a rebuild leaves them, are none.
    """
    objects = Listed(store, TRANSACTIONS)
    found = _with_beginning(objects)
    if found.has_new_gap if head else found.has_gap:
        objects.missing(info.path for info in store.list(TRANSACTIONS))  # then it has these too
        found = _with_beginning(objects)
    return found


def _with_beginning(objects: Listed) -> Listing:
    """Return a listing after making sure that a log which looks pruned lacks its beginning."""
    if listing_of(objects).start:
        objects.missing(map(transaction_path, (1, 2, 3)))  # then it has those that it passed over
    return listing_of(objects)


def listing_of(paths: Iterable[str]) -> Listing:
    """Return the objects of a log by their paths."""
    found = Listing()
    for path in sorted(paths):
        revision, checkpoint = revision_of(path), checkpointed_revision(path)
        if revision is not None:
            found.transactions.append(revision)
        elif checkpoint is not None:
            found.checkpoints.append(checkpoint)
        else:
            found.foreign.append(path)
    return found


def log_after(store: ObjectStore, listing: Listing, revision: int, through: int | None = None) -> list[int]:
    """Return the revisions of the transactions after one, with those that the listing passed over.

    In each gap, and behind the last, names are looked for in their order, up to the first that is missing.

    Args:
        store: The location.
        listing: What a listing showed.
        revision: The revision before the first.
        through: The last revision to look for; None for the head.
    """
    found, last = list[int](), revision
    for shown in listing.through(through).after(revision):
        found += [*_unlisted(store, range(last + 1, shown)), shown]
        last = shown
    return [*found, *_unlisted(store, count(last + 1) if through is None else range(last + 1, through + 1))]


def _unlisted(store: ObjectStore, revisions: Iterable[int]) -> Iterator[int]:
    return takewhile(lambda revision: is_there(store, transaction_path(revision)), revisions)


def is_there(store: ObjectStore, path: str) -> bool:
    """Tell whether an object is there."""
    with suppress(ObjectNotFoundError):
        store.head(path)
        return True
    return False


@dataclass(frozen=True)
class CheckpointSize:
    """A checkpoint of a log."""

    revision: int
    bytes: int
    modified: datetime


@dataclass(frozen=True)
class LogSize:
    """The objects of a log.

    Attributes:
        bytes: Of the transactions.
        oldest: The revision from which on all transactions are there; 0 where there is none.
    """

    transactions: int
    bytes: int
    oldest: int
    checkpoints: tuple[CheckpointSize, ...]


def log_size(store: ObjectStore) -> LogSize:
    """Return how many objects a log has, and how large they are."""
    checkpoints, transactions = [], []
    objects = Listed(store, TRANSACTIONS)
    oldest = max((revision_of(path) or 0 for path in objects), default=0)
    while oldest > 1 and transaction_path(oldest - 1) in objects:
        oldest -= 1
    for info in objects.values():
        checkpoint, revision = checkpointed_revision(info.path), revision_of(info.path)
        if checkpoint is not None:
            checkpoints.append(CheckpointSize(checkpoint, info.size, info.modified))
        elif revision is not None:
            transactions.append(info.size)
    return LogSize(len(transactions), sum(transactions), oldest, tuple(checkpoints))
