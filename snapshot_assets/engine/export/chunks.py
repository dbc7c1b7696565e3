"""Exports chunks: adopts those that an earlier run finished, reads the others, commits those of a job together.

A `Runner` runs the tasks, in Spark or in this process. This module joins what the tasks of a chunk return, and decides
what is committed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Protocol

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog, Token
from snapshot_assets.catalog.receipt_selection import find_adoptable
from snapshot_assets.catalog.receipts import Receipt, write_young_receipt
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.faults import Fault
from snapshot_assets.catalog.verify.objects import FEW_CHUNKS, damaged_chunks
from snapshot_assets.engine.export.tasks import ChunkWork, Outcome, Task, hide_values, run_task, write_table
from snapshot_assets.engine.jobs import (
    JOB_BYTES,
    Failures,
    MapRunner,
    Pace,
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
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.scrub import scrub
from snapshot_assets.format.units import counted
from snapshot_assets.format.windows import partition_key
from snapshot_assets.storage.base import ObjectStore

_LOG = logging.getLogger(__name__)


SMALL_CHUNK = 8 << 20
"""Chunks estimated below this many bytes share a task."""


class Runner(MapRunner, Protocol):
    """Runs the tasks of an export."""

    def run_frames(self, task: Task, work: ChunkWork) -> Iterable[Outcome]:
        """Write a chunk's DataFrames with the settings of a task and yield the parts' outcomes."""


@dataclass(frozen=True)
class Export:
    """Settings of one run.

    Attributes:
        task: A task without works: where the run's tasks read and write, and the origin of their files.
        plan: Plans chunks that have to be read, in order, each when it is taken.
        parallelism: Returns the most Spark jobs at a time.
        keep_empty: Whether a chunk without rows has a file for each table, with its schema or header.
    """

    catalog: Catalog
    token: Token
    task: Task
    plan: Callable[[Iterable[int]], Iterator[ChunkWork]]
    runner: Runner
    parallelism: Callable[[], int] = lambda: 1
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    keep_empty: bool = False


def export_chunks(
    export: Export, chunks: Sequence[int], *, replace_completed: bool = False
) -> Iterator[Sequence[Outcome]]:
    """Export chunks; yields the outcomes of each transaction's chunks once they are committed.

    Only chunks that are neither completed and whole nor adoptable are planned and read.

    Args:
        export: The run.
        chunks: Chunk ids, in order.
        replace_completed: Whether completed chunks are exported again.

    Raises:
        ExportFailedError: Some chunks failed, after all others were tried; names them.
        SupersededError: Another snapshot was started meanwhile.
    """
    failed = Failures()
    pending: list[int] = list(chunks)
    damaged: Mapping[int, tuple[Fault, ...]] = {}
    if not replace_completed:
        state = export.catalog.refresh()
        damaged, present = completed_chunks(export.catalog.store, state, chunks)
        for chunk, faults in damaged.items():
            _LOG.warning("Chunk %s is damaged and is exported again: %s", chunk, faults[0].message)
        if present:
            yield present
        pending = [chunk for chunk in chunks if not state.completed(chunk)]
        adopted: set[int] = set()
        for outcome in _adopt(export, pending):
            adopted.add(outcome.chunk)
            yield [outcome]
        pending = [chunk for chunk in pending if chunk not in adopted]
    tried = 0
    for outcomes in _read(export, pending, "replaced" if replace_completed else "exported", failed):
        tried += sum(each.counted for each in outcomes)
        yield outcomes
    provenance = replace(export.task.provenance, tombstones_through=0)  # rows that were deleted stay deleted
    repairing = replace(export, task=replace(export.task, provenance=provenance))
    for outcomes in _read(repairing, list(damaged), "repaired", failed):
        tried += sum(each.counted for each in outcomes)
        yield [replace(each, faults=damaged[each.chunk]) for each in outcomes]
    if failed:
        raise _failure(failed, tried, export.catalog.state)


def _failure(failed: Failures, tried: int, state: State) -> ExportFailedError:
    """Return the error of a run of which chunks failed; chunks that were complete before it are not counted."""

    def name(chunk: int) -> str:
        return f"{chunk} ({partition_key(state.window(chunk))})" if chunk != UNTIMED_CHUNK else str(chunk)

    return ExportFailedError(
        f"{len(failed):,} of {counted(tried, 'chunk')} failed: {first_failures(failed, name)}."
        f" {failed.report('committed', tried)}",
        **failed.attributes(),
    )


def _present(state: State, chunk: int, *, hashed: bool = False) -> Outcome:
    """Return the outcome of a chunk that was completed before."""
    return Outcome(chunk, "present", tuple(each.file for each in state.live_files(chunk)), hashed=hashed)


def completed_chunks(
    store: ObjectStore, state: State, chunks: Sequence[int]
) -> tuple[Mapping[int, tuple[Fault, ...]], list[Outcome]]:
    """Check the chunks that are completed; returns the faults of the damaged ones, and the outcomes of the others."""
    completed = [chunk for chunk in chunks if state.completed(chunk)]
    damaged = damaged_chunks(store, state, completed)
    hashed = len(completed) <= FEW_CHUNKS
    return damaged, [_present(state, chunk, hashed=hashed) for chunk in completed if chunk not in damaged]


def _adopt(export: Export, chunks: Sequence[int]) -> Iterator[Outcome]:
    """Commit the chunks whose receipts an earlier run left."""
    if not chunks:
        return
    sha256 = export.task.provenance.schema_sha256
    receipts = find_adoptable(export.catalog.store, export.catalog.state, chunks, sha256)
    for chunk, (receipt, ref) in sorted(receipts.items()):
        # Garbage collection keeps the receipt's files at any age.
        outcome = Outcome(chunk, "read", receipt.files, hashed=False, receipt=ref)
        try:
            [outcome] = _commit(export, [(ChunkWork(chunk, status="adopted"), outcome)], receipt)
        except rules.StaleReceiptError as stale:
            _LOG.info("%s", stale)
        else:
            yield outcome


def _read(export: Export, chunks: Sequence[int], status: str, failed: Failures) -> Iterator[Sequence[Outcome]]:
    """Read chunks from the source and commit them; adds the errors of those that fail to `failed`.

    Args:
        export: The run.
        chunks: Chunk ids, in order.
        status: The status of chunks whose files are replaced, or `exported` where no chunk may be completed yet.
        failed: Gets the error of each failed chunk.
    """
    if not chunks:
        return
    state = export.catalog.state
    replaced: dict[int, tuple[DataFile, ...]] = {}
    if status != "exported":
        replaced = {chunk: tuple(each.file for each in state.live_files(chunk)) for chunk in chunks}
    new = {chunk for chunk in chunks if not state.completed(chunk)}
    export.catalog.commit(rules.in_progress(export.token, chunks, export.task.provenance.run))
    works = (
        replace(work, replaces=replaced.get(work.chunk), status="exported" if work.chunk in new else status)
        for work in export.plan(chunks)
    )
    pace = Pace()
    jobs = shared_jobs(works, _job_bytes, pace)
    run = partial(_run_job, export, pace)
    yield from side_by_side(run, jobs, export.parallelism, "export", failed, export.runner.interrupt)


def _job_bytes(work: ChunkWork) -> int:
    """Return a chunk's size for grouping: a chunk that is large or has several tasks is a job of its own."""
    return work.size if work.size < SMALL_CHUNK and len(work.scans) == 1 else JOB_BYTES + 1


