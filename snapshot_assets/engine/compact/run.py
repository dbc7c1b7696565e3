"""Compaction: inside a chunk and table, files are merged to a target size, sorted by time, deleted rows left out.

Tasks (see `compact_tasks`) write the new files; everything that decides what is committed is here. Each chunk is one
transaction, so a run that is cut off leaves chunks that were compacted, chunks that were not, and files that garbage
collection removes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from snapshot_assets.catalog.catalog import Catalog, Token
from snapshot_assets.catalog.manifest import write_hints
from snapshot_assets.catalog.operations.compact import CompactedChunk, compact_chunk, receipts_of
from snapshot_assets.catalog.receipts.receipts import CompactedTable, Compaction, Receipt, write_young_receipt
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.engine.compact.jobs import Job, batches_of, jobs_of
from snapshot_assets.engine.compact.plan import CompactionPlan, Group, SchemaDocuments, Wanted, plan_compaction
from snapshot_assets.engine.compact.tasks import Input, Merge, Merged, merge_files
from snapshot_assets.engine.export.side_by_side import side_by_side
from snapshot_assets.engine.export.tasks import Provenance
from snapshot_assets.engine.retry import RetryPolicy, attempt_chunks
from snapshot_assets.errors import (
    CompactionFailedError,
    DocumentError,
    LocationDeletedError,
    SnapshotError,
    SupersededError,
    TaskLostError,
    TransientError,
)
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.layout import new_attempt
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.scrub import scrub
from snapshot_assets.storage.base import ObjectStore


class CompactRunner(Protocol):
    """Calls functions with items somewhere; see `engine.runner`."""

    def map(self, function: Any, items: Sequence[Any]) -> Iterable[Any]:
        """Call a function with every item and return all that the calls yielded."""
        ...


@dataclass(frozen=True)
class Compacted:
    """What became of a chunk.

    Attributes:
        status: `compacted`, or `failed`.
        groups: What was to be merged.
        files: The new files.
        rows_deleted: Rows left out because tombstones had deleted them.
        rows_duplicate: Rows left out because a newer one has their primary key.
        revision: The revision that has the new files.
        seconds: Reading and writing, in the slowest of its tasks.
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
        """Files that were to be merged."""
        return sum(len(group.files) for group in self.groups)

    @property
    def bytes_before(self) -> int:
        """Bytes of the files that were to be merged."""
        return sum(group.bytes for group in self.groups)

    @property
    def bytes_after(self) -> int:
        """Bytes of the new files."""
        return sum(file.bytes for file in self.files)


@dataclass
class CompactRun:
    """Compacts one location's snapshot, as it is when the run plans.

    Attributes:
        store: The location.
        runner: Where tasks run; only asked when there is something to merge.
        run_id: Name of the run, in the log and in receipts.
        wanted: What is compacted.
        parallelism: Spark jobs side by side.
        single_writer: Accept a store without conditional creates; the caller promises to be alone.
    """

    store: ObjectStore
    runner: CompactRunner
    run_id: str
    wanted: Wanted = field(default_factory=Wanted)
    parallelism: int = 1
    single_writer: bool = False
    retry: RetryPolicy = field(default_factory=RetryPolicy)

    def plan(self) -> CompactionPlan:
        """Return what `run` would do now; the location is only read.

        Raises:
            NoSnapshotError: There is no snapshot.
            PlanError: What is asked for cannot be compacted; see `plan_compaction`.
        """
        state = Catalog.open(self.store).require_snapshot()
        return plan_compaction(state, SchemaDocuments(self.store, state), self.wanted)

    def run(self) -> Iterator[Compacted]:
        """Compact; yields each chunk's outcome once it is committed. The hints follow at the end.

        Raises:
            CompactionFailedError: After all others were tried, if some failed; names them. A chunk that another writer
                changed meanwhile is one of them.
            SupersededError: Another snapshot began meanwhile.
        """
        catalog = Catalog.open_for_writing(self.store, single_writer=self.single_writer)
        state = catalog.require_snapshot()
        documents = SchemaDocuments(catalog.store, state)
        plan = plan_compaction(state, documents, self.wanted)
        origin = self._origin(catalog, state)
        work = _Work(self, catalog, catalog.token(), origin, documents, jobs_of(plan, state))
        failed: dict[int, str] = {}
        for outcome in side_by_side(work.run_batch, batches_of(work.jobs), self.parallelism, "compact"):
            if outcome.error is not None:
                failed[outcome.chunk] = scrub(str(outcome.error))
            yield outcome
        write_hints(catalog.store, catalog.state, catalog.refresh)
        if failed:
            raise _failure(failed, len(work.jobs))

    def _origin(self, catalog: Catalog, state: State) -> Provenance:
        assert state.header is not None
        return Provenance(
            location_id=state.location_id,
            snapshot_id=state.snapshot_id,
            base_revision=state.revision,
            schema_id=state.schema_id,
            schema_sha256=state.schemas[state.schema_id].sha256,
            run=self.run_id,
            tombstones_through=state.revision,
            metadata={"database": state.header.source, "writer": catalog.writer_id},
            header=state.header,
            version=state.format_version,
        )


