"""What changed between two readable revisions: files and chunks that came, went, or were written anew."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pyarrow as pa

from snapshot_assets.catalog.state import State
from snapshot_assets.format.relations import TableName


class Change(StrEnum):
    """What happened to a file, or to a table's files in a chunk."""

    ADDED = "added"
    REMOVED = "removed"
    REWRITTEN = "rewritten"


@dataclass(frozen=True)
class FileChange:
    """A file that only one of two revisions has.

    Attributes:
        change: `added` or `removed`.
    """

    change: Change
    chunk: int
    schema: str
    table: str
    path: str
    rows: int
    bytes: int


@dataclass(frozen=True)
class ChunkChange:
    """What changed in one chunk and table.

    Attributes:
        change: `rewritten` where files went and others came.
        rows_added: Rows of the files that came.
        rows_removed: Rows of the files that went.
    """

    change: Change
    chunk: int
    schema: str
    table: str
    files_added: int = 0
    files_removed: int = 0
    rows_added: int = 0
    rows_removed: int = 0
    bytes_added: int = 0
    bytes_removed: int = 0


@dataclass(frozen=True)
class Difference:
    """All that changed from one revision to another.

    Attributes:
        files: By chunk and path; of a chunk, removed ones among added ones.
    """

    first: int
    second: int
    files: tuple[FileChange, ...]

    def by_chunk(self) -> list[ChunkChange]:
        """Return what changed by chunk and table, in their order."""
        groups: dict[tuple[int, TableName], list[FileChange]] = {}
        for file in self.files:
            groups.setdefault((file.chunk, TableName(file.schema, file.table)), []).append(file)
        return [_chunk_change(chunk, name, groups[chunk, name]) for chunk, name in sorted(groups)]


def difference(state: State, first: int, second: int) -> Difference:
    """Return what changed from one revision to another.

    Args:
        state: The head's state.
        first: A readable revision.
        second: Another one, before it or after it.
    """
    table = state.files.merged().table
    before, after = _there(table, first), _there(table, second)
    changes = [*_changes(table, before & ~after, Change.REMOVED), *_changes(table, after & ~before, Change.ADDED)]
    again = _paths(table, before) & _paths(table, after) if changes else set()
    files = sorted((each for each in changes if each.path not in again), key=lambda each: (each.chunk, each.path))
    return Difference(first, second, tuple(files))


def _there(table: pa.Table, revision: int) -> np.ndarray:
    added, removed = np.asarray(table["added"]), np.asarray(table["removed"])
    return np.asarray((added <= revision) & ((removed == 0) | (removed > revision)))


def _paths(table: pa.Table, rows: np.ndarray) -> set[str]:
    """Return the paths of some rows: a file that went and came back has several, of which each revision has another."""
    return set(table.filter(pa.array(rows))["path"].to_pylist())


def _changes(table: pa.Table, rows: np.ndarray, change: Change) -> Iterator[FileChange]:
    names = ["chunk", "schema", "table", "path", "rows", "bytes"]
    for row in table.filter(pa.array(rows)).select(names).to_pylist():
        yield FileChange(change, **row)


def _chunk_change(chunk: int, name: TableName, files: list[FileChange]) -> ChunkChange:
    came = [file for file in files if file.change is Change.ADDED]
    went = [file for file in files if file.change is Change.REMOVED]
    return ChunkChange(
        Change.REWRITTEN if came and went else Change.ADDED if came else Change.REMOVED,
        chunk,
        name.schema,
        name.table,
        len(came),
        len(went),
        sum(file.rows for file in came),
        sum(file.rows for file in went),
        sum(file.bytes for file in came),
        sum(file.bytes for file in went),
    )
