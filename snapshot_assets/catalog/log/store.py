"""The log on the object store: lists its objects, reads its chain, and commits the next revision.

Absence from one listing proves nothing: while others commit, it may show a revision and not the one before it. So an
object that a listing passes over is requested by its name before it counts as missing.

A commit is the conditional create of the next revision's object; exactly one writer wins it (InfluxDB IOx,
"Linearity"). Nothing here interprets actions.
"""

from __future__ import annotations

import random
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count, takewhile

from snapshot_assets.catalog.state.fold import LogEntry, misnamed
from snapshot_assets.errors import (
    DamageError,
    MisnamedError,
    NotAFileError,
    ObjectExistsError,
    ObjectNotFoundError,
    OutcomeUnknownError,
    StorageError,
    StoreUnavailableError,
    SupersededError,
)
from snapshot_assets.format import actions as act
from snapshot_assets.format import documents
from snapshot_assets.format.documents import check_writable
from snapshot_assets.format.layout import (
    TRANSACTIONS,
    checkpoint_path,
    checkpointed_revision,
    log_revision,
    revision_of,
    transaction_path,
)
from snapshot_assets.format.transactions import decode_transaction, encode_transaction, trailing_sha256
from snapshot_assets.format.units import counted
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.bulk import Listed

REACH = 1_000_000
"""Most revisions between two that objects of one log name."""
_SETTLE_TRIES = 5
_SETTLE_WAIT = 0.2


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
        return {each for each in there if each == 1 or last < each <= self.start}

    def through(self, revision: int | None) -> Listing:
        """Return the objects up to a revision; all of them for None."""
        if revision is None:
            return self
        first, second = (items[: bisect_right(items, revision)] for items in (self.transactions, self.checkpoints))
        return Listing(first, second)

    def after(self, revision: int) -> list[int]:
        """Return the revisions of the transactions after one."""
        return self.transactions[bisect_right(self.transactions, revision) :]


def reachable_end(known: int, named: Iterable[int], reach: int = REACH) -> int:
    """Return the highest revision that a log may have, above a known one, of those that its objects name.

    Whoever may write can name any revision: one so far above all lower ones that no log gets there is no evidence. If
    none is known, the lowest one counts as known, but for revision 1, which is never pruned.
    """
    end = known
    for revision in sorted(named):
        if revision > end + reach and end > 1:
            break
        end = max(end, revision)
    return end


def has_log(store: ObjectStore) -> bool:
    """Return whether there is a log. Probes, and other programs' objects in its folder, are none."""
    return any(log_revision(info.path) for info in store.list(TRANSACTIONS))


