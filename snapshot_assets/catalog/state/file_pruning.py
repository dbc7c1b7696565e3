"""Which files of a state may hold rows of a table, of a time range, or ones of which a predicate is true.

Everything is computed on columns: a million files are looked through in less time than one of them takes to open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import merge

import numpy as np
import pyarrow as pa

from snapshot_assets.catalog.state.bounds_evaluation import Files
from snapshot_assets.catalog.state.file_columns import FileColumns, FileState
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.format.actions import Header, Tombstone
from snapshot_assets.format.codec import to_micros
from snapshot_assets.format.files import ColumnStatistics, DataFile
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.predicates import Predicate
from snapshot_assets.format.relations import DatabaseSchema, TableName

_NO_COLUMNS = pa.schema([])
_LAST = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Match:
    """A live file that may hold a row that is asked for.

    Attributes:
        certain: Whether all its rows are asked for, so that none has to be looked at.
    """

    file: DataFile
    certain: bool
    _part: int
    _row: int


@dataclass(frozen=True)
class _FilePart:
    """Some of a state's files, and which of them may hold rows that are asked for, and hold no others."""

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
    """The files that may hold rows that are asked for."""

    parts: Sequence[_FilePart]

    def __iter__(self) -> Iterator[Match]:
        """Yield them by chunk and path; files that came from a checkpoint are without their statistics."""
        yield from merge(*(part.matches(number) for number, part in enumerate(self.parts)), key=_order)

    def totals(self, *, certain: bool = False) -> tuple[int, int, int]:
        """Return how many files they are, and their rows and bytes.

        Args:
            certain: Count only those of which all rows are asked for.
        """
        found = [(part.base, part.certain if certain else part.may) for part in self.parts]
        columns = (sum(int(base.column(name)[kept].sum()) for base, kept in found) for name in ("rows", "bytes"))
        return sum(int(kept.sum()) for _, kept in found), next(columns), next(columns)

    def statistics(self, column: str, matches: Sequence[Match]) -> list[ColumnStatistics | None]:
        """Return the statistics of one column of some files, None of those that have none."""
        found: dict[tuple[int, int], ColumnStatistics] = {}
        for number, part in enumerate(self.parts):
            wanted = np.array(sorted(match._row for match in matches if match._part == number), dtype=np.int64)
            for table in part.base.bounds.known(column).values() if len(wanted) else ():
                places = np.flatnonzero(np.isin(table["file"].to_numpy(), wanted))
                for each in table.take(pa.array(places)).to_pylist():
                    bounds = each["null_count"], each["minimum"], each["maximum"]
                    found[number, each["file"]] = ColumnStatistics(column, *bounds)
        return [found.get((match._part, match._row)) for match in matches]


def _order(match: Match) -> tuple[int, str]:
    return match.file.chunk, match.file.path


def written_schemas(documents: Mapping[int, DatabaseSchema], name: TableName) -> dict[int, pa.Schema]:
    """Return a table's columns by schema id, as files hold them; none where a schema lacks the table."""
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
    """Return the live files that may hold rows that are asked for.

    Args:
        state: The state.
        table: Files of this table; None for all.
        predicate: Rows of which it is true; None for all. It is asked of one table.
        written: The table's columns by schema id (see `written_schemas`), with a predicate: what is not known of a
            file's columns excludes nothing.
        start: Rows of timed chunks from this time on; None for all.
        end: Rows of timed chunks before this time; None for all.
        older_than: Files whose `tombstones_through` is below this revision.
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
            files_of = Files(base.column("rows"), base.column("schema_id"), base.bounds, written or {})
            of = files_of.outcomes(predicate)
            may, certain = may & of.true, certain & of.true & ~of.false & ~of.unknown
        parts.append(_FilePart(base, files, may, certain))
    return FileMatches(parts)


def _has(column: pa.ChunkedArray, value: str) -> np.ndarray:
    """Tell which values of a dictionary column are the wanted one."""
    found = [chunk.indices.to_numpy() == chunk.dictionary.index(value).as_py() for chunk in column.chunks]
    return np.concatenate([np.zeros(0, dtype=bool), *found])


def _in_range(
    chunks: np.ndarray, header: Header | None, start: datetime | None, end: datetime | None
) -> tuple[np.ndarray, np.ndarray]:
    """Tell which chunks have a window that overlaps a time range, and which have one that lies in it."""
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
    """Return the tombstones by revision that some live file's rows have still to be filtered by.

    What statistics would exclude is not looked at: which tombstones are pending is part of a snapshot's checksum, and
    must not depend on how well bounds are compared.
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
    """What tombstones delete of a table's files: which rows, or all.

    Attributes:
        predicates: By path and revision of a tombstone, the predicates that a file's rows must be filtered by.
        dropped: Paths of files that are deleted whole.
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
    """Return what tombstones delete of a table; a file whose statistics exclude one is not filtered by it.

    Args:
        state: The state.
        table: The table.
        written: Its columns by schema id; see `written_schemas`.
        tombstones: By revision, those that are looked at; None for the state's own.
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
