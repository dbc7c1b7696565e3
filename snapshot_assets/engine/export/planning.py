"""Plans chunks: the scans of each, and how many tasks run them.

Sizes are estimates. Where an estimate fails, for example on a view, the chunk becomes one task.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.databases.source import AllRows, Database, Rows, Scan, TimelessRows, WindowRows
from snapshot_assets.databases.spark.source import SparkCatalogDatabase
from snapshot_assets.engine.export.chunks import SMALL_CHUNK, ChunkPlan, Frame
from snapshot_assets.engine.export.tasks import ChunkWork, timeless_rows_error
from snapshot_assets.engine.session import spark_errors
from snapshot_assets.errors import (
    ConsistencyLostError,
    DatabaseDeniedError,
    NoSnapshotError,
    SnapshotError,
    TransientError,
    UnknownRelationError,
)
from snapshot_assets.format.actions import Header
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.relations import DatabaseSchema, Table
from snapshot_assets.format.scrub import scrub

_LOG = logging.getLogger(__name__)

_OF_THE_SOURCE = (ConsistencyLostError, TransientError, DatabaseDeniedError, UnknownRelationError)
"""Errors of the whole source, which end the planning; any other error fails only its chunk."""

SLICE_BYTES = 128 << 20
"""Approximate size of the slices of a table's scan, each a Spark task."""


class Planner(Protocol):
    """Plans chunks of one snapshot."""

    def plans(self, chunks: Iterable[int]) -> Iterator[ChunkPlan]:
        """Yield the plan of each chunk, in order."""
        ...


@dataclass(frozen=True)
class _ChunkScans:
    """The scans of a snapshot's chunks.

    Attributes:
        state: The head's state, for header and windows.
        schema: The tables to export.
    """

    state: State
    schema: DatabaseSchema

    @property
    def header(self) -> Header:
        """The snapshot's header."""
        if self.state.header is None:
            raise NoSnapshotError("There is no snapshot at this location.")
        return self.state.header

    def scans(self, chunk: int) -> tuple[Scan, ...]:
        """Return a chunk's scans: every timed table's window; for chunk 0, untimed tables and rows without a time."""
        return tuple(Scan(table, rows) for table in self.schema.tables if (rows := self._rows(table, chunk)))

    def window_text(self, chunk: int) -> str:
        """Return a chunk's window as text for footers; "" for chunk 0."""
        return str(self.state.window(chunk)) if chunk != UNTIMED_CHUNK else ""

    def _rows(self, table: Table, chunk: int) -> Rows | None:
        if chunk == UNTIMED_CHUNK:
            return AllRows() if table.time_index is None else TimelessRows()
        if table.time_index is None:
            return None
        window = self.state.window(chunk)
        return WindowRows(window.start, window.end, self.header.time_zone)


@dataclass(frozen=True)
class ScanPlanner(_ChunkScans):
    """Plans tasks that read a database, each over its own connection.

    Attributes:
        database: Estimates and cuts scans.
        most_parts: Most slices of one table's scan.
    """

    database: Database
    most_parts: int = 1

    def plans(self, chunks: Iterable[int]) -> Iterator[ChunkPlan]:
        """Yield the plan of each chunk, in order.

        Raises:
            ConsistencyLostError: The state that the run reads is lost.
            TransientError: The source cannot be reached.
            DatabaseDeniedError: The source denies access.
            UnknownRelationError: A table is gone.
        """
        for chunk in chunks:
            scans, window = self.scans(chunk), self.window_text(chunk)
            work = ChunkWork(chunk, window, scans, timeless_allowed=self.header.null_time == "chunk0")
            try:
                yield self._sized(work)
            except _OF_THE_SOURCE:
                raise
            except SnapshotError as error:
                _LOG.warning("Chunk %s is one task, because its size cannot be estimated: %s", chunk, scrub(str(error)))
                yield ChunkPlan(chunk, (work,), SMALL_CHUNK, window)

    def _sized(self, work: ChunkWork) -> ChunkPlan:
        chunk, scans, window = work.chunk, work.scans, work.window
        sizes = [self.database.estimate(scan).bytes for scan in scans]
        if sum(sizes) < SMALL_CHUNK:
            return ChunkPlan(chunk, (work,), sum(sizes), window)
        parts = [part for scan, size in zip(scans, sizes, strict=True) for part in self._slices(scan, size)]
        works = tuple(replace(work, scans=(part,), whole=len(parts) == 1) for part in parts)
        return ChunkPlan(chunk, works, sum(sizes), window)

    def _slices(self, scan: Scan, size: int) -> list[Scan]:
        parts = min(self.most_parts, -(-size // SLICE_BYTES))
        return self.database.split(scan, parts) if parts > 1 else [scan]


@dataclass(frozen=True)
class GivenFrames(_ChunkScans):
    """Plans chunks whose DataFrames a user's own asset returned.

    Attributes:
        frames: The DataFrames by chunk.
    """

    frames: Mapping[int, tuple[Frame, ...]]

    def plans(self, chunks: Iterable[int]) -> Iterator[ChunkPlan]:
        """Yield the plan of each chunk, in order."""
        for chunk in chunks:
            yield ChunkPlan(chunk, window=self.window_text(chunk), frames=self.frames[chunk])


@dataclass(frozen=True)
class FramePlanner(_ChunkScans):
    """Plans DataFrames of a Spark catalog's tables.

    Attributes:
        catalog: Makes the DataFrames.
    """

    catalog: SparkCatalogDatabase

    def plans(self, chunks: Iterable[int]) -> Iterator[ChunkPlan]:
        """Yield the plan of each chunk, in order. Nothing is read yet.

        Raises:
            SnapshotError: The catalog cannot be reached, or a table is gone or changed.
        """
        for chunk in chunks:
            check = self._refuse_timeless if chunk == UNTIMED_CHUNK and self.header.null_time == "fail" else None
            yield ChunkPlan(chunk, window=self.window_text(chunk), frames=self._frames(chunk), check=check)

    def _frames(self, chunk: int) -> tuple[Frame, ...]:
        return tuple((scan.table, self.catalog.dataframe(scan)) for scan in self.scans(chunk))

    def _refuse_timeless(self) -> None:
        for table, frame in self._frames(UNTIMED_CHUNK):
            with spark_errors():
                refused = table.time_index is not None and not frame.isEmpty()
            if refused:
                raise timeless_rows_error(table)
