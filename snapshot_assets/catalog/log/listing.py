"""Lists the objects of a log.

Absence from one listing proves nothing: while others commit, it may show a revision and not the one before it. So an
object that a listing passes over is requested by its name before it counts as missing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, takewhile

from snapshot_assets.errors import DamageError, ObjectNotFoundError
from snapshot_assets.format.layout import TRANSACTIONS, checkpointed_revision, revision_of, transaction_path
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.listed import Listed


@dataclass
class Listing:
    """The objects of a log.

    Attributes:
        transactions: Revisions that have a transaction, ascending.
        checkpoints: Revisions that have a checkpoint, ascending.
        strays: Why checkpoints that were read are not of this log, or not of this location.
    """

    transactions: list[int] = field(default_factory=list)
    checkpoints: list[int] = field(default_factory=list)
    strays: list[DamageError] = field(default_factory=list)

    @property
    def start(self) -> int:
        """The checkpoint that a pruned log starts with; 0 if nothing was pruned.

        Pruning deletes the oldest revisions first, except revision 1. Revision 2 alone proves nothing: a writer that
        slept while the log was pruned may have died before it deleted what it created there.
        """
        if not self.checkpoints:
            return 0
        first = range(1, min(3, self.checkpoints[0]) + 1)
        return 0 if self.transactions[: len(first)] == [*first] else self.checkpoints[0]

    def left(self) -> set[int]:
        """Return the revisions up to the log's start whose transactions an interrupted pruning left."""
        there, last = set(self.transactions), self.start
        while last in there:
            last -= 1
        return there & {1, *range(last + 1, self.start + 1)}

    @property
    def has_gap(self) -> bool:
        """Whether a transaction of the log is missing, or one exists below the checkpoint that it starts with."""
        newer, start = self.after(self.start), self.start
        return len(newer) < (newer[-1] - start if newer else 0) or not self.left() <= {1, start}

    def through(self, revision: int | None) -> Listing:
        """Return the objects up to a revision; all of them for None."""
        if revision is None:
            return self
        first, second = (items[: bisect_right(items, revision)] for items in (self.transactions, self.checkpoints))
        return Listing(first, second)

    def after(self, revision: int) -> list[int]:
        """Return the revisions of the transactions after one."""
        return self.transactions[bisect_right(self.transactions, revision) :]


def list_log(store: ObjectStore) -> Listing:
    """Return the objects of a log; if a listing shows a gap, those of two listings together."""
    objects = Listed(store, TRANSACTIONS)
    found = _with_beginning(objects)
    if found.has_gap:
        objects.missing(info.path for info in store.list(TRANSACTIONS))  # adds them
        found = _with_beginning(objects)
    return found


def _with_beginning(objects: Listed) -> Listing:
    """Return a listing after checking that a log which looks pruned lacks its first revisions."""
    if listing_of(objects).start:
        objects.missing(map(transaction_path, (1, 2, 3)))  # adds those that exist
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
    return found


def log_after(store: ObjectStore, listing: Listing, revision: int, through: int | None = None) -> list[int]:
    """Return the revisions of the transactions after one, with those that the listing passed over.

    In each gap and after the last revision, names are requested in their order, up to the first that is missing.

    Args:
        store: The location.
        listing: A listing of the log.
        revision: The revision before the first.
        through: The last revision to request; None for the head.
    """
    found, last = list[int](), revision
    for shown in listing.through(through).after(revision):
        found += [*_unlisted(store, range(last + 1, shown)), shown]
        last = shown
    return [*found, *_unlisted(store, count(last + 1) if through is None else range(last + 1, through + 1))]


def _unlisted(store: ObjectStore, revisions: Iterable[int]) -> Iterator[int]:
    return takewhile(lambda revision: is_there(store, transaction_path(revision)), revisions)


def is_there(store: ObjectStore, path: str) -> bool:
    """Return whether an object exists."""
    with suppress(ObjectNotFoundError):
        store.head(path)
        return True
    return False
