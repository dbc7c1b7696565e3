"""What a state holds, counted: for people and programs that ask a location what is there."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.format.actions import RowsOutside
from snapshot_assets.format.layout import TRANSACTIONS, checkpointed_revision, revision_of, transaction_path
from snapshot_assets.format.units import time_text
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.listed import Listed


@dataclass(frozen=True)
class TableSize:
    """A table's live files."""

    schema: str
    table: str
    files: int
    rows: int
    bytes: int


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


def table_sizes(state: State) -> list[TableSize]:
    """Return the live files of a state by table, in the order of names."""
    groups = live_table(state).group_by(["schema", "table"])
    counted = groups.aggregate([("path", "count"), ("rows", "sum"), ("bytes", "sum")])
    found = (
        TableSize(str(row["schema"]), str(row["table"]), row["path_count"], row["rows_sum"], row["bytes_sum"])
        for row in counted.to_pylist()
    )
    return sorted(found, key=lambda size: (size.schema, size.table))


def live_table(state: State) -> pa.Table:
    """Return the live files of a state in the columns of `file_set.COLUMNS`, by chunk and path."""
    table = state.files.merged().table
    return table.filter(pc.equal(table["removed"], 0))


def chunk_statuses(state: State) -> dict[str, int]:
    """Return how many chunks have each status, as the manifest shows it."""
    chunks = {*state.expected_chunks(), *state.chunks, *state.in_progress}
    return dict(sorted(Counter(str(state.status(chunk)) for chunk in chunks).items()))


def rows_outside(state: State) -> tuple[RowsOutside, ...]:
    """Return by table how many rows of the source lay outside the range when the snapshot was sealed last."""
    return state.newest_seal.seal.rows_outside if state.newest_seal else ()


def outside_text(state: State) -> str:
    """Return for people how many rows outside the range were not exported; "" where all were."""
    rows, header = sum(each.rows for each in rows_outside(state)), state.header
    if not rows or header is None or header.start is None or header.end is None:
        return ""
    counted = f"{rows:,} rows" if rows > 1 else "1 row"
    return (
        f"{counted} outside {time_text(header.start)} … {time_text(header.end)} {'were' if rows > 1 else 'was'} "
        "not exported"
    )


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
