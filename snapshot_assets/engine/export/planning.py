"""Plans the chunks of a run: the scans of each, and how many tasks run them.

Sizes are estimates. Where an estimate fails, for example on a view, the chunk becomes one task.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.databases.protocol.source import AllRows, Database, Rows, Scan, TimelessRows, WindowRows
from snapshot_assets.databases.spark.source import SparkCatalogDatabase
from snapshot_assets.engine.export.chunks import SMALL_CHUNK
from snapshot_assets.engine.export.division import Portion, divided, recorded_parts, together
from snapshot_assets.engine.export.hidden_values import hide_values
from snapshot_assets.engine.export.tasks import ChunkWork, Frame, timeless_rows_error
from snapshot_assets.engine.session import spark_errors
from snapshot_assets.errors import (
    ConflictError,
    ConsistencyLostError,
    DatabaseDeniedError,
    PlugInError,
    SnapshotError,
    TransientError,
    UnknownRelationError,
)
from snapshot_assets.format.actions import Header
from snapshot_assets.format.chunk_parts import KeyRange
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.names import Spellings, rule_of
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName
from snapshot_assets.format.scrub import scrub

_LOG = logging.getLogger(__name__)

_OF_THE_SOURCE = (ConsistencyLostError, TransientError, DatabaseDeniedError, PlugInError, UnknownRelationError)
"""Errors of the whole source, which end the planning; any other error fails only its chunk."""

SLICE_BYTES = 32 << 20
"""Approximate size of the slices of a table's scan, each a Spark task."""

COUNTED_TOGETHER = 50
"""Most tables that one statement counts: a server locks each, with its indexes."""

FEW_WINDOWS, MANY_WINDOWS = 8, 64
"""Most windows in a row whose sizes are estimated together: at first, and once such rows proved to be small."""

RANGE_ROWS = 1000
"""Fewest rows of a query's ranges, each a Spark task, unless the rows are large."""

_Counts = dict[int, dict[TableName, int]]
"""Rows of each chunk by table."""

_Read = dict[int, list[Rows]]
"""Rows of a table that are read, by chunk."""


@dataclass(frozen=True)
class Planner:
    """Plans chunks of one snapshot, from the head's state, for the tables of a schema.

    Attributes:
        only: The parts that are read of a chunk whose other files stay; see `ChunkWork`.
        untimed: What is read of untimed tables, and of which part each is; by default, the parts that the log has.
    """

    state: State
    schema: DatabaseSchema
    only: Mapping[int, frozenset[Portion]] = field(default_factory=dict, kw_only=True)
    untimed: Mapping[TableName, Mapping[Rows, Portion]] | None = field(default=None, kw_only=True)

    @property
    def header(self) -> Header:
        """The snapshot's header."""
        assert self.state.header is not None
        return self.state.header

    def plan(self, chunk: int) -> ChunkWork:
        """Return how a chunk is read."""
        raise NotImplementedError

    def plans(self, chunks: Iterable[int]) -> Iterator[ChunkWork]:
        """Plan chunks in order, each when it is taken."""
        return map(self.plan, chunks)

    def scans(self, chunk: int) -> tuple[Scan, ...]:
        """Return a chunk's scans: every timed table's window; for chunk 0, untimed tables and rows without a time."""
        order_by = self.header.partition_by
        return tuple(
            Scan(table, rows, order_by=order_by) for table in self.schema.tables for rows in self._rows(table, chunk)
        )

    def window_text(self, chunk: int) -> str:
        """Return a chunk's window as text for footers; "" for chunk 0."""
        return str(self.state.window(chunk)) if chunk != UNTIMED_CHUNK else ""

    def _rows(self, table: Table, chunk: int) -> Sequence[Rows]:
        """Return what is read of a table: nothing, all of its rows in the chunk, or ranges of them."""
        windowed, name, only = bool(table.options.get("windowed")), table.table_name, self.only.get(chunk)
        if chunk == UNTIMED_CHUNK and table.time_index is None and not windowed:
            read = self._untimed.get(name, {})
            return [rows for rows, known in read.items() if only is None or name in only or known in only]
        if only is not None and name not in only:
            return ()
        if chunk == UNTIMED_CHUNK:
            return () if windowed else (TimelessRows(),)
        if table.time_index is None and not windowed:
            return ()
        window = self.state.window(chunk)
        return (WindowRows(window.start, window.end, self.header.time_zone),)

    @cached_property
    def _untimed(self) -> Mapping[TableName, Mapping[Rows, Portion]]:
        return recorded_parts(self.state, self.schema) if self.untimed is None else self.untimed

    def range_of(self, scan: Scan) -> KeyRange | None:
        """Return the range that a scan reads, as the log has it; None for other rows."""
        known = self._untimed[scan.table.table_name].get(scan.rows)
        return known if isinstance(known, KeyRange) else None


