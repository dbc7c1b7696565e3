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
from itertools import chain
from typing import Protocol

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog, Token
from snapshot_assets.catalog.receipt_selection import find_adoptable
from snapshot_assets.catalog.receipts import Receipt, write_young_receipt
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.faults import Fault
from snapshot_assets.catalog.verify.objects import FEW_CHUNKS, damaged_chunks
from snapshot_assets.engine.export.hidden_values import hide_values
from snapshot_assets.engine.export.tasks import ChunkWork, Outcome, Task, run_task, write_table
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
from snapshot_assets.format.actions import DataFile, ObjectRef
from snapshot_assets.format.chunk_parts import joined
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.scrub import scrub
from snapshot_assets.format.units import counted
from snapshot_assets.format.windows import partition_key
from snapshot_assets.spans import spanned
from snapshot_assets.storage.base import ObjectStore, warn_once

_LOG = logging.getLogger(__name__)


SMALL_CHUNK = 8 << 20
"""Chunks estimated below this many bytes share a task."""


class Runner(MapRunner, Protocol):
    """Runs the tasks of an export."""

    def readers(self) -> int:
        """Return how many tasks run at a time on this machine; 0 if they run on others."""

    def run_frames(self, task: Task, work: ChunkWork) -> Iterable[Outcome]:
        """Check a chunk's DataFrames, write them with the settings of a task, and yield the parts' outcomes."""


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
    provenance = replace(export.task.provenance, tombstones_through=0)  # rows that were deleted stay deleted
    repairing = replace(export, task=replace(export.task, provenance=provenance))
    status = "replaced" if replace_completed else "exported"
    works = (export, pending, status), (repairing, list(damaged), "repaired")
    tried = 0  # chunks that were complete before are not counted
    for outcomes in chain.from_iterable(_read(*each, failed) for each in works):
        tried += sum(each.counted for each in outcomes)
        yield [replace(each, faults=damaged.get(each.chunk, ())) for each in outcomes]

    def name(chunk: int) -> str:
        key = partition_key(export.catalog.state.window(chunk)) if chunk != UNTIMED_CHUNK else ""
        return f"{chunk} ({key})" if key else str(chunk)

    if failed:
        raise ExportFailedError(
            f"{len(failed):,} of {counted(tried, 'chunk')} failed: {first_failures(failed, name)}."
            f" {failed.report('committed', tried)}",
            **failed.attributes(),
        )


def _files(state: State, chunk: int) -> tuple[DataFile, ...]:
    return tuple(each.file for each in state.live_files(chunk))


def _present(state: State, chunk: int, *, hashed: bool = False) -> Outcome:
    """Return the outcome of a chunk that was completed before."""
    return Outcome(chunk, "present", _files(state, chunk), hashed=hashed)


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
        outcome = Outcome(chunk, "read", receipt.files, hashed=False, receipt=ref, ranges=receipt.ranges)
        try:
            [outcome] = _commit(export, [(ChunkWork(chunk, status="adopted"), outcome)], receipt)
        except rules.StaleReceiptError as stale:
            _LOG.info("%s", stale)
        else:
            yield outcome


def _read(export: Export, chunks: Sequence[int], status: str, failed: Failures) -> Iterator[Sequence[Outcome]]:
    """Read chunks from the source and commit them; adds the errors of those that fail to `failed`.

    `status` is that of chunks whose files are replaced, or `exported` where no chunk may be completed yet.
    """
    if not chunks:
        return
    state = export.catalog.state
    replaced = {chunk: _files(state, chunk) for chunk in chunks} if status != "exported" else {}
    new = {chunk for chunk in chunks if not state.completed(chunk)}
    export.catalog.commit(rules.in_progress(export.token, chunks, export.task.provenance.run))
    works = spanned("plan", export.plan(chunks))

    def replacing(work: ChunkWork) -> ChunkWork:
        own = "present" if work.keeps_all else "exported" if work.chunk in new else status
        return replace(work.replacing(replaced[work.chunk]), status=own)

    if replaced:
        works = map(replacing, works)
    pace = Pace()
    run, jobs = partial(_run_job, export, pace), shared_jobs(works, _job_bytes, pace)
    yield from side_by_side(run, jobs, export.parallelism, "export", failed, export.runner.interrupt)


def _job_bytes(work: ChunkWork) -> int:
    """Return a chunk's size for grouping: a chunk that is large or has several tasks is a job of its own."""
    shares = len(work.scans) == 1 or work.keeps_all
    return work.size if work.size < SMALL_CHUNK and shares else JOB_BYTES + 1


