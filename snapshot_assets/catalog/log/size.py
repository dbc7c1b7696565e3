"""The size of a log: its transactions and checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from snapshot_assets.format.layout import TRANSACTIONS, checkpointed_revision, revision_of, transaction_path
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.listed import Listed


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
