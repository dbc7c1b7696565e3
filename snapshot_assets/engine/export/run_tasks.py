"""Runs the tasks of some chunks once, and joins what each chunk's tasks return."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from snapshot_assets.catalog.catalog import Catalog, Token
from snapshot_assets.engine.export.tasks import ChunkPlan, ChunkResult, Frame, Task, run_task, write_table
from snapshot_assets.engine.export.withheld import withheld
from snapshot_assets.engine.jobs import MapRunner, error_of
from snapshot_assets.engine.retry import RetryPolicy
from snapshot_assets.errors import DatabaseError, SnapshotError

if TYPE_CHECKING:
    from snapshot_assets.catalog.state.file_columns import FileState


class Runner(MapRunner, Protocol):
    """Runs the tasks of an export."""

    def run_frames(self, task: Task, chunk: int, window: str, frames: Sequence[Frame]) -> Iterable[ChunkResult]:
        """Write a chunk's DataFrames with the settings of a task and yield the parts' results."""


@dataclass(frozen=True)
class Export:
    """Settings of one run.

    Attributes:
        task: A task without works: where the run's tasks read and write, and the origin of their files.
        parallelism: Returns the most Spark jobs at a time.
        replace: Whether completed chunks are exported again.
        status: The status of chunks that were read, in their outcomes.
        replaced: With `replace`, the files of each chunk when the run planned.
        new: With `replace`, the chunks that were not completed then, so that nothing of them is replaced.
        keep_empty: Whether a chunk without rows has a file for each table, with its schema or header.
    """

    catalog: Catalog
    token: Token
    task: Task
    runner: Runner
    parallelism: Callable[[], int] = lambda: 1
    replace: bool = False
    status: str = "exported"
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    replaced: Mapping[int, tuple[FileState, ...]] = field(default_factory=dict)
    new: frozenset[int] = frozenset()
    keep_empty: bool = False

    def repairing(self) -> Export:
        """Return the settings to export damaged chunks again: rows that were deleted from them stay deleted."""
        provenance = replace(self.task.provenance, tombstones_through=0)
        return replace(self, replace=True, status="repaired", task=replace(self.task, provenance=provenance))

    def supersedes(self, chunk: int) -> tuple[str, ...]:
        """Return the attempts whose files a replace of the chunk removes."""
        return tuple(sorted({each.file.attempt for each in self.replaced.get(chunk, ())}))


def run_tasks(export: Export, plans: Sequence[ChunkPlan]) -> list[ChunkResult]:
    """Run the plans' tasks once and return one result per chunk."""
    results = _results(export, plans)
    header = export.task.provenance.header
    if header is None or not header.hidden:
        return results
    return [replace(each, error=withheld(each.error)) if each.error is not None else each for each in results]


def _results(export: Export, plans: Sequence[ChunkPlan]) -> list[ChunkResult]:
    now = datetime.now(UTC)
    try:
        parts = list(_run(export, plans))
    except SnapshotError as error:
        return [ChunkResult(plan.chunk, now, error=error) for plan in plans]
    joined = [_joined(plan, [part for part in parts if part.chunk == plan.chunk], now) for plan in plans]
    if not export.keep_empty:
        return joined
    return [_with_empty_files(export, plan, result) for plan, result in zip(plans, joined, strict=True)]


def _with_empty_files(export: Export, plan: ChunkPlan, result: ChunkResult) -> ChunkResult:
    """Return a result with a file for each table, if it has no file at all."""
    if result.files or result.error is not None:
        return result
    tables = [scan.table for work in plan.works for scan in work.scans] or [table for table, _ in plan.frames]
    unique = {table.table_name: table for table in tables}
    task = export.task
    try:
        files = tuple(
            file
            for table in unique.values()
            for file in write_table(
                task.store, task.provenance, plan.chunk, plan.window, table, (), task.max_file_size, keep_empty=True
            )
        )
    except SnapshotError as error:
        return ChunkResult(plan.chunk, result.opened_at, error=error)
    return replace(result, files=files, receipt=None)  # the receipt lists no file


def _run(export: Export, plans: Sequence[ChunkPlan]) -> Iterable[ChunkResult]:
    works = [replace(work, supersedes=export.supersedes(work.chunk)) for plan in plans for work in plan.works]
    if len(plans) == 1:
        yield from export.runner.map(run_task, [replace(export.task, works=(work,)) for work in works])
    elif works:
        yield from export.runner.map(run_task, [replace(export.task, works=tuple(works))])
    for plan in plans:
        if not plan.frames:
            continue
        if plan.check is not None:
            with export.runner.jobs(plan.frames[0][1].sparkSession):
                plan.check()
        yield from export.runner.run_frames(export.task, plan.chunk, plan.window, plan.frames)


def _joined(plan: ChunkPlan, parts: Sequence[ChunkResult], now: datetime) -> ChunkResult:
    """Join a chunk's parts; a missing part is an error, never an empty one."""
    error = error_of(plan.chunk, parts, len(plan.works) or len(parts))
    if error is not None:
        return ChunkResult(plan.chunk, now, error=error)
    if len(parts) == 1:
        return parts[0]
    files = tuple(file for part in parts for file in part.files)
    try:
        for work in plan.works[:1]:
            work.check_counts(files)
    except DatabaseError as lost:
        return ChunkResult(plan.chunk, now, error=lost)
    opened_at = min((part.opened_at for part in parts), default=now)
    return ChunkResult(plan.chunk, opened_at, files, seconds=max((part.seconds for part in parts), default=0.0))
