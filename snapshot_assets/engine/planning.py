"""Planning: which scans make up a chunk, and into how many tasks they go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from snapshot_assets.catalog.state import State
from snapshot_assets.databases.base import AllRows, Database, Rows, Scan, TimelessRows, WindowRows
from snapshot_assets.engine.export import SMALL_CHUNK, ChunkPlan
from snapshot_assets.engine.tasks import ChunkWork
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.relations import DatabaseSchema, Table

SLICE_BYTES = 128 << 20
"""A table's share of a chunk is cut into slices of about this size, each a Spark task."""


@dataclass(frozen=True)
class ChunkPlanner:
    """Plans chunks of one snapshot against one open database.

    Attributes:
        state: The head's state, for header and windows.
        schema: The tables to export.
        most_parts: Most slices of one table's scan.
    """

    state: State
    schema: DatabaseSchema
    database: Database
    most_parts: int = 1

    def plans(self, chunks: Iterable[int]) -> Iterator[ChunkPlan]:
        """Yield the plan of each chunk, in order."""
        for chunk in chunks:
            yield self._plan(chunk)

    def scans(self, chunk: int) -> tuple[Scan, ...]:
        """Return a chunk's scans: every timed table's window; for chunk 0 untimed tables and rows without a time."""
        return tuple(Scan(table, rows) for table in self.schema.tables if (rows := self._rows(table, chunk)))

    def _rows(self, table: Table, chunk: int) -> Rows | None:
        header = self.state.header
        assert header is not None
        if chunk == UNTIMED_CHUNK:
            return AllRows() if table.time_index is None else TimelessRows()
        if table.time_index is None:
            return None
        window = self.state.window(chunk)
        return WindowRows(window.start, window.end, header.time_zone)

    def _plan(self, chunk: int) -> ChunkPlan:
        header = self.state.header
        assert header is not None
        scans = self.scans(chunk)
        window = str(self.state.window(chunk)) if chunk != UNTIMED_CHUNK else ""
        work = ChunkWork(chunk, window, scans, timeless_allowed=header.null_time == "chunk0")
        sizes = [self.database.estimate(scan).bytes for scan in scans]
        if sum(sizes) < SMALL_CHUNK:
            return ChunkPlan(chunk, (work,), sum(sizes), window)
        parts = [part for scan, size in zip(scans, sizes, strict=True) for part in self._slices(scan, size)]
        works = tuple(replace(work, scans=(part,), whole=len(parts) == 1) for part in parts)
        return ChunkPlan(chunk, works, sum(sizes), window)

    def _slices(self, scan: Scan, size: int) -> list[Scan]:
        parts = min(self.most_parts, -(-size // SLICE_BYTES))
        return self.database.split(scan, parts) if parts > 1 else [scan]