def _failure(failed: Mapping[int, str], chunks: int) -> CompactionFailedError:
    some = "; ".join(f"chunk {chunk}: {error.rstrip('.')}" for chunk, error in sorted(failed.items())[:5])
    return CompactionFailedError(
        f"{len(failed)} of {chunks} chunks were not compacted: {some}. The others are; run again to retry these.",
        chunks=failed,
    )


@dataclass(frozen=True)
class _Work:
    run: CompactRun
    catalog: Catalog
    token: Token
    origin: Provenance
    documents: SchemaDocuments
    jobs: tuple[Job, ...]

    def run_batch(self, batch: Sequence[Job], stop: threading.Event) -> list[Compacted]:
        """Compact some chunks; those that fail in a way that may pass are tried again, from the beginning.

        Raises:
            SupersededError: Another snapshot began: nothing of this run can be committed any more.
            LocationDeletedError: Likewise.
        """
        return attempt_chunks(batch, self._attempt, self.run.retry, stop)

    def _attempt(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Compacted]]:
        for job, parts in zip(jobs, self._merged(jobs), strict=True):
            yield job, self._commit_or_fail(job, parts)

    def _merged(self, jobs: Sequence[Job]) -> list[list[Merged] | SnapshotError]:
        """Run the jobs' tasks once and return each one's results."""
        tasks = [self._merge(job, group) for job in jobs for group in job.groups]
        try:
            found = list(self.run.runner.map(merge_files, tasks))
        except SnapshotError as error:
            return [error for _ in jobs]
        return [[each for each in found if each.chunk == job.chunk.id] for job in jobs]

    def _merge(self, job: Job, group: Group) -> Merge:
        return Merge(
            store=self.catalog.store,
            provenance=self._provenance(group.schema_id),
            chunk=group.chunk,
            window=job.window,
            table=group.table,
            inputs=tuple(Input(file, group.deleting.get(file.path, ())) for file in group.files),
            max_file_size=self.run.wanted.target_size,
            dedupe=group.dedupe,
            zone=job.zone,
        )

    def _provenance(self, schema_id: int) -> Provenance:
        return replace(self.origin, schema_id=schema_id, schema_sha256=self.documents.schemas[schema_id].sha256)

    def _commit_or_fail(self, job: Job, parts: list[Merged] | SnapshotError) -> Compacted:
        try:
            if isinstance(parts, SnapshotError):
                raise parts
            return self._commit(job, _checked(job, parts))
        except (SupersededError, LocationDeletedError):
            raise
        except SnapshotError as error:
            return Compacted(job.chunk.id, "failed", job.groups, error=error)

    def _commit(self, job: Job, parts: Sequence[Merged]) -> Compacted:
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
        revision = catalog.commit(compact_chunk(self.token, compacted, catalog.now))
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

    def _receipt(self, job: Job, parts: Sequence[Merged], older: Iterable[Receipt]) -> Receipt:
        """Return what is said of a chunk's compaction: all files that its tables have then, with their statistics."""
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
            snapshot_id=self.token.snapshot_id,
            base_revision=self.token.revision,
            schema_sha256=self.documents.schemas[newest].sha256,
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
            compaction=Compaction(self.run.wanted.dedupe, tuple(tables)),
        )


def _checked(job: Job, parts: Sequence[Merged]) -> list[Merged]:
    """Return one result for each group, in order; one that is missing is never taken for one without rows."""
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
