"""File pruning: which files of a state may hold rows of a table, of a time range, or rows that match a predicate.

Everything is computed on columns, so that pruning a million files takes less time than opening one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from heapq import merge
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from snapshot_assets.catalog.state.bounds import Bounds, ByKind
from snapshot_assets.catalog.state.file_columns import FileColumns, FileState
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.format.actions import ColumnStatistics, DataFile, Header, Tombstone
from snapshot_assets.format.codec import to_micros
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.predicates import And, Comparison, IsIn, IsNull, Literal, Not, Operator, Or, Predicate
from snapshot_assets.format.relations import DatabaseSchema, TableName

_LAST = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Match:
    """A live file that may hold matching rows; if it is certain that all its rows match, they need no filter."""

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
        matches = (part.matches(number) for number, part in enumerate(self.parts))
        yield from merge(*matches, key=attrgetter("file.chunk", "file.path"))

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
        number: next((table.arrow_schema() for table in schema.tables if table.table_name == name), pa.schema([]))
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
    """Return the live files that may hold matching rows; None stands for no limit.

    Left out are files of other tables than `table`, whose rows certainly do not match `predicate` (which needs
    `written`, see `written_schemas`), of timed chunks outside `[start, end)`, and whose `tombstones_through` is not
    below `older_than`.
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
            evaluation = _Evaluation(base.column("rows"), base.column("schema_id"), base.bounds, written or {})
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
        if any(
            part.may.any()
            for part in match_files(state, TableName(tombstone.schema, tombstone.table), older_than=revision).parts
        )
    }


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
        if TableName(tombstone.schema, tombstone.table) == table:
            for match in match_files(state, table, tombstone.predicate, written, older_than=revision):
                path = match.file.path
                predicates.setdefault(path, {})[revision] = tombstone.predicate
                if match.certain:
                    dropped.add(path)
    return Deletions(predicates, frozenset(dropped))


_MAX_VALUES = 16
"""For longer lists, only the range from the least to the greatest value is compared with bounds."""

_EQUAL, _LESS, _GREATER = (Operator.EQUAL, Operator.LESS, Operator.GREATER)
_TRUE_IF = {  # how a value compares with the literal if the answer is true
    Operator.EQUAL: (_EQUAL,),
    Operator.NOT_EQUAL: (_LESS, _GREATER),
    Operator.LESS: (_LESS,),
    Operator.LESS_EQUAL: (_LESS, _EQUAL),
    Operator.GREATER: (_GREATER,),
    Operator.GREATER_EQUAL: (_GREATER, _EQUAL),
}


@dataclass(frozen=True)
class _Answers:
    """The answers that a predicate may give for some row, file by file; `unknown` is SQL's NULL.

    An answer counts as possible unless statistics exclude it: bounds may be wider than the values, or unknown.
    """

    true: np.ndarray
    false: np.ndarray
    unknown: np.ndarray


@dataclass(frozen=True)
class _Evaluation:
    """Evaluates predicates on the statistics of some files; `written` are the table's columns by schema id."""

    rows: np.ndarray
    schema_id: np.ndarray
    bounds: Bounds
    written: Mapping[int, pa.Schema]
    _columns: dict[str, _Column] = field(default_factory=dict)

    def answers(self, predicate: Predicate) -> _Answers:
        """Return the possible answers of a predicate."""
        match predicate:
            case Comparison():
                column = self._column(predicate.column)
                order = column.order(predicate.value)
                wanted = _TRUE_IF[predicate.operator]
                true = [possible for comparison, possible in order.items() if comparison in wanted]
                false = [possible for comparison, possible in order.items() if comparison not in wanted]
                return _Answers(reduce(np.logical_or, true), reduce(np.logical_or, false), column.null)
            case IsIn():
                return self._is_in(predicate)
            case IsNull():
                column = self._column(predicate.column)
                return _Answers(column.null, column.value, np.zeros_like(column.null))
            case Not():
                inner = self.answers(predicate.predicate)
                return _Answers(inner.false, inner.true, inner.unknown)
            case And():
                no = np.zeros(len(self.rows), dtype=bool)
                return reduce(_both, map(self.answers, predicate.predicates), _Answers(self.rows > 0, no, no))
            case Or():
                return self.answers(Not(And(tuple(map(Not, predicate.predicates)))))

    def _is_in(self, predicate: IsIn) -> _Answers:
        column = self._column(predicate.column)
        if len(predicate.values) > _MAX_VALUES:
            least, greatest = _range(predicate.values)
            above, below = column.order(least), column.order(greatest)
            within = (above[_EQUAL] | above[_GREATER]) & (below[_EQUAL] | below[_LESS])
            return _Answers(within, column.value, column.null)
        orders = [column.order(value) for value in predicate.values]
        true = reduce(np.logical_or, (order[_EQUAL] for order in orders))
        false = reduce(np.logical_and, (order[_LESS] | order[_GREATER] for order in orders))
        return _Answers(true, false, column.null)

    def _column(self, name: str) -> _Column:
        if name in self._columns:
            return self._columns[name]
        by_type: dict[pa.DataType | None, list[int]] = {}
        for number, schema in self.written.items():
            kind = schema.field(name).type if name in schema.names else None
            by_type.setdefault(kind, []).append(number)
        places = {kind: np.isin(self.schema_id, numbers) for kind, numbers in by_type.items()}
        nulls = np.full(len(self.rows), -1, dtype=np.int64)
        bounds = self.bounds.of_or_none(name)
        for table in bounds.values():
            nulls[table["file"].to_numpy()] = pc.fill_null(table["null_count"], -1).to_numpy()
        lacking = places.pop(None, np.zeros(len(self.rows), dtype=bool))
        nulls[lacking] = self.rows[lacking]
        typed = {kind: each for kind, each in places.items() if kind is not None}
        self._columns[name] = _Column(nulls != 0, (nulls < 0) | (nulls < self.rows), typed, bounds)
        return self._columns[name]


