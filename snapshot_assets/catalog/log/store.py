"""The log on the object store: reads its chain, and commits the next revision.

A commit is the conditional create of the next revision's object; exactly one writer wins it (InfluxDB IOx,
"Linearity"). Nothing here interprets actions.
"""

from __future__ import annotations

import random
import time

from snapshot_assets.catalog.log.listing import is_there
from snapshot_assets.catalog.state.chain import LogEntry, misnamed
from snapshot_assets.errors import (
    MisnamedError,
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
    log_revision,
    transaction_path,
)
from snapshot_assets.format.transactions import decode_transaction, encode_transaction, trailing_sha256
from snapshot_assets.storage.base import ObjectStore

_SETTLE_TRIES = 5
_SETTLE_WAIT = 0.2


def read_entry(store: ObjectStore, revision: int) -> LogEntry:
    """Return one revision's entry.

    Raises:
        ObjectNotFoundError: The transaction is missing.
        TornObjectError: Its bytes do not match its own checksum; and other errors of `decode_transaction`.
        MisnamedError: It holds another revision, so this one counts as missing.
    """
    path = transaction_path(revision)
    data = store.get(path, limit=documents.MAX_TRANSACTION_BYTES)
    transaction = decode_transaction(data, path)
    if transaction.revision != revision:
        raise misnamed(path, transaction.revision, revision)
    return LogEntry(transaction, trailing_sha256(data))


def append(store: ObjectStore, transaction: act.Transaction) -> tuple[bool, LogEntry]:
    """Try to commit a transaction at its revision.

    Args:
        store: The location.
        transaction: The complete transaction.

    Returns:
        Whether this transaction won its revision, and its entry.

    Raises:
        LimitExceededError: It is larger than readers accept; nothing was written.
        OutcomeUnknownError: The store does not answer whether it was created.
        SupersededError: The revision before it was deleted or replaced; this one was deleted again.
    """
    path = transaction_path(transaction.revision)
    data = encode_transaction(transaction)
    advice = (
        f"It has {len(transaction.actions)} actions; let one commit change fewer files or chunks. Instead of a "
        "rollback, restore that revision, or export it into another location."
    )
    check_writable(len(data), documents.MAX_TRANSACTION_BYTES, path, advice)
    entry = LogEntry(transaction, trailing_sha256(data))
    won = _create(store, path, data, transaction.uuid)
    if won and transaction.revision > 1 and not entry.starts_log:
        _check_follows(store, transaction)
    return won, entry


def _create(store: ObjectStore, path: str, data: bytes, uuid: str) -> bool:
    """Create an object until the outcome is known, reading it back if a reply was lost; return whether it was won."""
    for attempt in range(_SETTLE_TRIES):
        try:
            store.create(path, data)
        except (ObjectExistsError, StoreUnavailableError) as cause:
            settled = _read_back(store, path, uuid, cause)
        else:
            return True
        if settled is not None:
            return settled
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
        except StoreUnavailableError:
            time.sleep(_SETTLE_WAIT * 2**attempt * random.random())
        else:
            return decode_transaction(data, path).uuid == uuid
    raise OutcomeUnknownError(
        f"Whether {path} in {store.uri} was committed is unknown: the store does not answer. Nothing was deleted; "
        "run again when it does.",
        object=path,
    ) from cause


def _check_follows(store: ObjectStore, transaction: act.Transaction) -> None:
    """Delete a won revision if its predecessor is gone: this writer slept while others pruned or deleted the log.

    Pruning deletes the oldest first, so a free revision below the head has no predecessor. Only revision 1 is never
    pruned.
    """
    if _has_predecessor(store, transaction) and (transaction.revision != 2 or not _others_follow(store, transaction)):
        return
    store.delete(transaction_path(transaction.revision))
    raise SupersededError(
        f"Revision {transaction.revision} of {store.uri} was committed long after others had moved on, and pruned or "
        "deleted the log before it; it was taken back. Run again.",
        revision=transaction.revision,
    )


def _has_predecessor(store: ObjectStore, transaction: act.Transaction) -> bool:
    before = transaction.revision - 1
    try:
        return read_entry(store, before).transaction.uuid == transaction.previous_uuid
    except (ObjectNotFoundError, MisnamedError):
        pass
    return is_there(store, checkpoint_path(before))


def _others_follow(store: ObjectStore, transaction: act.Transaction) -> bool:
    """Return whether the log has later revisions that do not follow from a transaction."""
    for _ in range(2):  # another writer may follow this transaction between the read and the listing
        try:
            return read_entry(store, transaction.revision + 1).transaction.previous_uuid != transaction.uuid
        except (ObjectNotFoundError, MisnamedError):
            if not any(log_revision(info.path) > transaction.revision for info in store.list(TRANSACTIONS)):
                return False
    return True
