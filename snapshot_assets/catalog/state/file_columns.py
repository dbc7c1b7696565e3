"""Data files in Arrow columns: a row for each interval of a file's life."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from snapshot_assets.catalog.state.bounds import Bounds, PackedTable, bounds_of, placed
from snapshot_assets.format.actions import DataFile
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
"""A row is a file and one interval of its life. While the file is live, `removed` is 0 and `removed_at` is NULL.

Rows are sorted by chunk, path and `added`.
"""

_SORTED = [(name, "ascending") for name in ("chunk", "path", "added")]
_SIGNED = ("path", "schema", "table", "rows", "bytes", "sha256", "schema_id", "tombstones_through")
_BATCH = 4096
_HASHED = 16_384
"""Rows that are hashed at a time: what is recorded of each takes a kilobyte."""
_MOST_RUNS = 10_000
"""Slices by which sorted parts are merged; more take longer than their rows."""
_CACHED_CHUNKS = 16
_INTERVAL = ("added", "removed", "removed_at")
_NEVER = np.iinfo(np.int64).max

Removal = tuple[int, datetime]
"""The revision that left an object unreferenced, and when it was committed."""


@dataclass(frozen=True)
class FileState:
    """A data file and an interval of its life; `removed` is 0 while it is live."""

    file: DataFile
    added: int
    removed: int = 0
    removed_at: datetime | None = None

    def in_state(self, revision: int) -> bool:
        """Return whether the state at a revision has the file."""
        return self.added <= revision and (not self.removed or revision < self.removed)


@dataclass(frozen=True)
class FileColumns:
    """Files in columns as in `COLUMNS`, and their statistics by their row in the table."""

    table: pa.Table
    bounds: Bounds

    @cached_property
    def chunk(self) -> np.ndarray:
        """The chunk of each row, ascending."""
        return np.asarray(self.table["chunk"])

    @cached_property
    def live(self) -> np.ndarray:
        """Whether each row is live."""
        return np.asarray(self.column("removed") == 0)

    def column(self, name: str) -> np.ndarray:
        """Return the values of a column of numbers."""
        return np.asarray(self.table[name])

    def in_state(self, revision: int) -> np.ndarray:
        """Return whether the state at a revision has each row."""
        return np.asarray((self.column("added") <= revision) & (self.live | (self.column("removed") > revision)))

    def among(self, paths: set[str]) -> np.ndarray:
        """Return whether each row is a file with one of some paths."""
        return np.asarray(pc.is_in(self.table["path"], pa.array(sorted(paths), pa.string())))

    def paths(self, rows: np.ndarray) -> set[str]:
        """Return the paths of the rows that a mask selects."""
        return set(self.table["path"].filter(pa.array(rows)).to_pylist())

    @cached_property
    def live_rows(self) -> Callable[[int], dict[str, int]]:
        """Returns the live rows of a chunk by path. Changes come chunk by chunk, so a few chunks are cached."""
        chunks, live, paths = self.chunk, self.live, self.table["path"]  # `self` would keep itself from being freed

        @lru_cache(_CACHED_CHUNKS)
        def of(chunk: int) -> dict[str, int]:
            first, end = np.searchsorted(chunks, (chunk, chunk + 1)).tolist()
            rows = np.flatnonzero(live[first:end]) + first
            return dict(zip(paths.take(pa.array(rows)).to_pylist(), rows.tolist(), strict=True))

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
        bounds = self.bounds.take(rows, self.table.num_rows)
        return FileColumns(self.table.take(pa.array(rows)).combine_chunks(), bounds)

    def last_rows(self, paths: set[str]) -> dict[str, int]:
        """Return by path the last row of each of these files that is not live."""
        rows = np.flatnonzero(self.among(paths))
        last = dict(zip(self.table["path"].take(pa.array(rows)).to_pylist(), rows.tolist(), strict=True))
        return {path: row for path, row in last.items() if not self.live[row]}

    def with_values(self, rows: np.ndarray, **columns: object) -> FileColumns:
        """Return these rows with other values where a mask is true: one value for all of them, or a list."""
        table = self.table
        for name, value in columns.items():
            field = COLUMNS.field(name)
            new = pa.array(value, field.type) if isinstance(value, list) else pa.scalar(value, field.type)
            values = pc.replace_with_mask(table[name].combine_chunks(), pa.array(rows), new)
            table = table.set_column(table.schema.get_field_index(name), field, values)
        return FileColumns(table, self.bounds)

    def as_live(self, **columns: object) -> FileColumns:
        """Return these rows as live ones, with other values in some columns."""
        return self.with_values(np.ones(self.table.num_rows, dtype=bool), removed=0, removed_at=None, **columns)

    def sorted(self) -> FileColumns:
        """Return the rows by chunk, path and `added`."""
        order = pc.sort_indices(self.table, _SORTED)
        return self.take(order.to_numpy())

    def packed(self, *, rows: bool = False) -> FileColumns:
        """Return these rows with their statistics compressed in memory; with `rows`, with their columns compressed."""
        return FileColumns(PackedTable(self.table), self.bounds) if rows else replace(self, bounds=self.bounds.packed())

    @cached_property
    def _digests(self) -> np.ndarray:
        """A SHA-256 over all that is recorded of each row."""
        rows, packed = np.arange(self.table.num_rows), self.packed()  # which reads each section of a checkpoint once
        parts = (packed.take(rows[start : start + _HASHED])._hashed() for start in range(0, len(rows), _HASHED))
        return np.concatenate([np.empty(0, "V32"), *parts])

    def _hashed(self) -> np.ndarray:
        hashes = [hashlib.sha256(record) for record in _records([self.table[name] for name in _SIGNED])]
        for column in sorted(self.bounds.columns):
            for kind, bounds in self.bounds.of(column).items():
                names = [pa.repeat(each, bounds.num_rows) for each in (column, kind)]
                records = _records([*names, *bounds.columns[1:]])
                for file, record in zip(bounds["file"].to_pylist(), records, strict=True):
                    hashes[file].update(record)
        return np.frombuffer(b"".join(each.digest() for each in hashes), "V32")

    def digests(self, revisions: Iterable[int]) -> dict[int, str]:
        """Return a SHA-256 over all that each of these revisions records of its files (FORMAT.md, section 7).

        Raises:
            DamageError, ObjectNotFoundError: See `Bounds.of`.
        """
        return {each: hashlib.sha256(self._digests[self.in_state(each)].tobytes()).hexdigest() for each in revisions}

    def not_retained(self, retained: Sequence[int]) -> FileColumns:
        """Return all intervals of the files that no retained revision, ascending, has."""
        marks = np.array([*retained, _NEVER], dtype=np.int64)
        needed = marks[np.searchsorted(marks, self.column("added"))] < self._ends()
        paths = self.table["path"]  # most are needed: only others are hashed
        others = np.asarray(pc.is_in(paths, pc.unique(paths.filter(pa.array(~needed)))))
        kept = np.asarray(pc.is_in(paths, pc.unique(paths.filter(pa.array(others & needed)))))
        return self.take(np.flatnonzero(others & ~kept))

    def newest_expiry(self, expired: Mapping[int, Removal]) -> np.ndarray:
        """Return for each interval the newest revision that let a revision in it expire, 0 for none."""
        marks = np.array(sorted(expired), dtype=np.int64)
        newest = np.array([*(expired[each][0] for each in marks.tolist()), 0], dtype=np.int64)
        first, end = np.searchsorted(marks, self.column("added")), np.searchsorted(marks, self._ends())
        greatest = np.maximum.reduceat(newest, np.column_stack([first, end]).ravel())[::2]
        return np.where(first < end, greatest, 0)

    def _ends(self) -> np.ndarray:
        """Return the revision that ended each interval."""
        return np.where(self.live, _NEVER, self.column("removed"))


def merge_columns(parts: list[FileColumns]) -> FileColumns:
    """Return the rows of one or two parts, each sorted, as sorted rows.

    Empties the list and moves one column at a time: of a million files, parts and result do not fit into memory.
    """
    if len(parts) == 1:
        return parts.pop()
    base, other = parts
    table, count = pa.concat_tables([base.table, other.table]).unify_dictionaries(), base.table.num_rows
    places = np.append(np.arange(table.num_rows), -1)
    bounds, order = placed((base.bounds, np.append(places[:count], -1)), (other.bounds, places[count:])), None
    if len(base.chunk) and len(other.chunk) and base.chunk[-1] >= other.chunk[0]:
        order = pc.sort_indices(table, _SORTED)
        bounds = bounds.take(order.to_numpy(), table.num_rows)
    columns = [table[name] for name in COLUMNS.names]
    parts.clear()
    del table, base, other
    runs = [slice(None)] if order is None else _runs(order.to_numpy())
    for place, column in enumerate(columns):
        if len(runs) > _MOST_RUNS:
            chunks = column.take(order).chunks
        else:  # `take` would need the column twice
            chunks = [chunk for run in runs for chunk in column[run].chunks]
        columns[place] = pa.concat_arrays(chunks) if chunks else column
        del column, chunks
    return FileColumns(pa.Table.from_arrays(columns, schema=COLUMNS), bounds)


def _runs(order: np.ndarray) -> list[slice]:
    """Return an order of rows as runs of adjacent rows: of two sorted parts, they are few if one is small."""
    breaks = [0, *(np.flatnonzero(np.diff(order.astype(np.int64)) != 1) + 1).tolist(), len(order)]
    return [slice(int(order[first]), int(order[first]) + end - first) for first, end in pairwise(breaks)]


def _records(columns: Sequence[pa.Array | pa.ChunkedArray]) -> list[bytes]:
    """Return the values of each row as netstrings, and a NULL as a comma."""
    fields = []
    for values in columns:
        if pa.types.is_floating(values.type):  # by its bits: no number has two texts
            values = pa.chunked_array([each.view(pa.int64()) for each in values.chunks], pa.int64())
        if values.type not in (pa.binary(), pa.binary(32)):
            values = values.cast(pa.string())
        text = values.cast(pa.binary())
        size = pc.binary_length(text).cast(pa.string()).cast(pa.binary())
        fields.append(pc.fill_null(pc.binary_join_element_wise(size, text, b":"), b""))
    return list(pc.binary_join_element_wise(*fields, b"", b",").to_pylist())


def columns_of(files: Sequence[FileState]) -> FileColumns:
    """Return files in columns, in the order given."""
    values: dict[str, list[object]] = {
        name: [getattr(state if name in _INTERVAL else state.file, name) for state in files] for name in COLUMNS.names
    }
    values |= {name: [bytes.fromhex(getattr(state.file, name)) for state in files] for name in ("attempt", "sha256")}
    rows = pa.table([pa.array(values[each.name], each.type) for each in COLUMNS], COLUMNS)
    return FileColumns(rows, bounds_of([state.file for state in files]))


def _state_of(row: dict[str, Any]) -> FileState:
    added, removed, removed_at = (row.pop(name) for name in _INTERVAL)
    check_data_path(row["path"], row["chunk"])
    file = DataFile(**(row | {"attempt": row["attempt"].hex(), "sha256": row["sha256"].hex()}))
    return FileState(file, added, removed, removed_at)
