"""Data files in Arrow columns: a row for each interval of a file's life, beside it its statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from snapshot_assets.catalog.state.column_bounds import Bounds, bounds_of
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.layout import check_data_path

COLUMNS = pa.schema(
    [
        ("path", pa.string()),
        ("schema", pa.dictionary(pa.int32(), pa.string())),
        ("table", pa.dictionary(pa.int32(), pa.string())),
        ("chunk", pa.int64()),
        ("attempt", pa.binary(4)),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("sha256", pa.binary(32)),
        ("schema_id", pa.int32()),
        ("tombstones_through", pa.int64()),
        ("added", pa.int64()),
        ("removed", pa.int64()),
        ("removed_at", pa.timestamp("us", "UTC")),
    ]
)
"""A row is a file and one interval of its life; `removed` is 0 and `removed_at` NULL while it is live.

Rows are sorted by chunk, path and `added`.
"""

_BATCH = 4096
_CHUNKS_AT_HAND = 16
_OF_A_LIFE = ("added", "removed", "removed_at")
_NEVER = np.iinfo(np.int64).max

Removal = tuple[int, datetime]
"""The revision that left something unneeded, and when it was committed."""


@dataclass(frozen=True)
class FileState:
    """A data file and an interval of its life.

    Attributes:
        added: Revision that added it.
        removed: Revision that removed it; 0 while it is live.
        removed_at: When that was committed.
    """

    file: DataFile
    added: int
    removed: int = 0
    removed_at: datetime | None = None

    def in_state(self, revision: int) -> bool:
        """Tell whether the state at a revision has the file."""
        return self.added <= revision and (not self.removed or revision < self.removed)


@dataclass(frozen=True)
class FileColumns:
    """Files in columns.

    Attributes:
        table: Columns as `COLUMNS` has them.
        bounds: Statistics of the files by their row in the table.
    """

    table: pa.Table
    bounds: Bounds

    @cached_property
    def chunk(self) -> np.ndarray:
        """The chunk of each row, ascending."""
        return np.asarray(self.table["chunk"])

    @cached_property
    def live(self) -> np.ndarray:
        """Whether each row is live."""
        return np.asarray(np.asarray(self.table["removed"]) == 0)

    def column(self, name: str) -> np.ndarray:
        """Return the values of a column of numbers."""
        return np.asarray(self.table[name])

    @cached_property
    def live_rows(self) -> Callable[[int], dict[str, int]]:
        """Return the live rows of a chunk by path; a few chunks are kept at hand, since changes come by chunk."""

        @lru_cache(_CHUNKS_AT_HAND)
        def of(chunk: int) -> dict[str, int]:
            place = self.rows_of(chunk)
            rows = np.flatnonzero(self.live[place]) + place.start
            paths = self.table["path"].take(pa.array(rows)).to_pylist()
            return dict(zip(paths, rows.tolist(), strict=True))

        return of

    def picked(self, rows: np.ndarray) -> Iterator[FileState]:
        """Yield some rows as values, without their statistics, in the order given."""
        for start in range(0, len(rows), _BATCH):
            yield from map(_state_of, self.table.take(pa.array(rows[start : start + _BATCH])).to_pylist())

    def rows_of(self, chunk: int) -> slice:
        """Return the place of a chunk's rows."""
        return slice(int(np.searchsorted(self.chunk, chunk, "left")), int(np.searchsorted(self.chunk, chunk, "right")))

    def take(self, rows: np.ndarray) -> FileColumns:
        """Return some rows, in the order given."""
        return FileColumns(
            self.table.take(pa.array(rows)).combine_chunks(), self.bounds.take(rows, self.table.num_rows)
        )

    def last_rows(self, paths: set[str]) -> dict[str, int]:
        """Return by path the last row of the files among these that are not live."""
        rows = np.flatnonzero(among(self.table, paths).to_numpy(zero_copy_only=False))
        names = self.table["path"].take(pa.array(rows)).to_pylist()
        found = dict(zip(names, rows.tolist(), strict=True))
        return {path: row for path, row in found.items() if not self.live[row]}

    def with_interval(self, rows: Sequence[int], added: int) -> FileColumns:
        """Return these rows, and some of them once more, live since a revision."""
        again = self.take(np.array(rows, dtype=np.int64))
        table = never_removed(again.table)
        since = pa.repeat(pa.scalar(added, COLUMNS.field("added").type), table.num_rows)
        return self.concat(FileColumns(with_column(table, "added", since), again.bounds)).sorted()

    def sorted(self) -> FileColumns:
        """Return the rows by chunk, path and `added`."""
        order = pc.sort_indices(self.table, [(name, "ascending") for name in ("chunk", "path", "added")])
        return self.take(order.to_numpy())

    def concat(self, other: FileColumns) -> FileColumns:
        """Return these rows and then the others."""
        table = pa.concat_tables([self.table, other.table]).unify_dictionaries()
        return FileColumns(table.combine_chunks(), self.bounds.concat(other.bounds, self.table.num_rows))