@dataclass(frozen=True)
class ScanPlanner(Planner):
    """Plans tasks that read a database, each over its own connection.

    Attributes:
        most_parts: Returns the most slices of one table's scan; called only for what is large enough to be divided.
        split_by: Column by whose ranges the rows of a query are read.
        range_bytes: Size of the ranges that larger untimed tables are divided into; 0 for tables that are not.
        counts: Whether rows are counted, because tasks read the state that `database` reads.
    """

    database: Database
    most_parts: Callable[[], int] = lambda: 1
    split_by: str | None = None
    range_bytes: int = 0
    counts: bool = True

    def plans(self, chunks: Iterable[int]) -> Iterator[ChunkWork]:
        """Plan chunks in order, each when it is taken; windows in a row that are small are estimated together.

        Raises:
            SnapshotError: See `plan`.
        """
        todo = deque(chunks)
        yield from (self._dividing() if UNTIMED_CHUNK in todo else self)._plans(todo)

    def _dividing(self) -> ScanPlanner:
        """Return this planner with ranges of the large untimed tables, as the log has them where it does.

        Raises:
            ConflictError: A range that is to be read is not in the log any more.
        """
        asked = {part for part in self.only.get(UNTIMED_CHUNK, ()) if isinstance(part, KeyRange)}
        if not asked.issubset(part for parts in self._untimed.values() for part in parts.values()):
            raise ConflictError("Another writer changed ranges of tables that are to be exported again. Run again.")
        untimed = {
            table.table_name: {
                each: self._untimed[table.table_name][rows]
                for rows in self._rows(table, UNTIMED_CHUNK)
                for each in self._divided(table, rows)
            }
            for table in self.schema.tables
            if table.time_index is None
        }
        return replace(self, untimed=untimed)

    def _divided(self, table: Table, rows: Rows) -> Sequence[Rows]:
        try:
            return divided(self.database, table, rows, self.range_bytes)
        except _OF_THE_SOURCE:
            raise
        except SnapshotError as error:
            _LOG.warning("%s is read as one part: %s", table.table_name, self._text(error))
            return [rows]

    def _plans(self, todo: deque[int]) -> Iterator[ChunkWork]:
        most = FEW_WINDOWS
        # After a count that differed, only the failed windows are read: few enough for the index that hides their rows.
        tried = any(chunk in self.state.chunks and not self.state.completed(chunk) for chunk in todo)
        counts: _Counts = {chunk: {} for chunk in todo}
        for reads in self._counted_together(tuple(todo)) if self.counts else ():
            self._count(reads, tried, counts)
        while todo:
            row = [todo.popleft()]
            while todo and len(row) < most and todo[0] == row[-1] + 1 and row[0] != UNTIMED_CHUNK:
                row.append(todo.popleft())
            size = self._size_together(row) if len(row) > 1 and self.split_by is None else SMALL_CHUNK
            if size < SMALL_CHUNK:
                works = [self.plan(chunk, size // len(row)) for chunk in row]
            else:
                works = [self.plan(chunk) for chunk in row]
            yield from (replace(work, counts=counts[work.chunk]) for work in works)
            most = min(2 * most, MANY_WINDOWS) if sum(work.size for work in works) < SMALL_CHUNK else 1

    def _counted_together(self, chunks: Sequence[int]) -> Iterator[list[tuple[Table, _Read]]]:
        """Yield tables with their rows of each chunk: many that are read as a whole together, others alone."""
        whole = [table for table in self.schema.tables if together(self._rows(table, UNTIMED_CHUNK)) == [AllRows()]]
        if UNTIMED_CHUNK in chunks:
            for first in range(0, len(whole), COUNTED_TOGETHER):
                yield [(table, {UNTIMED_CHUNK: [AllRows()]}) for table in whole[first : first + COUNTED_TOGETHER]]
        untimed = {table.table_name for table in whole}
        for table in self.schema.tables:
            if table.table_name in untimed:
                continue
            if read := {chunk: together(rows) for chunk in chunks if (rows := self._rows(table, chunk))}:
                yield [(table, read)]

    def _count(self, reads: Sequence[tuple[Table, _Read]], tried: bool, counts: _Counts) -> None:
        """Add the rows of tables to `counts`, as the database counts them; if that fails, of each table alone."""
        try:
            counted = list(
                self.database.count_rows(
                    [(table, list(chain(*read.values()))) for table, read in reads], thorough=tried
                )
            )
        except _OF_THE_SOURCE:
            raise
        except SnapshotError as error:
            if len(reads) == 1:
                _LOG.warning("Rows of %s are read without being counted: %s", reads[0][0].table_name, self._text(error))
                return
            for each in reads:
                self._count([each], tried, counts)
            return
        for (table, read), numbers in zip(reads, counted, strict=True):
            left = iter(numbers or ())
            for chunk, rows in read.items() if numbers is not None else ():
                counts[chunk][table.table_name] = sum(islice(left, len(rows)))

    def _text(self, error: SnapshotError) -> str:
        return scrub(str(hide_values(error) if self.header.hidden else error))

    def _size_together(self, row: Sequence[int]) -> int:
        """Return the estimated bytes of windows in a row; `SMALL_CHUNK` if some window cannot be estimated."""
        first, last = self.state.window(row[0]), self.state.window(row[-1])
        rows = WindowRows(first.start, last.end, self.header.time_zone)
        try:
            return sum(
                self.database.estimate(Scan(table, rows, order_by=self.header.partition_by))
                for table in self.schema.tables
                if any(isinstance(each, WindowRows) for each in self._rows(table, row[0]))
            )
        except _OF_THE_SOURCE:
            raise
        except SnapshotError:
            return SMALL_CHUNK

    def plan(self, chunk: int, size: int | None = None) -> ChunkWork:
        """Return how a chunk is read: as one task if its size in bytes was estimated before, because it is small.

        Raises:
            SnapshotError: The source is lost, out of reach or denied, or a table is gone.
        """
        scans, allowed = self.scans(chunk), self.header.null_time == "chunk0"
        work = ChunkWork(
            chunk,
            self.window_text(chunk),
            (scans,) if scans or chunk not in self.only else (),
            timeless_allowed=allowed,
            only=self.only.get(chunk),
        )
        if size is not None:
            return replace(work, size=size)
        try:
            sizes = [self.database.estimate(scan) for scan in scans]
            if not sizes or (sum(sizes) < SMALL_CHUNK and self.split_by is None):
                return replace(work, size=sum(sizes))
            return replace(work, scans=tuple(self._tasks(zip(scans, sizes, strict=True))), size=sum(sizes))
        except _OF_THE_SOURCE:
            raise
        except SnapshotError as error:
            _LOG.warning("Chunk %s is one task, because its size cannot be estimated: %s", chunk, self._text(error))
            return replace(work, size=SMALL_CHUNK)

    def _tasks(self, sized: Iterable[tuple[Scan, int]]) -> Iterator[tuple[Scan, ...]]:
        """Divide scans, given with their bytes, into those of each task: small ones share one, as small chunks do."""
        task, total = list[Scan](), 0
        for scan, size in sized:
            parts = self._slices(scan, size)
            for part in parts:
                own = size // len(parts)
                if task and (total + own > SMALL_CHUNK or self.split_by is not None):
                    yield tuple(task)
                    task, total = [], 0
                task.append(part)
                total += own
        yield tuple(task)

    def _slices(self, scan: Scan, size: int) -> list[Scan]:
        if self.header.single_file:
            return [scan]
        if self.split_by is not None and (most := self.most_parts()) > 1:
            # Rows are counted: the sizes of queries are often estimated far too low.
            spellings = Spellings(rule_of(self.schema), (each.name for each in scan.table.columns))
            quantiles = self.database.quantiles(scan, spellings.of(self.split_by), most)
            parts = min(most, max(quantiles.rows // RANGE_ROWS, -(-size // SMALL_CHUNK), 1))
            return [replace(scan, part=each) for each in quantiles.ranges(parts)]
        parts = min(self.most_parts(), -(-size // SLICE_BYTES)) if size > SLICE_BYTES else 1
        return self.database.split(scan, parts) if parts > 1 else [scan]


@dataclass(frozen=True)
class GivenFrames(Planner):
    """Plans chunks whose DataFrames, by chunk, a user's own asset returned."""

    frames: Mapping[int, tuple[Frame, ...]]

    def plan(self, chunk: int) -> ChunkWork:
        """Return how a chunk is read."""
        return ChunkWork(chunk, self.window_text(chunk), frames=self.frames[chunk])


@dataclass(frozen=True)
class FramePlanner(Planner):
    """Plans DataFrames of a Spark catalog's tables."""

    catalog: SparkCatalogDatabase

    def plan(self, chunk: int) -> ChunkWork:
        """Return how a chunk is read. Nothing is read yet.

        Raises:
            SnapshotError: The catalog cannot be reached, or a table is gone or changed.
        """
        check = self._refuse_timeless if chunk == UNTIMED_CHUNK and self.header.null_time == "fail" else None
        frames, only = self._frames(chunk), self.only.get(chunk)
        return ChunkWork(chunk, self.window_text(chunk), frames=frames, check=check, only=only)

    def _frames(self, chunk: int) -> tuple[Frame, ...]:
        frames = [(scan.table, self.catalog.dataframe(scan)) for scan in self.scans(chunk)]
        return tuple((table, frame.coalesce(1) if self.header.single_file else frame) for table, frame in frames)

    def _refuse_timeless(self) -> None:
        for table, frame in self._frames(UNTIMED_CHUNK):
            with spark_errors():
                refused = table.time_index is not None and not frame.isEmpty()
            if refused:
                raise timeless_rows_error(table)