def _both(one: _Answers, other: _Answers) -> _Answers:
    unknown = (one.unknown & (other.unknown | other.true)) | (other.unknown & (one.unknown | one.true))
    return _Answers(one.true & other.true, one.false | other.false, unknown)


def _range(values: Sequence[Literal]) -> tuple[Literal, Literal]:
    """Return the least and the greatest of some values of one type; a NaN is the greatest."""
    decimal = pa.types.is_decimal(values[0].arrow_type)

    def key(literal: Literal) -> tuple[bool, Any]:
        value = literal.value
        return value != value, literal.unscaled if decimal else value.encode() if isinstance(value, str) else value

    ordered = sorted(values, key=key)
    return ordered[0], ordered[-1]


@dataclass(frozen=True)
class _Column:
    """One column: whether each file may hold a NULL or a value in it, the files that have it by type, its bounds."""

    null: np.ndarray
    value: np.ndarray
    places: Mapping[pa.DataType, np.ndarray]
    bounds: ByKind

    def order(self, literal: Literal) -> dict[Operator, np.ndarray]:
        """Return for each file whether some value may be less than, equal to, or greater than a literal."""
        less, equal, greater = self.value.copy(), self.value.copy(), self.value.copy()
        for kind, places in self.places.items():
            if pa.types.is_floating(kind) and kind == literal.arrow_type and literal.value != literal.value:
                greater[places] = False
                continue
            for physical, wanted in _physical(literal, kind):
                if physical in self.bounds:
                    table = self.bounds[physical]
                    files = table["file"].to_numpy()
                    here = np.flatnonzero(places[files])
                    files, table = files[here], table.take(pa.array(here))
                    least, known_least = _signs(table["minimum"], kind, wanted)
                    greatest, known_greatest = _signs(table["maximum"], kind, wanted)
                    less[files] &= ~known_least | (least < 0)
                    greater[files] &= ~known_greatest | (greatest > 0)
                    equal[files] &= (~known_least | (least <= 0)) & (~known_greatest | (greatest >= 0))
            if pa.types.is_floating(kind):
                greater[places] = self.value[places]  # bounds do not cover NaN
        return {_LESS: less, _EQUAL: equal, _GREATER: greater}


def _physical(literal: Literal, kind: pa.DataType) -> Iterator[tuple[str, Any]]:
    """Yield a literal's value as the bounds of a column hold it: the kind of bounds, and the value.

    Yields nothing if the file's values are converted before they are compared, except between integer types.
    """
    wanted, value = literal.arrow_type, literal.value
    if kind != wanted:
        if pa.types.is_integer(kind) and pa.types.is_integer(wanted):
            yield "integer", value
    elif pa.types.is_decimal(kind):
        yield "integer", literal.unscaled
        yield "binary", literal.unscaled
    elif isinstance(value, str):
        yield "binary", value.encode()
    elif isinstance(value, int) and (pa.types.is_timestamp(kind) or pa.types.is_time(kind)):
        yield "integer", value * 1000 if kind.unit == "s" else value  # Parquet has no unit of seconds
    else:
        yield _KINDS[type(value)], value


_KINDS = {bool: "boolean", int: "integer", float: "floating", bytes: "binary"}


def _signs(bounds: pa.ChunkedArray, kind: pa.DataType, wanted: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the sign of each bound minus a value (of a decimal, its unscaled integer), and whether it is known."""
    known = bounds.is_valid().to_numpy()
    if pa.types.is_binary(bounds.type) and pa.types.is_decimal(kind):
        # Big-endian two's complement numbers of the width that the precision requires.
        width = next(size for size in range(1, 33) if 10**kind.precision <= 1 << (8 * size - 1))
        known = pc.fill_null(pc.equal(pc.binary_length(bounds), width), False).to_numpy()
        decimals = [int.from_bytes(each, "big", signed=True) for each in bounds.filter(pa.array(known)).to_pylist()]
        signs = np.zeros(len(bounds), dtype=np.int8)
        signs[known] = [(decimal > wanted) - (decimal < wanted) for decimal in decimals]
        return signs, known
    if pa.types.is_binary(bounds.type):
        scalar = pa.scalar(wanted, bounds.type)
        above, below = (pc.fill_null(compare(bounds, scalar), False).to_numpy() for compare in (pc.greater, pc.less))
        return above.astype(np.int8) - below, known
    numbers = pc.fill_null(bounds, False if pa.types.is_boolean(bounds.type) else 0).to_numpy()
    if pa.types.is_unsigned_integer(kind):  # Parquet stores them in its signed types
        numbers = numbers.view(np.uint64) & np.uint64((1 << kind.bit_width) - 1)
    return (numbers > wanted).astype(np.int8) - (numbers < wanted), known & (numbers == numbers)