def columns_of(files: Sequence[FileState]) -> FileColumns:
    """Return files in columns, in the order given."""
    values: dict[str, list[object]] = {
        name: [getattr(known if name in _OF_A_LIFE else known.file, name) for known in files] for name in COLUMNS.names
    }
    values |= {name: [bytes.fromhex(getattr(known.file, name)) for known in files] for name in ("attempt", "sha256")}
    rows = pa.table([pa.array(values[each.name], each.type) for each in COLUMNS], COLUMNS)
    return FileColumns(rows, bounds_of([known.file for known in files]))


def among(table: pa.Table, paths: set[str]) -> pa.Array:
    """Return whether each row is of a file among these."""
    return pc.is_in(table["path"], pa.array(sorted(paths), pa.string())).combine_chunks()


def with_column(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    """Return rows with other values in a column."""
    return table.set_column(table.schema.get_field_index(name), COLUMNS.field(name), values)


def never_removed(table: pa.Table) -> pa.Table:
    """Return rows as live ones."""
    live = with_column(table, "removed", pa.repeat(pa.scalar(0, COLUMNS.field("removed").type), table.num_rows))
    return with_column(live, "removed_at", pa.nulls(table.num_rows, COLUMNS.field("removed_at").type))


def _state_of(row: dict[str, Any]) -> FileState:
    added, removed, removed_at = row.pop("added"), row.pop("removed"), row.pop("removed_at")
    check_data_path(row["path"], row["chunk"])
    file = DataFile(**(row | {"attempt": row["attempt"].hex(), "sha256": row["sha256"].hex()}))
    return FileState(file, added, removed, removed_at)


def not_retained(table: pa.Table, retained: Sequence[int]) -> pa.Table:
    """Return all intervals of the files that no retained revision, ascending, has."""
    marks = np.array([*retained, _NEVER], dtype=np.int64)
    added, removed = (np.asarray(table[name]) for name in ("added", "removed"))
    first = np.searchsorted(marks, added)
    needed = pa.array(marks[first] < np.where(removed == 0, _NEVER, removed))
    kept = pc.unique(table.filter(needed)["path"])
    return table.filter(pc.invert(pc.is_in(table["path"], kept)))


def newest_expiry(table: pa.Table, expired: Mapping[int, Removal]) -> np.ndarray:
    """Return for each interval the newest revision that let one in it expire, 0 for none; of both there may be many.

    Level by level the greatest of 1, 2, 4, … neighbours is known, and two of those that overlap make up any interval.
    """
    marks = np.array(sorted(expired), dtype=np.int64)
    greatest = np.array([expired[int(each)][0] for each in marks], dtype=np.int64)
    added, removed = (np.asarray(table[name]) for name in ("added", "removed"))
    first, end = np.searchsorted(marks, added), np.searchsorted(marks, np.where(removed == 0, _NEVER, removed))
    found, width = np.zeros(len(added), dtype=np.int64), 1
    while width <= len(marks):
        rows = np.flatnonzero((end - first >= width) & (end - first < 2 * width))
        found[rows] = np.maximum(greatest[first[rows]], greatest[end[rows] - width])
        greatest = np.maximum(greatest[:-width], greatest[width:])
        width *= 2
    return found
