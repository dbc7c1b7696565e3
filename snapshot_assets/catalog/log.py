"""The log on the object store: reading its chain, and winning the next revision.

A commit is the conditional create of the next revision's object; exactly one writer wins it (seed, section 1.3
"Linearity"). Nothing here knows what actions mean.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto

from snapshot_assets.catalog.state import LogEntry, State
from snapshot_assets.errors import (
    DamageError,
    GapError,
    LocationDeletedError,
    ObjectExistsError,
    ObjectNotFoundError,
    OutcomeUnknownError,
    StorageError,
    StoreUnavailableError,
    SupersededError,
    UnsupportedVersionError,
)
from snapshot_assets.format import actions as act
from snapshot_assets.format.documents import MAX_TRANSACTION_BYTES
from snapshot_assets.format.layout import TRANSACTIONS, revision_of, transaction_path
from snapshot_assets.format.transactions import decode_transaction, encode_transaction, trailing_sha256
from snapshot_assets.storage.base import ObjectStore

_READERS = 16
_SETTLE_TRIES = 5
_SETTLE_WAIT = 0.2


class Won(Enum):
    """How the race for a revision ended."""

    YES = auto()
    NO = auto()


@dataclass
class LogScan:
    """What reading a whole log gave: the folded state up to the first fault, and every fault on the way.

    Attributes:
        state: State at the last revision before the first fault.
        entries: The entries folded into it.
        faults: Path and error of every object that could not be read, decoded or linked.
    """

    state: State = field(default_factory=State)
    entries: list[LogEntry] = field(default_factory=list)
    faults: list[tuple[str, DamageError | UnsupportedVersionError]] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    head: LogEntry | None = None


def read_entry(store: ObjectStore, revision: int) -> LogEntry:
    """Return one revision's entry.

    Raises:
        ObjectNotFoundError: There is none.
        TornObjectError: Its bytes do not match its own checksum; and other errors of `decode_transaction`.
    """
    path = transaction_path(revision)
    data = store.get(path, limit=MAX_TRANSACTION_BYTES)
    return LogEntry(decode_transaction(data, path), trailing_sha256(data))


def scan_log(store: ObjectStore, *, through: int | None = None) -> LogScan:
    """Read and fold the log, collecting faults instead of stopping at the first.

    Args:
        store: The location.
        through: Last revision to read; None for the head.
    """
    scan = LogScan()
    revisions = []
    for info in store.list(TRANSACTIONS):
        revision = revision_of(info.path)
        if revision is None:
            scan.foreign.append(info.path)
        elif through is None or revision <= through:
            revisions.append(revision)
    for revision, entry in _read_many(store, revisions):
        try:
            _fold(scan, revision, entry)
        except (DamageError, UnsupportedVersionError) as fault:
            scan.faults.append((fault.attributes.get("object", transaction_path(revision)), fault))
    return scan


def _fold(scan: LogScan, revision: int, entry: LogEntry | DamageError | UnsupportedVersionError) -> None:
    if isinstance(entry, DamageError | UnsupportedVersionError):
        raise entry
    scan.head = entry
    expected = scan.state.revision + 1
    if revision != expected:
        if not scan.faults:
            path = transaction_path(expected)
            raise GapError(f"{path} is missing; revision {revision} exists.", object=path)
        return
    scan.state.apply(entry, transaction_path(revision))
    scan.entries.append(entry)


def _read_many(
    store: ObjectStore, revisions: list[int]
) -> Iterator[tuple[int, LogEntry | DamageError | UnsupportedVersionError]]:
    def read(revision: int) -> LogEntry | DamageError | UnsupportedVersionError:
        try:
            return read_entry(store, revision)
        except (DamageError, UnsupportedVersionError) as fault:
            return fault

    if len(revisions) < _READERS:
        yield from ((revision, read(revision)) for revision in revisions)
        return
    with ThreadPoolExecutor(_READERS) as pool:
        yield from zip(revisions, pool.map(read, revisions), strict=True)


def read_state(store: ObjectStore, *, through: int | None = None) -> State:
    """Return the state at the head, or at an older revision.

    Raises:
        DamageError: The log has a fault; the first one.
        LocationDeletedError: A deletion of the snapshot was begun and not finished.
    """
    scan = scan_log(store, through=through)
    if scan.faults:
        _refuse_half_deleted(store, scan)
        raise scan.faults[0][1]
    return scan.state


def _refuse_half_deleted(store: ObjectStore, scan: LogScan) -> None:
    """A deletion that was cut off left only the log's end, whose last word is `deleted`."""
    if scan.head and any(isinstance(action, act.Deleted) for action in scan.head.transaction.actions):
        raise LocationDeletedError(
            f"The snapshot at {store.uri} was deleted, but some of its objects remain. Delete it once more to finish.",
            uri=store.uri,
        )


