"""What every readable revision is: its rows, its schema and its time, for all of them in one pass over state and files.

Folding each revision on its own would take as long as revisions times files; a year of tags would be slow to list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from snapshot_assets.catalog.state.data_files import FileSet
from snapshot_assets.catalog.state.fold import SealState, State
from snapshot_assets.format import actions as act


@dataclass(frozen=True)
class RevisionFacts:
    """A readable revision.

    Attributes:
        committed_at: When it was sealed.
        schema_id: Its newest schema, 0 for none.
        rows: Rows of all its files, deleted ones that a compaction has not left out yet included.
        files: How many files it has.
        bytes: Bytes of them.
    """

    revision: int
    committed_at: datetime
    snapshot_id: str
    schema_id: int
    rows: int
    files: int
    bytes: int


def revision_facts(state: State) -> Mapping[int, RevisionFacts]:
    """Return the facts of all readable revisions by revision, ascending.

    Args:
        state: The head's state.
    """
    seals = state.readable()
    revisions = np.array([seal.revision for seal in seals], dtype=np.int64)
    sizes = zip(*(_totals(state.files, name, revisions) for name in ("rows", "", "bytes")), strict=True)
    facts = zip(seals, _schema_ids(state, seals), sizes, strict=True)
    return {
        seal.revision: RevisionFacts(seal.revision, seal.committed_at, seal.snapshot_id, schema_id, *size)
        for seal, schema_id, size in facts
    }


def _totals(files: FileSet, column: str, revisions: np.ndarray) -> list[int]:
    """Return for each revision the sum of a column over the files that it has; without a column, their number."""
    table = files.merged().table
    values = np.asarray(table[column]) if column else np.ones(table.num_rows, dtype=np.int64)
    added, removed = np.asarray(table["added"]), np.asarray(table["removed"])
    gone = removed > 0
    came = _sums_through(added, values, revisions)
    went = _sums_through(removed[gone], values[gone], revisions)
    return [int(each) for each in came - went]


def _sums_through(at: np.ndarray, values: np.ndarray, revisions: np.ndarray) -> np.ndarray:
    """Return for each revision the sum of the values whose own revision is not later."""
    order = np.argsort(at, kind="stable")
    sums = np.concatenate([[0], np.cumsum(values[order])])
    return np.asarray(sums[np.searchsorted(at[order], revisions, side="right")])


def _schema_ids(state: State, seals: list[SealState]) -> Iterator[int]:
    """Yield the newest schema id at each seal; the seals are ascending."""
    said = iter(state.events)
    event = next(said, None)
    newest = 0
    for seal in seals:
        while event is not None and event.revision <= seal.revision:
            for action in event.actions:
                match action:
                    case act.Begin() | act.Rollback():
                        newest = 0
                    case act.SchemaAdded():
                        newest = max(newest, action.schema_id)
            event = next(said, None)
        yield newest
