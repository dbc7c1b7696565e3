"""Exports chunks: adopts those that an earlier run finished, reads the others, commits each as one transaction.

A `Runner` runs the tasks, in Spark or in this process. This module decides what is committed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Protocol

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog, Token
from snapshot_assets.catalog.receipts.receipts import Receipt, write_young_receipt
from snapshot_assets.catalog.receipts.selection import find_adoptable
from snapshot_assets.catalog.state.file_columns import FileState
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.engine.export.tasks import ChunkPlan, ChunkResult, Frame, Task, run_task, write_table
from snapshot_assets.engine.jobs import (
    JOB_BYTES,
    JOB_CHUNKS,
    FileSums,
    MapRunner,
    error_of,
    first_failures,
    shared_jobs,
    side_by_side,
)
from snapshot_assets.engine.retry import RetryPolicy, attempt_chunks
from snapshot_assets.errors import (
    ExportFailedError,
    LocationDeletedError,
    OutcomeUnknownError,
    SnapshotError,
    SupersededError,
)
from snapshot_assets.format.actions import ObjectRef
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.scrub import scrub

_LOG = logging.getLogger(__name__)


class Runner(MapRunner, Protocol):
    """Runs the tasks of an export."""

    def run_frames(self, task: Task, chunk: int, window: str, frames: Sequence[Frame]) -> Iterable[ChunkResult]:
        """Write a chunk's DataFrames with the settings of a task and yield the parts' results."""


@dataclass(frozen=True)
class Outcome(FileSums):
    """Outcome of a chunk in this run.

    Attributes:
        status: `exported`, `replaced`, `adopted` (an earlier attempt's receipt), `skipped` (completed before), or
            `failed`.
        seconds: Time of the slowest task, reading and writing.
    """

    chunk: int
    status: str
    files: tuple[DataFile, ...] = ()
    seconds: float = 0.0
    error: SnapshotError | None = None


@dataclass(frozen=True)
class Export:
    """Settings of one run.

    Attributes:
        task: A task without works: where the run's tasks read and write, and the origin of their files.
        parallelism: Most Spark jobs at a time.
        replace: Whether completed chunks are exported again.
        replaced: With `replace`, the files of each chunk when the run planned.
        keep_empty: Whether a chunk without rows has a file for each table, with its schema or header.
    """

    catalog: Catalog
    token: Token
    task: Task
    runner: Runner
    parallelism: int = 1
    replace: bool = False
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    replaced: Mapping[int, tuple[FileState, ...]] = field(default_factory=dict)
    keep_empty: bool = False

    def supersedes(self, chunk: int) -> tuple[str, ...]:
        """Return the attempts whose files a replace of the chunk removes."""
        return tuple(sorted({each.file.attempt for each in self.replaced.get(chunk, ())}))


SMALL_CHUNK = 8 << 20
"""Chunks estimated below this many bytes share a task."""


def export_chunks(export: Export, plan: Callable[[int], ChunkPlan], chunks: Sequence[int]) -> Iterator[Outcome]:
    """Export chunks; yields each outcome once it is committed.

    Args:
        export: The run.
        plan: Plans a chunk that has to be read: one that is neither completed nor adoptable.
        chunks: Chunk ids, in order.

    Raises:
        ExportFailedError: Some chunks failed, after all others were tried; names them.
        SupersededError: Another snapshot was started meanwhile.
    """
    failed: dict[int, str] = {}
    pending: list[int] = []
    receipts = _adoptable_receipts(export, chunks)
    for chunk in chunks:
        outcome = _without_reading(export, chunk, receipts.get(chunk))
        if outcome is None:
            pending.append(chunk)
        else:
            yield outcome
    if pending:
        if export.replace:
            state = export.catalog.state
            export = replace(export, replaced={chunk: tuple(state.live_files(chunk)) for chunk in pending})
        batches = _batches([plan(chunk) for chunk in pending], export.parallelism)
        export.catalog.commit(rules.in_progress(export.token, pending, export.task.provenance.run))
        yield from side_by_side(partial(_run_batch, export), batches, export.parallelism, "export", failed)
    if failed:
        raise ExportFailedError(
            f"{len(failed)} of {len(chunks)} chunks failed: {first_failures(failed)}. The others are committed; run"
            " again to retry the failed ones.",
            chunks=failed,
        )


def skipped_chunk(state: State, chunk: int) -> Outcome:
    """Return the outcome of a chunk that was completed before."""
    return Outcome(chunk, "skipped", tuple(each.file for each in state.live_files(chunk)))


def _adoptable_receipts(export: Export, chunks: Sequence[int]) -> Mapping[int, tuple[Receipt, ObjectRef]]:
    state = export.catalog.refresh()
    incomplete = [chunk for chunk in chunks if not state.completed(chunk)]
    if export.replace or not incomplete:
        return {}
    return find_adoptable(export.catalog.store, state, incomplete, export.task.provenance.schema_sha256)


def _without_reading(export: Export, chunk: int, adoptable: tuple[Receipt, ObjectRef] | None) -> Outcome | None:
    """Skip a completed chunk, or adopt its receipt; returns None if the chunk has to be read."""
    if export.replace:
        return None
    if export.catalog.state.completed(chunk):
        return skipped_chunk(export.catalog.state, chunk)
    if adoptable is None:
        return None
    receipt, ref = adoptable
    result = ChunkResult(chunk, datetime.now(UTC), receipt.files, ref)  # garbage collection keeps it at any age
    try:
        return _commit(export, result, "adopted", receipt)
    except rules.StaleReceiptError as stale:
        _LOG.info("%s", stale)
        return None


def _batches(plans: Sequence[ChunkPlan], parallelism: int) -> list[list[ChunkPlan]]:
    """Group small chunks, in order; a large chunk is a batch of its own."""

    def size(plan: ChunkPlan) -> int:
        small = plan.size < SMALL_CHUNK and len(plan.works) == 1
        return plan.size if small else JOB_BYTES + 1

    return shared_jobs(plans, size, min(JOB_CHUNKS, -(-len(plans) // parallelism)))


def _run_batch(export: Export, batch: Sequence[ChunkPlan], stop: threading.Event) -> list[Outcome]:
    """Run one batch; chunks with a transient failure are retried by themselves."""

    def attempt(plans: Sequence[ChunkPlan]) -> Iterator[Outcome]:
        for result in _attempt(export, plans):
            yield _commit_or_fail(export, result)

    outcomes = attempt_chunks(batch, stop, attempt, export.retry)
    for outcome in outcomes:
        if outcome.error is not None:
            _record_failure(export, outcome.chunk, outcome.error)
    return outcomes


def _attempt(export: Export, plans: Sequence[ChunkPlan]) -> list[ChunkResult]:
    """Run the plans' tasks once and return one result per chunk."""
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
        if plan.check is not None:
            plan.check()
        if plan.frames:
            yield from export.runner.run_frames(export.task, plan.chunk, plan.window, plan.frames)


def _joined(plan: ChunkPlan, parts: Sequence[ChunkResult], now: datetime) -> ChunkResult:
    """Join a chunk's parts; a missing part is an error, never an empty one."""
    error = error_of(plan.chunk, parts, len(plan.works) or len(parts))
    if error is not None:
        return ChunkResult(plan.chunk, now, error=error)
    if len(parts) == 1:
        return parts[0]
    files = tuple(file for part in parts for file in part.files)
    opened_at = min((part.opened_at for part in parts), default=now)
    return ChunkResult(plan.chunk, opened_at, files, seconds=max((part.seconds for part in parts), default=0.0))


def _commit_or_fail(export: Export, result: ChunkResult) -> Outcome:
    """Commit a result; an error of one chunk fails only that chunk."""
    if result.error is not None:
        return Outcome(result.chunk, "failed", error=result.error)
    try:
        return _commit_replacing(export, result) if export.replace else _commit(export, result, "exported")
    except (SupersededError, LocationDeletedError):  # nothing of this run can be committed any more
        raise
    except SnapshotError as error:
        return Outcome(result.chunk, "failed", error=error)


def _commit_replacing(export: Export, result: ChunkResult) -> Outcome:
    """Commit a replacement of the files that hold the chunk's rows, also if it was compacted meanwhile."""
    while True:
        try:
            return _commit(export, result, "replaced")
        except rules.CompactedMeanwhileError:
            live = tuple(export.catalog.refresh().live_files(result.chunk))
            export = replace(export, replaced={**export.replaced, result.chunk: live})
            result = replace(result, receipt=None)  # it names the attempts that are replaced


def _commit(export: Export, result: ChunkResult, status: str, adopted: Receipt | None = None) -> Outcome:
    catalog = export.catalog
    receipt = result.receipt or write_young_receipt(
        catalog.store, export.task.provenance.receipt(result, export.supersedes(result.chunk)), catalog.now()
    )
    finished = rules.FinishedChunk(
        id=result.chunk,
        files=result.files,
        receipts=(receipt,),
        opened_at=result.opened_at,
        fence=adopted.fence if adopted else export.task.provenance.fence,
        run=export.task.provenance.run,
        replaces=tuple(each.file.path for each in export.replaced[result.chunk]) if export.replace else None,
        base_revision=adopted.base_revision if adopted else None,
    )
    revision = catalog.commit(rules.complete_chunk(export.token, finished, catalog.now))
    if revision is None:
        return skipped_chunk(catalog.state, result.chunk)
    return Outcome(result.chunk, status, result.files, result.seconds)


def _record_failure(export: Export, chunk: int, error: SnapshotError) -> None:
    """Record in the log that a chunk failed; an error of this commit is only logged.

    An unknown outcome is not recorded: the commit may have taken effect, and its receipt stays adoptable.
    """
    if isinstance(error, OutcomeUnknownError):
        return
    try:
        export.catalog.commit(rules.fail_chunk(export.token, chunk, scrub(str(error)), export.task.provenance.run))
    except (SupersededError, LocationDeletedError):
        raise
    except SnapshotError as second:
        _LOG.warning("The failure of chunk %s could not be recorded: %s", chunk, scrub(str(second)))