def list_log(store: ObjectStore) -> Listing:
    """Return the objects of a log; if a listing shows a gap, those of two listings together."""
    objects = Listed(store, TRANSACTIONS)
    found = _with_beginning(objects)
    start, newer = found.start, found.after(found.start)
    lacks_one = len(newer) < (newer[-1] - start if newer else 0)
    has_one_below = not found.left() <= {1, start}  # the checkpoint that the log starts with
    if lacks_one or has_one_below:
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
    """Return the revisions of the transactions after one, through another, with those that the listing passed over.

    In each gap and after the last revision, names are requested in their order, up to the first that is missing.
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
    try:
        store.head(path)
    except NotAFileError:  # a log must not seem to end before it
        raise
    except ObjectNotFoundError:
        return False
    return True


def read_entry(store: ObjectStore, revision: int) -> LogEntry:
    """Return one revision's entry; see `decode_transaction` for other errors.

    Raises:
        ObjectNotFoundError: The transaction is missing.
        MisnamedError: It holds another revision, so this one counts as missing.
    """
    path = transaction_path(revision)
    data = store.get(path, limit=documents.MAX_TRANSACTION_BYTES)
    transaction = decode_transaction(data, path)
    if transaction.revision != revision:
        raise misnamed(path, transaction.revision, revision)
    return LogEntry(transaction, trailing_sha256(data))


def append(store: ObjectStore, transaction: act.Transaction, *, followed: bool = False) -> tuple[bool, LogEntry]:
    """Try to commit a complete transaction at its revision; return whether it won that, and its entry.

    `followed` means that the writer opened the location, or read transactions of others, since it last committed.

    Raises:
        LimitExceededError: It is larger than readers accept; nothing was written.
        OutcomeUnknownError: The store does not answer whether it was created, or whether it follows from others.
        SupersededError: The revision before it was deleted or replaced; this one was deleted again.
    """
    path = transaction_path(transaction.revision)
    data = encode_transaction(transaction)
    advice = (
        f"It has {counted(len(transaction.actions), 'action')}; let one commit change fewer files or chunks. Instead of"
        " a rollback, restore that revision, or export it into another location."
    )
    check_writable(len(data), documents.MAX_TRANSACTION_BYTES, path, advice)
    entry = LogEntry(transaction, trailing_sha256(data))
    won = _create(store, path, data, transaction.uuid)
    if won and transaction.revision > 1 and not entry.starts_log:
        try:
            _check_follows(store, transaction, followed)
        except (StoreUnavailableError, DamageError) as cause:  # it is committed, or not
            raise _unknown(store, path) from cause
    return won, entry


def _create(store: ObjectStore, path: str, data: bytes, uuid: str) -> bool:
    """Create an object until the outcome is known, reading it back if a reply was lost; return whether it was won."""
    for attempt in range(_SETTLE_TRIES):
        try:
            store.create(path, data)
        except (ObjectExistsError, StoreUnavailableError) as cause:
            _end_if_exhausted(store, path, cause)
            won = _read_back(store, path, uuid, cause)
        else:
            return True
        if won is not None:
            return won
        time.sleep(_SETTLE_WAIT * 2**attempt * random.random())
    raise OutcomeUnknownError(
        f"{path} in {store.uri} could not be created in {_SETTLE_TRIES} tries, and it does not exist; "
        "run again when the store answers.",
        object=path,
    )


def _read_back(store: ObjectStore, path: str, uuid: str, cause: StorageError) -> bool | None:
    """Return whether this writer won the object at `path`; None if it is missing."""
    for attempt in range(_SETTLE_TRIES):
        try:
            data = store.get(path, limit=documents.MAX_TRANSACTION_BYTES)
        except ObjectNotFoundError:
            return None
        except StoreUnavailableError as error:
            _end_if_exhausted(store, path, error)
            time.sleep(_SETTLE_WAIT * 2**attempt * random.random())
        else:
            return decode_transaction(data, path).uuid == uuid
    raise _unknown(store, path) from cause


def _end_if_exhausted(store: ObjectStore, path: str, error: StorageError) -> None:
    """Raise an error if the store has repeated a request for as long as its options allow."""
    if error.attributes.get("exhausted"):
        raise _unknown(store, path) from error


def _unknown(store: ObjectStore, path: str) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"Whether {path} in {store.uri} was committed is unknown: the store does not answer. Nothing was deleted; "
        "run again when it does.",
        object=path,
    )


def _check_follows(store: ObjectStore, transaction: act.Transaction, followed: bool) -> None:
    """Refuse a won revision that is no part of the log: this writer slept while others pruned or deleted the log.

    Pruning deletes the oldest first, so a free revision below the head has no predecessor. Only revision 1 is never
    pruned. A predecessor that another writer created may itself have none: that writer slept too, and did not take it
    back yet.
    """
    before = transaction.revision - 1
    suspect = followed or before == 1
    try:
        has_predecessor = read_entry(store, before).transaction.uuid == transaction.previous_uuid
    except (ObjectNotFoundError, MisnamedError):
        has_predecessor, suspect = is_there(store, checkpoint_path(before)), True  # that may have been written late
    if not has_predecessor or (suspect and _is_passed(store, transaction)):
        _take_back(store, transaction)


def _take_back(store: ObjectStore, transaction: act.Transaction) -> None:
    """Delete a transaction that does not count, and raise an error; what another writer has under its name stays."""
    path, again = transaction_path(transaction.revision), "another one is in its place"
    try:
        if read_entry(store, transaction.revision).transaction.uuid == transaction.uuid:
            store.delete(path)
            again = "it was taken back"
    except ObjectNotFoundError:
        raise _unclear(store, path, "pruned or deleted") from None
    raise SupersededError(
        f"Revision {transaction.revision} of {store.uri} was committed long after others had moved on, and pruned or "
        f"deleted the log before it; {again}. Run again.",
        revision=transaction.revision,
    )


def _is_passed(store: ObjectStore, transaction: act.Transaction) -> bool:
    """Return whether later revisions do not follow from a transaction, or nothing else of the log is there.

    Raises:
        OutcomeUnknownError: The log was rebuilt above it, with or without it.
    """
    path, revision, uuid, missed = transaction_path(transaction.revision), transaction.revision, transaction.uuid, 0
    while True:
        try:
            entry = read_entry(store, revision + 1)
        except (ObjectNotFoundError, MisnamedError):
            log = [info.path for info in store.list(TRANSACTIONS)]
            later = [each for each in map(log_revision, log) if each > revision]
            if not later:
                return not any(each == transaction_path(1) or checkpointed_revision(each) for each in log)
            if missed == revision:
                if _may_start(store, min(later)):
                    raise _unclear(store, path, f"rebuilt at revision {min(later)}") from None
                return True
            missed = revision  # another writer may have followed between the read and the listing
        else:
            if entry.starts_log:
                raise _unclear(store, path, f"rebuilt at revision {revision + 1}")
            if entry.transaction.previous_uuid != uuid:
                return True
            revision, uuid = revision + 1, entry.transaction.uuid


def _may_start(store: ObjectStore, revision: int) -> bool:
    """Return whether a rebuilt log starts with a revision, or may start with it."""
    try:
        return read_entry(store, revision).starts_log
    except (ObjectNotFoundError, MisnamedError):
        return is_there(store, checkpoint_path(revision))  # which a rebuild writes first


def _unclear(store: ObjectStore, path: str, what: str) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"Whether {path} in {store.uri} counts is unknown: the log was {what} at the same time. Nothing was deleted;"
        " look whether its change is there before you run again.",
        object=path,
    )
