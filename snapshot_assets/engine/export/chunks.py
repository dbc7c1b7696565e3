"""Exports chunks: adopts those that an earlier run finished, reads the others, commits those of a job together.

A `Runner` runs the tasks, in Spark or in this process. This module decides what is committed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.receipt_selection import find_adoptable
from snapshot_assets.catalog.receipts import Receipt, write_young_receipt
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.faults import Fault
from snapshot_assets.catalog.verify.objects import FEW_CHUNKS, damaged_chunks
from snapshot_assets.engine.export.run_tasks import Export, run_tasks
from snapshot_assets.engine.export.tasks import ChunkPlan, ChunkResult
from snapshot_assets.engine.jobs import JOB_BYTES, Failures, FileSums, Pace, first_failures, shared_jobs, side_by_side
from snapshot_assets.engine.retry import attempt_chunks
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


@dataclass(frozen=True)
class Outcome(FileSums):
    """Outcome of a chunk in this run.

    Attributes:
        status: `exported`, `replaced` (it was completed before, and is exported again), `repaired` (its files were
            damaged), `adopted` (an earlier attempt's receipt), `present` (completed before), or `failed`.
        seconds: Time of the slowest task, reading and writing.
        faults: What was damaged.
        hashed: Whether this run hashed all its files, as it wrote or read them.
    """

    chunk: int
    status: str
    files: tuple[DataFile, ...] = ()
    seconds: float = 0.0
    error: SnapshotError | None = None
    faults: tuple[Fault, ...] = ()
    hashed: bool = True

    @property
    def counted(self) -> bool:
        """Whether people count the chunk: each is counted, except chunk 0 if it is empty."""
        return self.chunk != UNTIMED_CHUNK or bool(self.files) or self.error is not None


SMALL_CHUNK = 8 << 20
"""Chunks estimated below this many bytes share a task."""

Plans = Callable[[Iterable[int]], Iterator[ChunkPlan]]
"""Plans chunks in order, each when it is taken."""


def export_chunks(export: Export, plans: Plans, chunks: Sequence[int]) -> Iterator[Sequence[Outcome]]:
    """Export chunks; yields the outcomes of each transaction's chunks once they are committed.

    Args:
        export: The run.
        plans: Plans the chunks that have to be read: those that are neither completed and whole nor adoptable.
        chunks: Chunk ids, in order.

    Raises:
        ExportFailedError: Some chunks failed, after all others were tried; names them.
        SupersededError: Another snapshot was started meanwhile.
    """
    failed = Failures()
    pending: list[int] = list(chunks)
    damaged: Mapping[int, tuple[Fault, ...]] = {}
    if not export.replace:
        damaged, present, pending = _completed(export, chunks)
        if present:
            yield present
        adopted: set[int] = set()
        for outcome in _adopted(export, pending):
            adopted.add(outcome.chunk)
            yield [outcome]
        pending = [chunk for chunk in pending if chunk not in adopted]
    tried = 0
    for outcomes in _read(export, plans, pending, failed):
        tried += sum(each.counted for each in outcomes)
        yield outcomes
    for outcomes in _read(export.repairing(), plans, list(damaged), failed):
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


def _completed(
    export: Export, chunks: Sequence[int]
) -> tuple[Mapping[int, tuple[Fault, ...]], list[Outcome], list[int]]:
    """Check the chunks that are completed; see `completed_chunks`. Returns the chunks that are not completed too."""
    state = export.catalog.refresh()
    damaged, present = completed_chunks(export.catalog.store, state, chunks)
    for chunk, faults in damaged.items():
        _LOG.warning("Chunk %s is damaged and is exported again: %s", chunk, faults[0].message)
    return damaged, present, [chunk for chunk in chunks if not state.completed(chunk)]


def _read(export: Export, plans: Plans, chunks: Sequence[int], failed: Failures) -> Iterator[Sequence[Outcome]]:
    """Read chunks from the source and commit them; adds the errors of those that fail to `failed`."""
    if not chunks:
        return
    if export.replace:
        state = export.catalog.state
        replaced = {chunk: tuple(state.live_files(chunk)) for chunk in chunks}
        export = replace(
            export, replaced=replaced, new=frozenset(chunk for chunk in chunks if not state.completed(chunk))
        )
    export.catalog.commit(rules.in_progress(export.token, chunks, export.task.provenance.run))
    pace = Pace()
    jobs = shared_jobs(plans(chunks), _job_bytes, pace)
    run = partial(_run_job, export, pace)
    yield from side_by_side(run, jobs, export.parallelism, "export", failed, export.runner.interrupt)


def _job_bytes(plan: ChunkPlan) -> int:
    """Return a chunk's size for grouping: a chunk that is large or has several tasks is a job of its own."""
    return plan.size if plan.size < SMALL_CHUNK and len(plan.works) == 1 else JOB_BYTES + 1


def _adopted(export: Export, chunks: Sequence[int]) -> Iterator[Outcome]:
    """Commit the chunks whose receipts an earlier run left."""
    if not chunks:
        return
    sha256 = export.task.provenance.schema_sha256
    receipts = find_adoptable(export.catalog.store, export.catalog.state, chunks, sha256)
    for chunk, (receipt, ref) in sorted(receipts.items()):
        # Garbage collection keeps the receipt's files at any age.
        result = ChunkResult(chunk, datetime.now(UTC), receipt.files, ref)
        try:
            [outcome] = _commit(export, [result], "adopted", receipt)
        except rules.StaleReceiptError as stale:
            _LOG.info("%s", stale)
        else:
            yield outcome


def _run_job(export: Export, pace: Pace, job: Sequence[ChunkPlan], stop: threading.Event) -> list[Outcome]:
    """Run one job; chunks with a transient failure are retried by themselves."""

    def attempt(plans: Sequence[ChunkPlan]) -> Iterable[Outcome]:
        return _commit_results(export, run_tasks(export, plans))

    started = time.monotonic()
    outcomes = attempt_chunks(job, stop, attempt, export.retry)
    pace.finished(len(job), time.monotonic() - started)
    for outcome in outcomes:
        if outcome.error is not None and not stop.is_set():
            _record_failure(export, outcome.chunk, outcome.error)
    return outcomes


def _commit_results(export: Export, results: Sequence[ChunkResult]) -> list[Outcome]:
    """Commit results in one transaction, or if that fails, each by itself; an error of one chunk fails only that."""
    good = [result for result in results if result.error is None]
    committed: dict[int, Outcome] = {}
    if len(good) > 1:
        try:
            committed = {outcome.chunk: outcome for outcome in _commit(export, good, export.status)}
        except (SupersededError, LocationDeletedError):  # nothing of this run can be committed any more
            raise
        except SnapshotError as error:
            _LOG.info("Chunks are committed one by one: %s", scrub(str(error)))
    return [committed.get(result.chunk) or _commit_or_fail(export, result) for result in results]


def _commit_or_fail(export: Export, result: ChunkResult) -> Outcome:
    if result.error is not None:
        return Outcome(result.chunk, "failed", error=result.error)
    try:
        return _commit_one(export, result)
    except (SupersededError, LocationDeletedError):
        raise
    except SnapshotError as error:
        return Outcome(result.chunk, "failed", error=error)


def _commit_one(export: Export, result: ChunkResult) -> Outcome:
    """Commit a chunk; a replacement takes the place of the files that hold its rows, also if it was compacted."""
    while True:
        try:
            [outcome] = _commit(export, [result], export.status)
        except rules.CompactedMeanwhileError:
            live = tuple(export.catalog.refresh().live_files(result.chunk))
            export = replace(export, replaced={**export.replaced, result.chunk: live})
            result = replace(result, receipt=None)  # it names the attempts that are replaced
        else:
            return outcome


def _commit(
    export: Export, results: Sequence[ChunkResult], status: str, adopted: Receipt | None = None
) -> list[Outcome]:
    """Commit results in one transaction."""
    catalog = export.catalog
    finished = [_finished(export, result, adopted) for result in results]
    revision = catalog.commit(rules.complete_chunks(export.token, finished, catalog.now))
    state = catalog.state
    return [
        Outcome(
            result.chunk,
            "exported" if result.chunk in export.new else status,
            result.files,
            result.seconds,
            hashed=adopted is None,
        )
        if revision is not None and state.chunks[result.chunk].exported == revision
        else _present(state, result.chunk)
        for result in results
    ]


def _finished(export: Export, result: ChunkResult, adopted: Receipt | None) -> rules.FinishedChunk:
    provenance = export.task.provenance
    receipt = result.receipt or write_young_receipt(
        export.catalog.store, provenance.receipt(result, export.supersedes(result.chunk)), export.catalog.now()
    )
    return rules.FinishedChunk(
        id=result.chunk,
        files=result.files,
        receipts=(receipt,),
        opened_at=result.opened_at,
        fence=adopted.fence if adopted else provenance.fence,
        run=provenance.run,
        replaces=tuple(each.file.path for each in export.replaced[result.chunk]) if export.replace else None,
        base_revision=adopted.base_revision if adopted else None,
    )


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
