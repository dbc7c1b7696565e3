"""File pruning: which files of a state may hold rows of a table, of a time range, or rows that match a predicate.

Everything is computed on columns, so that pruning a million files takes less time than opening one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import merge
from operator import attrgetter

import numpy as np
import pyarrow as pa

from snapshot_assets.catalog.state.bounds_evaluation import BoundsEvaluation
from snapshot_assets.catalog.state.file_columns import FileColumns, FileState
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.format.actions import ColumnStatistics, DataFile, Header, Tombstone
from snapshot_assets.format.codec import to_micros
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.predicates import Predicate
from snapshot_assets.format.relations import DatabaseSchema, TableName

_NO_COLUMNS = pa.schema([])
_LAST = np.iinfo(np.int64).max
_BY_PLACE = attrgetter("file.chunk", "file.path")


@dataclass(frozen=True)
class Match:
    """A live file that may hold matching rows.

    Attributes:
        certain: Whether all its rows match, so that its rows need no filter.
    """

    file: DataFile
    certain: bool
    _part: int
    _row: int


@dataclass(frozen=True)
class _FilePart:
    """Some of a state's files, and masks of those that may hold matching rows and of those that hold no others."""

    base: FileColumns
    files: list[FileState] | None
    may: np.ndarray
    certain: np.ndarray

    def matches(self, number: int) -> Iterator[Match]:
        rows = np.flatnonzero(self.may)
        files = self.base.picked(rows) if self.files is None else (self.files[row] for row in rows)
        for row, each in zip(rows.tolist(), files, strict=True):
            yield Match(each.file, bool(self.certain[row]), number, row)


@dataclass(frozen=True)
class FileMatches:
    """The files that may hold matching rows."""

    parts: Sequence[_FilePart]

    def __iter__(self) -> Iterator[Match]:
        """Yield the files by chunk and path; files from a checkpoint lack their statistics."""
        yield from merge(*(part.matches(number) for number, part in enumerate(self.parts)), key=_BY_PLACE)

    def totals(self, *, certain: bool = False) -> tuple[int, int, int]:
        """Return the number of files, their rows, and their bytes; with `certain`, of files whose rows all match."""
        masks = [(part.base, part.certain if certain else part.may) for part in self.parts]
        rows, size = (sum(int(base.column(name)[mask].sum()) for base, mask in masks) for name in ("rows", "bytes"))
        return sum(int(mask.sum()) for _, mask in masks), rows, size

    def statistics(self, column: str, matches: Sequence[Match]) -> list[ColumnStatistics | None]:
        """Return the statistics of one column of some files, None for a file without them."""
        statistics: dict[tuple[int, int], ColumnStatistics] = {}
        for number, part in enumerate(self.parts):
            rows = np.array(sorted(match._row for match in matches if match._part == number), dtype=np.int64)
            for table in part.base.bounds.of_or_none(column).values() if len(rows) else ():
                places = np.flatnonzero(np.isin(table["file"].to_numpy(), rows))
                for each in table.take(pa.array(places)).to_pylist():
                    bounds = each["null_count"], each["minimum"], each["maximum"]
                    statistics[number, each["file"]] = ColumnStatistics(column, *bounds)
        return [statistics.get((match._part, match._row)) for match in matches]


def written_schemas(documents: Mapping[int, DatabaseSchema], name: TableName) -> dict[int, pa.Schema]:
    """Return a table's columns by schema id, as files hold them; no columns for a schema without the table."""
    return {
        number: next((table.arrow_schema() for table in schema.tables if table.table_name == name), _NO_COLUMNS)
        for number, schema in documents.items()
    }


