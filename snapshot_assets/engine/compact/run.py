"""Executes a compaction plan: merges a chunk's files of a table to a target size, sorted by time, without deleted rows.

Tasks (see `tasks`) write the new files; this module decides what is committed. Each chunk is one transaction. An
interrupted run leaves some chunks compacted, and files that garbage collection removes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.manifest import write_hints
from snapshot_assets.catalog.operations.compact import CompactedChunk, compact_chunk, receipts_of
from snapshot_assets.catalog.receipts.receipts import CompactedTable, Compaction, Receipt, write_young_receipt
from snapshot_assets.catalog.rules import check_unchanged
from snapshot_assets.engine.compact.plan import ChunkCompaction, CompactionPlan, Group
from snapshot_assets.engine.compact.tasks import Input, Merge, Merged, merge_files
from snapshot_assets.engine.export.tasks import Provenance
from snapshot_assets.engine.retry import RetryPolicy, attempt_chunks, side_by_side
from snapshot_assets.errors import (
    CompactionFailedError,
    DocumentError,
    LocationDeletedError,
    SnapshotError,
    SupersededError,
    TaskLostError,
    TransientError,
)
from snapshot_assets.format.actions import Header, SchemaAdded
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.layout import new_attempt
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.scrub import scrub

JOB_BYTES = 64 << 20
"""Chunks share a Spark job while the files to merge stay below this many bytes."""
JOB_CHUNKS = 32


class CompactRunner(Protocol):
    """Calls functions with items somewhere; see `engine.runner`."""

    def map(self, function: Any, items: Sequence[Any]) -> Iterable[Any]:
        """Call a function with every item and return all that the calls yielded."""
        ...


@dataclass(frozen=True)
class Compacted:
    """The outcome of one chunk.

    Attributes:
        status: `compacted`, or `failed`.
        groups: The files that the plan merges.
        files: The new files.
        rows_deleted: Rows left out because tombstones had deleted them.
        rows_duplicate: Rows left out because a newer row has their primary key.
        revision: The revision that added the new files.
        seconds: Time of the slowest task, reading and writing.
    """

    chunk: int
    status: str
    groups: tuple[Group, ...]
    files: tuple[DataFile, ...] = ()
    rows_deleted: int = 0
    rows_duplicate: int = 0
    revision: int | None = None
    seconds: float = 0.0
    error: SnapshotError | None = None

    @property
    def files_before(self) -> int:
        """Number of files that the plan merges."""
        return sum(len(group.files) for group in self.groups)

    @property
    def bytes_before(self) -> int:
        """Bytes of the files that the plan merges."""
        return sum(group.bytes for group in self.groups)

    @property
    def bytes_after(self) -> int:
        """Bytes of the new files."""
        return sum(file.bytes for file in self.files)


@dataclass(frozen=True)
class CompactRun:
    """Compacts one location's snapshot.

    Attributes:
        catalog: The location, opened for writing.
        runner: Runs the tasks; called only when there is something to merge.
        run_id: Name of the run, in the log and in receipts.
        parallelism: Most Spark jobs at a time.
    """

    catalog: Catalog
    runner: CompactRunner
    run_id: str
    parallelism: int = 1
    retry: RetryPolicy = field(default_factory=RetryPolicy)

    def execute(self, plan: CompactionPlan) -> Iterator[Compacted]:
        """Execute a plan; yields each chunk's outcome once it is committed. The hints follow at the end.

        Raises:
            CompactionFailedError: Some chunks failed, after all others were tried; names them. A chunk that another
                writer changed since the plan is one of them.
            SupersededError: Another snapshot was started since the plan.
        """
        header = check_unchanged(self.catalog.refresh(), plan.token)
        work = _Work(self, plan, self._origin(plan, header), dict(self.catalog.state.schemas))
        failed: dict[int, str] = {}
        for outcome in side_by_side(work.run_batch, _batches(plan.chunks), self.parallelism, "compact"):
            if outcome.error is not None:
                failed[outcome.chunk] = scrub(str(outcome.error))
            yield outcome
        write_hints(self.catalog.store, self.catalog.state, self.catalog.refresh)
        if failed:
            raise _failure(failed, len(plan.chunks))

    def _origin(self, plan: CompactionPlan, header: Header) -> Provenance:
        state, token = self.catalog.state, plan.token
        return Provenance(
            location_id=state.location_id,
            snapshot_id=token.snapshot_id,
            base_revision=token.revision,
            schema_id=token.schema_id,
            schema_sha256=state.schemas[token.schema_id].sha256,
            run=self.run_id,
            tombstones_through=token.revision,
            metadata={"database": header.source, "writer": self.catalog.writer_id},
            header=header,
            version=state.format_version,
        )


def _batches(chunks: Sequence[ChunkCompaction]) -> list[list[ChunkCompaction]]:
    """Group small chunks, in order."""
    batches: list[list[ChunkCompaction]] = []
    size = 0
    for chunk in chunks:
        size += chunk.bytes
        if not batches or size > JOB_BYTES or len(batches[-1]) == JOB_CHUNKS:
            batches.append([])
            size = chunk.bytes
        batches[-1].append(chunk)
    return batches


def totals_of(outcomes: Sequence[Compacted]) -> dict[str, int]:
    """Return the sums over chunks as reports show them."""
    return {
        "files_before": sum(each.files_before for each in outcomes),
        "files_after": sum(len(each.files) for each in outcomes),
        "bytes_before": sum(each.bytes_before for each in outcomes),
        "bytes_after": sum(each.bytes_after for each in outcomes),
        "rows_deleted": sum(each.rows_deleted for each in outcomes),
        "rows_duplicate": sum(each.rows_duplicate for each in outcomes),
    }


def _failure(failed: Mapping[int, str], chunks: int) -> CompactionFailedError:
    some = "; ".join(f"chunk {chunk}: {error.rstrip('.')}" for chunk, error in sorted(failed.items())[:5])
    return CompactionFailedError(
        f"{len(failed)} of {chunks} chunks were not compacted: {some}. The others are; run again to retry these.",
        chunks=failed,
    )


@dataclass(frozen=True)
class _Work:
    """One execution of a plan.

    Attributes:
        schemas: The schemas of the planned snapshot, which another snapshot may replace at the head.
    """

    run: CompactRun
    plan: CompactionPlan
    origin: Provenance
    schemas: Mapping[int, SchemaAdded]

    @property
    def catalog(self) -> Catalog:
        return self.run.catalog

    def run_batch(self, batch: Sequence[ChunkCompaction], stop: threading.Event) -> list[Compacted]:
        """Compact some chunks; transient failures are retried from the start.

        Raises:
            SupersededError: Another snapshot was started: nothing of this run can be committed any more.
            LocationDeletedError: The snapshot was deleted.
        """
        return attempt_chunks(batch, self._attempt, self.run.retry, stop)

    def _attempt(self, jobs: Sequence[ChunkCompaction]) -> Iterator[tuple[ChunkCompaction, Compacted]]:
        for job, parts in zip(jobs, self._merged(jobs), strict=True):
            yield job, self._commit_or_fail(job, parts)

    def _merged(self, jobs: Sequence[ChunkCompaction]) -> list[list[Merged] | SnapshotError]:
        """Run the jobs' tasks once and return each one's results."""
        tasks = [self._merge(job, group) for job in jobs for group in job.groups]
        try:
            found = list(self.run.runner.map(merge_files, tasks))
        except SnapshotError as error:
            return [error for _ in jobs]
        return [[each for each in found if each.chunk == job.chunk.id] for job in jobs]

    def _merge(self, job: ChunkCompaction, group: Group) -> Merge:
        return Merge(
            store=self.catalog.store,
            provenance=self._provenance(group.schema_id),
            chunk=group.chunk,
            window=job.window,
            table=group.table,
            inputs=tuple(Input(file, group.deleting.get(file.path, ())) for file in group.files),
            max_file_size=self.plan.wanted.target_size,
            dedupe=group.dedupe,
            zone=job.zone,
        )

    def _provenance(self, schema_id: int) -> Provenance:
        return replace(self.origin, schema_id=schema_id, schema_sha256=self.schemas[schema_id].sha256)

    def _commit_or_fail(self, job: ChunkCompaction, parts: list[Merged] | SnapshotError) -> Compacted:
        try:
            if isinstance(parts, SnapshotError):
                raise parts
            return self._commit(job, _checked(job, parts))
        except (SupersededError, LocationDeletedError):
            raise
        except SnapshotError as error:
            return Compacted(job.chunk.id, "failed", job.groups, error=error)

    def _commit(self, job: ChunkCompaction, parts: Sequence[Merged]) -> Compacted:
        catalog, files = self.catalog, tuple(file for part in parts for file in part.files)
        older = receipts_of(catalog.store, job.chunk)
        receipt = self._receipt(job, parts, older.values())
        compacted = CompactedChunk(
            id=job.chunk.id,
            tables=frozenset(group.table.table_name for group in job.groups),
            removed=frozenset(file.path for group in job.groups for file in group.files),
            kept=frozenset(path for group in job.groups for path in group.kept),
            files=files,
            receipt=write_young_receipt(catalog.store, receipt, catalog.now()),
            older=older,
            opened_at=receipt.opened_at,
            run=self.run.run_id,
        )
        revision = catalog.commit(compact_chunk(self.plan.token, compacted, catalog.now))
        return Compacted(
            job.chunk.id,
            "compacted",
            job.groups,
            files,
            sum(part.rows_deleted for part in parts),
            sum(part.rows_duplicate for part in parts),
            revision,
            max(part.seconds for part in parts),
        )

    def _receipt(self, job: ChunkCompaction, parts: Sequence[Merged], older: Iterable[Receipt]) -> Receipt:
        """Return the receipt of a chunk's compaction: all files of its tables, with their statistics."""
        known = {file.path: file for receipt in older for file in receipt.files}
        kept = sorted(path for group in job.groups for path in group.kept)
        lacking = [path for path in kept if path not in known]
        if lacking:
            raise DocumentError(
                f"No receipt of chunk {job.chunk.id} names {lacking[0]}; replace the chunk.", object=lacking[0]
            )
        files = (*(known[path] for path in kept), *(file for part in parts for file in part.files))
        tables = (CompactedTable(*part.table, part.rows_deleted, part.rows_duplicate) for part in parts)
        newest = max(group.schema_id for group in job.groups)
        return Receipt(
            snapshot_id=self.origin.snapshot_id,
            base_revision=self.origin.base_revision,
            schema_sha256=self.schemas[newest].sha256,
            chunk=job.chunk.id,
            attempt=new_attempt(),
            opened_at=min(part.opened_at for part in parts),
            fence=dict(job.chunk.fence),
            files=tuple(sorted(files, key=lambda file: file.path)),
            supersedes=tuple(sorted({file.attempt for group in job.groups for file in group.files})),
            run=self.run.run_id,
            location_id=self.origin.location_id,
            header=self.origin.header,
            version=self.origin.version,
            compaction=Compaction(self.plan.wanted.dedupe, tuple(tables)),
        )


def _checked(job: ChunkCompaction, parts: Sequence[Merged]) -> list[Merged]:
    """Return one result for each group, in order; a missing result is an error, never an empty table."""
    errors = [part.error for part in parts if part.error is not None]
    permanent = [error for error in errors if not isinstance(error, TransientError)]
    if errors:
        raise (permanent or errors)[0]
    by_table: dict[TableName, Merged] = {part.table: part for part in parts}
    if len(parts) != len(job.groups) or len(by_table) != len(parts):
        raise TaskLostError(
            f"{len(job.groups)} tasks of chunk {job.chunk.id} gave {len(parts)} results; expected one each."
        )
    return [by_table[group.table.table_name] for group in job.groups]