def _run_job(export: Export, pace: Pace, job: Sequence[ChunkWork], stop: threading.Event) -> list[Outcome]:
    """Run one job; chunks with a transient failure are retried by themselves, and failed ones recorded in the log."""
    started = time.monotonic()
    outcomes = attempt_chunks(job, stop, partial(_attempt, export), export.retry)
    pace.finished(len(job), time.monotonic() - started)
    for outcome in outcomes:
        # After an unknown outcome, the commit may have taken effect, and the receipt stays adoptable.
        if outcome.error is None or stop.is_set() or isinstance(outcome.error, OutcomeUnknownError):
            continue
        text, run = scrub(str(outcome.error)), export.task.provenance.run
        try:
            export.catalog.commit(rules.fail_chunk(export.token, outcome.chunk, text, run))
        except (SupersededError, LocationDeletedError):
            raise
        except SnapshotError as error:
            warn_once(export.catalog.store.uri, f"Failures of chunks could not be recorded: {scrub(str(error))}")
    return outcomes


def _run_tasks(export: Export, works: Sequence[ChunkWork]) -> list[Outcome]:
    """Run the tasks of some chunks once, and return one outcome for each chunk."""
    parts = tuple(part for work in works for part in work.parts)
    # The parts of a chunk are a task each; small chunks are one task.
    shares = [parts] if len(works) > 1 and parts else [(part,) for part in parts]
    try:
        results = list(export.runner.map(run_task, [replace(export.task, works=share) for share in shares]))
        for work in works:
            results += export.runner.run_frames(export.task, work) if work.frames else ()
        outcomes = [_join(export, work, [each for each in results if each.chunk == work.chunk]) for work in works]
    except SnapshotError as error:
        outcomes = [Outcome(work.chunk, "failed", error=error) for work in works]
    header = export.task.provenance.header
    if header is None or not header.hidden:
        return outcomes
    return [replace(each, error=hide_values(each.error)) if each.error is not None else each for each in outcomes]


def _join(export: Export, work: ChunkWork, parts: Sequence[Outcome]) -> Outcome:
    """Return the outcome of a chunk's parts; a missing part is an error, never an empty one."""
    error = error_of(work.chunk, parts, len(work.scans) or len(parts))
    if error is not None:
        return Outcome(work.chunk, "failed", error=error)
    files = tuple(file for part in parts for file in part.files)
    ranges = joined(each for part in parts for each in part.ranges)
    opened_at = min((part.opened_at for part in parts), default=datetime.now(UTC))
    try:
        if not (len(parts) == 1 and work.only is None):  # a task that reads a whole chunk has compared them
            work.check_counts(files, export.task.address)
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
        ranges=ranges,
    )


def _with_staying(state: State, work: ChunkWork, outcome: Outcome) -> Outcome:
    """Return the outcome of a chunk with the files that stay, and their ranges."""
    if work.only is None:
        return outcome
    staying = tuple(filter(work.stays, work.replaces or ()))
    ranges = (*outcome.ranges, *filter(work.stays, state.chunks[work.chunk].chunk.ranges))
    return replace(outcome, files=outcome.files + staying, ranges=ranges, hashed=not staying)


def _write_empty_files(task: Task, work: ChunkWork) -> Iterator[DataFile]:
    """Write a file without rows for each table of a chunk."""
    tables = [scan.table for scans in work.scans for scan in scans] or [table for table, _ in work.frames]
    for table in {table.table_name: table for table in tables}.values():
        yield from write_table(
            task.store, task.provenance, work.chunk, work.window, table, (), task.max_file_size, keep_empty=True
        )


def _attempt(export: Export, works: Sequence[ChunkWork]) -> list[Outcome]:
    """Try some chunks once, and commit them in one transaction, or if that fails, each by itself."""
    read = list(zip(works, _run_tasks(export, works), strict=True))
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
                work = work.replacing(_files(export.catalog.refresh(), work.chunk))
                outcome = replace(outcome, receipt=None)  # it names the attempts that are replaced
        except (SupersededError, LocationDeletedError):
            raise
        except SnapshotError as error:
            outcome = Outcome(work.chunk, "failed", error=error)
    return outcome


def _write_receipt(export: Export, work: ChunkWork, outcome: Outcome) -> ObjectRef:
    catalog, receipt = export.catalog, export.task.provenance.receipt(outcome, work.superseded)
    if work.only is not None and outcome.files:  # all files may have an older schema
        newest = max(file.schema_id for file in outcome.files)
        receipt = replace(receipt, schema_sha256=catalog.state.schemas[newest].sha256)
    return write_young_receipt(catalog.store, receipt, catalog.now())


def _commit(export: Export, read: Sequence[tuple[ChunkWork, Outcome]], adopted: Receipt | None = None) -> list[Outcome]:
    """Commit chunks that were read, or a chunk whose receipt is adopted, in one transaction."""
    catalog, provenance = export.catalog, export.task.provenance
    finished, before = [], catalog.state.chunks
    read = [(work, _with_staying(catalog.state, work, outcome)) for work, outcome in read]
    for work, outcome in read:
        receipt = outcome.receipt or _write_receipt(export, work, outcome)
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
                erased=tuple(filter(work.stays, known.chunk.erased)) if (known := before.get(work.chunk)) else (),
                ranges=outcome.ranges,
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