def match_files(
    state: State,
    table: TableName | None = None,
    predicate: Predicate | None = None,
    written: Mapping[int, pa.Schema] | None = None,
    *,
    start: datetime | None = None,
    end: datetime | None = None,
    older_than: int | None = None,
) -> FileMatches:
    """Return the live files that may hold matching rows.

    Args:
        state: The state.
        table: Only files of this table; None for all.
        predicate: Only rows of `table` that match it; None for all.
        written: The table's columns by schema id, for a predicate; see `written_schemas`.
        start: Only rows of timed chunks from this time on; None for all.
        end: Only rows of timed chunks before this time; None for all.
        older_than: Only files whose `tombstones_through` is below this revision; None for all.
    """
    parts = []
    for base, live, files in state.files.columns():
        may = live.copy()
        if table is not None:
            may &= _has(base.table["schema"], table.schema) & _has(base.table["table"], table.table)
        if older_than is not None:
            may &= base.column("tombstones_through") < older_than
        certain = may
        if start is not None or end is not None:
            overlapping, covered = _in_range(base.chunk, state.header, start, end)
            may, certain = may & overlapping, certain & covered
        if predicate is not None and may.any():
            evaluation = BoundsEvaluation(base.column("rows"), base.column("schema_id"), base.bounds, written or {})
            answers = evaluation.answers(predicate)
            may, certain = may & answers.true, certain & answers.true & ~answers.false & ~answers.unknown
        parts.append(_FilePart(base, files, may, certain))
    return FileMatches(parts)


def _has(column: pa.ChunkedArray, value: str) -> np.ndarray:
    """Return which values of a dictionary column equal a value."""
    equal = [chunk.indices.to_numpy() == chunk.dictionary.index(value).as_py() for chunk in column.chunks]
    return np.concatenate([np.zeros(0, dtype=bool), *equal])


def _in_range(
    chunks: np.ndarray, header: Header | None, start: datetime | None, end: datetime | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return which chunks have a window that overlaps a time range, and which have a window inside it."""
    if header is None or header.start is None:
        nothing = np.zeros(len(chunks), dtype=bool)
        return nothing, nothing
    first = to_micros(header.start) + (chunks - 1) * header.chunk_time_window
    last = first + header.chunk_time_window
    if header.end is not None:
        last = np.minimum(last, to_micros(header.end))
    low = -_LAST if start is None else to_micros(start)
    high = _LAST if end is None else to_micros(end)
    timed = chunks != UNTIMED_CHUNK
    return timed & (first < high) & (last > low), timed & (first >= low) & (last <= high)


def pending_tombstones(state: State) -> dict[int, Tombstone]:
    """Return by revision the tombstones that some live file's rows still have to be filtered by.

    Statistics are ignored: pending tombstones are part of a snapshot's checksum, which must not depend on how well
    bounds are compared.
    """
    return {
        revision: tombstone
        for revision, tombstone in state.tombstones.items()
        if any(part.may.any() for part in match_files(state, _table_of(tombstone), older_than=revision).parts)
    }


def _table_of(tombstone: Tombstone) -> TableName:
    return TableName(tombstone.schema, tombstone.table)


@dataclass(frozen=True)
class Deletions:
    """The rows of a table's files that tombstones delete.

    Attributes:
        predicates: By path and revision of a tombstone, the predicates that a file's rows must be filtered by.
        dropped: Paths of the files whose rows are all deleted.
    """

    predicates: Mapping[str, Mapping[int, Predicate]]
    dropped: frozenset[str]

    def of(self, path: str) -> tuple[Predicate, ...]:
        """Return the predicates that a file's rows must be filtered by."""
        return tuple(self.predicates.get(path, {}).values())


def deletions(
    state: State,
    table: TableName,
    written: Mapping[int, pa.Schema],
    tombstones: Mapping[int, Tombstone] | None = None,
) -> Deletions:
    """Return the rows of a table that tombstones delete, except of files whose statistics exclude them.

    `written` are the table's columns by schema id; see `written_schemas`. The tombstones are the state's own for None.
    """
    predicates: dict[str, dict[int, Predicate]] = {}
    dropped: set[str] = set()
    for revision, tombstone in (state.tombstones if tombstones is None else tombstones).items():
        if _table_of(tombstone) == table:
            for match in match_files(state, table, tombstone.predicate, written, older_than=revision):
                path = match.file.path
                predicates.setdefault(path, {})[revision] = tombstone.predicate
                if match.certain:
                    dropped.add(path)
    return Deletions(predicates, frozenset(dropped))
