"""Exports chunks: adopts those that an earlier run finished, reads the others, commits each as one transaction.

A `Runner` runs the tasks, in Spark or in this process. This module decides what is committed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.receipts.receipts import Receipt, write_young_receipt
from snapshot_assets.catalog.receipts.selection import find_adoptable
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.engine.export.run_tasks import Export, run_tasks
from snapshot_assets.engine.export.tasks import ChunkPlan, ChunkResult
from snapshot_assets.engine.jobs import JOB_BYTES, JOB_CHUNKS, FileSums, first_failures, shared_jobs, side_by_side
from snapshot_assets.engine.retry import attempt_chunks
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
        yield from side_by_side(
            partial(_run_batch, export), batches, export.parallelism, "export", failed, export.runner.interrupt
        )
    if failed:
        others = "The others are committed; run" if len(failed) < len(chunks) else "Run"
        raise ExportFailedError(
            f"{len(failed)} of {len(chunks)} chunks failed: {first_failures(failed)}. {others} again to retry the"
            " failed ones.",
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
        for result in run_tasks(export, plans):
            yield _commit_or_fail(export, result)

    outcomes = attempt_chunks(batch, stop, attempt, export.retry)
    for outcome in outcomes:
        if outcome.error is not None and not stop.is_set():
            _record_failure(export, outcome.chunk, outcome.error)
    return outcomes


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