def _run_job(export: Export, pace: Pace, job: Sequence[ChunkWork], stop: threading.Event) -> list[Outcome]:
    """Run one job; chunks with a transient failure are retried by themselves."""

    def attempt(works: Sequence[ChunkWork]) -> Iterable[Outcome]:
        return _commit_each(export, list(zip(works, _run_tasks(export, works), strict=True)))

    started = time.monotonic()
    outcomes = attempt_chunks(job, stop, attempt, export.retry)
    pace.finished(len(job), time.monotonic() - started)
    for outcome in outcomes:
        if outcome.error is not None and not stop.is_set():
            _record_failure(export, outcome.chunk, outcome.error)
    return outcomes


def _run_tasks(export: Export, works: Sequence[ChunkWork]) -> list[Outcome]:
    """Run the tasks of some chunks once, and return one outcome for each chunk."""
    try:
        parts = list(_run_parts(export, works))
        outcomes = [_join(export, work, [part for part in parts if part.chunk == work.chunk]) for work in works]
    except SnapshotError as error:
        outcomes = [Outcome(work.chunk, "failed", error=error) for work in works]
    header = export.task.provenance.header
    if header is None or not header.hidden:
        return outcomes
    return [replace(each, error=hide_values(each.error)) if each.error is not None else each for each in outcomes]