def append(store: ObjectStore, transaction: act.Transaction) -> tuple[Won, LogEntry]:
    """Try to commit a transaction at its revision.

    Args:
        store: The location.
        transaction: The complete transaction.

    Returns:
        Whether this very transaction is now the revision, and its entry.

    Raises:
        OutcomeUnknownError: It was sent, and the store does not answer what became of it.
        SupersededError: The revision before it is gone or another one by now; this one was taken back.
    """
    path = transaction_path(transaction.revision)
    data = encode_transaction(transaction)
    entry = LogEntry(transaction, trailing_sha256(data))
    won = _create(store, path, data, transaction.uuid)
    if won is Won.YES and transaction.revision > 1:
        _check_follows(store, transaction)
    return won, entry


def _create(store: ObjectStore, path: str, data: bytes, uuid: str) -> Won:
    """Create with the same bytes until the outcome is known, reading back where a reply was lost."""
    for attempt in range(_SETTLE_TRIES):
        try:
            store.create(path, data)
        except (ObjectExistsError, StoreUnavailableError) as cause:
            settled = _read_back(store, path, uuid, cause)
        else:
            return Won.YES
        if settled is not None:
            return settled
        time.sleep(_SETTLE_WAIT * 2**attempt * random.random())
    raise OutcomeUnknownError(
        f"{path} in {store.uri} could not be created within {_SETTLE_TRIES} tries, nor is it there; "
        "run again when the store answers.",
        object=path,
    )


def _read_back(store: ObjectStore, path: str, uuid: str, cause: StorageError) -> Won | None:
    """Return who won the object at `path`, None if it is not there."""
    for attempt in range(_SETTLE_TRIES):
        try:
            data = store.get(path, limit=MAX_TRANSACTION_BYTES)
        except ObjectNotFoundError:
            return None
        except StoreUnavailableError:
            time.sleep(_SETTLE_WAIT * 2**attempt * random.random())
        else:
            return Won.YES if decode_transaction(data, path).uuid == uuid else Won.NO
    raise OutcomeUnknownError(
        f"Whether {path} in {store.uri} was committed is unknown: the store does not answer. Nothing was deleted; "
        "run again when it does.",
        object=path,
    ) from cause


def _check_follows(store: ObjectStore, transaction: act.Transaction) -> None:
    """Take a won revision back if the one it follows is gone: a sleeper woke after others pruned or deleted the log."""
    try:
        if read_entry(store, transaction.revision - 1).transaction.uuid == transaction.previous_uuid:
            return
    except ObjectNotFoundError:
        with suppress(ObjectNotFoundError):
            store.head(transaction_path(transaction.revision - 1).replace(".txn", ".ckpt"))
            return
    store.delete(transaction_path(transaction.revision))
    raise SupersededError(
        f"Revision {transaction.revision} of {store.uri} was committed long after others had moved on, and pruned or "
        "deleted the log before it; it was taken back. Run again.",
        revision=transaction.revision,
    )