def _run_parts(export: Export, works: Sequence[ChunkWork]) -> Iterator[Outcome]:
    """Run a chunk's parts as a task each, or small chunks as one task; yields the outcomes of parts."""
    parts = tuple(part for work in works for part in work.parts)
    shares = [parts] if len(works) > 1 and parts else [(part,) for part in parts]
    if shares:
        yield from export.runner.map(run_task, [replace(export.task, works=share) for share in shares])
    for work in works:
        if work.frames:
            if work.check is not None:
                with export.runner.jobs(work.frames[0][1].sparkSession):
                    work.check()
            yield from export.runner.run_frames(export.task, work)


def _join(export: Export, work: ChunkWork, parts: Sequence[Outcome]) -> Outcome:
    """Return the outcome of a chunk's parts; a missing part is an error, never an empty one."""
    error = error_of(work.chunk, parts, len(work.scans) or len(parts))
    if error is not None:
        return Outcome(work.chunk, "failed", error=error)
    files = tuple(file for part in parts for file in part.files)
    opened_at = min((part.opened_at for part in parts), default=datetime.now(UTC))
    try:
        if len(parts) > 1:  # a single task has compared them before its receipt
            work.check_counts(files)
        if export.keep_empty and not files:
            files = tuple(_write_empty_files(export.task, work))
    except SnapshotError as error:
        return Outcome(work.chunk, "failed", error=error)
    return Outcome(
        work.chunk,
        "read",
        files,
        seconds=max((part.seconds for part in parts), default=0.0),
        opened_at=opened_at,
        # With an empty file added, the receipt does not list all files.
        receipt=parts[0].receipt if len(parts) == 1 and files == parts[0].files else None,
    )


def _write_empty_files(task: Task, work: ChunkWork) -> Iterator[DataFile]:
    """Write a file without rows for each table of a chunk."""
    tables = [scan.table for scans in work.scans for scan in scans] or [table for table, _ in work.frames]
    for table in {table.table_name: table for table in tables}.values():
        yield from write_table(
            task.store, task.provenance, work.chunk, work.window, table, (), task.max_file_size, keep_empty=True
        )


def _commit_each(export: Export, read: Sequence[tuple[ChunkWork, Outcome]]) -> list[Outcome]:
    """Commit chunks in one transaction, or if that fails, each by itself; an error of one chunk fails only that."""
    good = [(work, outcome) for work, outcome in read if outcome.error is None]
    committed: dict[int, Outcome] = {}
    if len(good) > 1:
        try:
            committed = {outcome.chunk: outcome for outcome in _commit(export, good)}
        except (SupersededError, LocationDeletedError):  # nothing of this run can be committed any more
            raise
        except SnapshotError as error:
            _LOG.info("Chunks are committed one by one: %s", scrub(str(error)))
    return [committed.get(work.chunk) or _commit_one(export, work, outcome) for work, outcome in read]


def _commit_one(export: Export, work: ChunkWork, outcome: Outcome) -> Outcome:
    """Commit a chunk; a replacement takes the place of the files that hold its rows, also if it was compacted."""
    while outcome.error is None:
        try:
            try:
                [outcome] = _commit(export, [(work, outcome)])
                break
            except rules.CompactedMeanwhileError:
                live = tuple(each.file for each in export.catalog.refresh().live_files(work.chunk))
                work = replace(work, replaces=live)
                outcome = replace(outcome, receipt=None)  # it names the attempts that are replaced
        except (SupersededError, LocationDeletedError):
            raise
        except SnapshotError as error:
            outcome = Outcome(work.chunk, "failed", error=error)
    return outcome


def _commit(export: Export, read: Sequence[tuple[ChunkWork, Outcome]], adopted: Receipt | None = None) -> list[Outcome]:
    """Commit chunks that were read, or a chunk whose receipt is adopted, in one transaction."""
    catalog, provenance = export.catalog, export.task.provenance
    finished = []
    for work, outcome in read:
        receipt = outcome.receipt or write_young_receipt(
            catalog.store, provenance.receipt(outcome, work.supersedes), catalog.now()
        )
        finished.append(
            rules.FinishedChunk(
                id=work.chunk,
                files=outcome.files,
                receipts=(receipt,),
                opened_at=outcome.opened_at,
                fence=adopted.fence if adopted else provenance.fence,
                run=provenance.run,
                replaces=None if work.replaces is None else tuple(file.path for file in work.replaces),
                base_revision=adopted.base_revision if adopted else None,
            )
        )
    revision = catalog.commit(rules.complete_chunks(export.token, finished, catalog.now))
    state = catalog.state
    return [
        replace(outcome, status=work.status)
        if revision is not None and state.chunks[work.chunk].exported == revision
        else _present(state, work.chunk)
        for work, outcome in read
    ]


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
