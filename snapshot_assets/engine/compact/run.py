"""Executes a compaction plan: merges a chunk's files of a table to a target size, sorted by time, without deleted rows.

A task merges files of one table and chunk. It hashes the input first, so that no damage is rewritten under a checksum
that hides it. It hashes the output and counts its rows, so that the commit may seal it. Each chunk is one transaction.
An interrupted run leaves some chunks compacted, and files that garbage collection removes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

import numpy as np
import pyarrow as pa

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.manifest import write_hints
from snapshot_assets.catalog.operations.compact import CompactedChunk, compact_chunk, receipts_of
from snapshot_assets.catalog.receipts import CompactedTable, Compaction, Receipt, write_young_receipt
from snapshot_assets.catalog.rules import check_unchanged
from snapshot_assets.engine.compact.plan import ChunkCompaction, CompactionPlan, Group
from snapshot_assets.engine.export.tasks import Outcome, Provenance, write_table
from snapshot_assets.engine.files.read import check_hash, read_batches
from snapshot_assets.engine.files.sorting import sorted_batches
from snapshot_assets.engine.files.target import FileSums
from snapshot_assets.engine.jobs import Failures, MapRunner, error_of, first_failures, shared_jobs, side_by_side
from snapshot_assets.engine.reports import reporter
from snapshot_assets.engine.retry import RetryPolicy, attempt_chunks
from snapshot_assets.engine.time_range import is_time
from snapshot_assets.errors import (
    CompactionFailedError,
    DocumentError,
    LocationDeletedError,
    SnapshotError,
    SupersededError,
    TaskFailedError,
    foreign_text,
)
from snapshot_assets.format.actions import DataFile, SchemaAdded
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.units import MAX_FILE_SIZE, counted, noun, number_text
from snapshot_assets.storage.base import ObjectStore

MAX_KEY_BYTES = 1 << 30
"""Most bytes of primary keys, as Arrow stores them, that a search for duplicates keeps in memory."""


@dataclass(frozen=True)
class Merge:
    """Files of one table and chunk that one task merges.

    Attributes:
        window: The window as text, for footers; "" for chunk 0.
        zone: IANA zone of times without one.
    """

    store: ObjectStore
    provenance: Provenance
    group: Group
    window: str
    zone: str
    max_file_size: int

    @property
    def what(self) -> str:
        """The table and the chunk, for messages."""
        return f"{self.group.table.table_name} in chunk {self.group.chunk}"


@dataclass(frozen=True)
class Merged:
    """Result of a merge: its files, or its error.

    Attributes:
        opened_at: When the first file may have been opened.
        rows_deleted: Rows that tombstones had deleted.
        rows_duplicate: Rows whose primary key a newer row has.
    """

    chunk: int
    table: TableName
    opened_at: datetime
    files: tuple[DataFile, ...] = ()
    rows_deleted: int = 0
    rows_duplicate: int = 0
    error: SnapshotError | None = None


class _VisibleRows:
    """Reads the rows that no tombstone deletes, in the given columns, and counts the deleted ones."""

    def __init__(self, work: Merge, schema: pa.Schema) -> None:
        self._work = work
        self._schema = schema
        self.deleted = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        work = self._work
        for file in work.group.files:
            left, deleting, text = 0, work.group.deleting.get(file.path, ()), work.group.texts[file.path]
            for batch in read_batches(work.store, file, self._schema, text, zone=work.zone, deleted=deleting):
                left += batch.num_rows
                yield batch
            if deleting:
                self.deleted += file.rows - left


def merge_files(work: Merge) -> Iterator[Merged]:
    """Merge files and check that no row was lost; yields the one result, which may be an error."""
    empty = Merged(work.group.chunk, work.group.table.table_name, datetime.now(UTC))
    try:
        with reporter().work(work.group.chunk):
            merged = _merge(work, empty)
        yield merged
    except SnapshotError as error:
        yield replace(empty, error=error)
    except Exception as error:  # whatever Arrow or the disk raises fails this merge only
        described = TaskFailedError(f"{work.what}: {foreign_text(error)}", chunk=work.group.chunk)
        yield replace(empty, error=described)


def _merge(work: Merge, empty: Merged) -> Merged:
    for file in work.group.files:
        check_hash(work.store, file)
    chunk, table = work.group.chunk, work.group.table
    schema = table.arrow_schema()
    rows = _VisibleRows(work, schema)
    batches: Iterable[pa.RecordBatch] = rows
    duplicate = 0
    if work.group.dedupe:
        newest = _newest(work)
        batches = _filtered(rows, newest)
        duplicate = len(newest) - int(newest.sum())
    if table.time_index is not None and is_time(schema.field(table.time_index).type):
        batches = sorted_batches(batches, table.time_index)
    files = tuple(write_table(work.store, work.provenance, chunk, work.window, table, batches, work.max_file_size))
    expected, found = work.group.rows - rows.deleted - duplicate, sum(file.rows for file in files)
    if found != expected:
        raise TaskFailedError(
            f"The compaction of {work.what} wrote {number_text(found)} of {counted(expected, 'row')}; nothing of it was"
            " committed. Report this, and compact without this table.",
            chunk=work.group.chunk,
            found=found,
            expected=expected,
        )
    for file in files:
        check_hash(work.store, file)
    return replace(empty, files=files, rows_deleted=rows.deleted, rows_duplicate=duplicate)


def _filtered(batches: Iterable[pa.RecordBatch], chosen: np.ndarray) -> Iterator[pa.RecordBatch]:
    """Yield the chosen rows."""
    start = 0
    for batch in batches:
        yield batch.filter(pa.array(chosen[start : start + batch.num_rows]))
        start += batch.num_rows


def _newest(work: Merge) -> np.ndarray:
    """Return for every visible row whether it is the newest with its primary key.

    A row is newer if a later revision added its file, then if its file's path is greater, then if it comes later. A row
    with NULL in its key has no duplicates.
    """
    table = work.group.table
    assert table.primary_key is not None
    key = [table.column(name).arrow_field() for name in table.primary_key.columns]
    parts: list[pa.RecordBatch] = []
    size = 0
    for batch in _VisibleRows(work, pa.schema(key)):
        parts.append(batch)
        size += batch.nbytes
        if size > MAX_KEY_BYTES:
            raise TaskFailedError(
                f"The primary keys of {work.what} take more than {MAX_KEY_BYTES:,} bytes, too many to search for"
                " duplicates. Compact without dedupe.",
                chunk=work.group.chunk,
            )
    if not parts:
        return np.zeros(0, dtype=bool)
    names = [str(number) for number in range(len(key))]
    keys = pa.Table.from_batches(parts).rename_columns(names)
    complete = np.ones(keys.num_rows, dtype=bool)
    for column in keys.columns:
        complete &= column.is_valid().to_numpy()
    numbered = keys.append_column("row", pa.array(np.arange(keys.num_rows)))
    last = numbered.filter(pa.array(complete)).group_by(names).aggregate([("row", "max")])["row_max"]
    newest = np.invert(complete)
    newest[last.to_numpy()] = True
    return newest


@dataclass(frozen=True)
class Compacted(FileSums):
    """The outcome of one chunk.

    Attributes:
        status: `compacted`, or `failed`.
        planned: The files that the plan merges.
        files: The new files.
        rows_deleted: Rows left out because tombstones had deleted them.
        rows_duplicate: Rows left out because a newer row has their primary key.
        revision: The revision that added the new files.
    """

    chunk: int
    status: str
    planned: ChunkCompaction
    files: tuple[DataFile, ...] = ()
    rows_deleted: int = 0
    rows_duplicate: int = 0
    revision: int | None = None
    error: SnapshotError | None = None


@dataclass(frozen=True)
class CompactRun:
    """Compacts one location's snapshot.

    Attributes:
        catalog: The location, opened for writing.
        runner: Runs the tasks; called only when there is something to merge.
        run_id: Name of the run, in the log and in receipts.
        parallelism: Returns the most Spark jobs at a time.
    """

    catalog: Catalog
    runner: MapRunner
    run_id: str
    parallelism: Callable[[], int] = lambda: 1
    retry: RetryPolicy = field(default_factory=RetryPolicy)

    def execute(self, plan: CompactionPlan) -> Generator[Compacted, None, None]:
        """Execute a plan; yields each chunk's outcome once it is committed. The hints follow at the end.

        Close it where it is not taken to its end: that interrupts the tasks that run.

        Raises:
            CompactionFailedError: Some chunks failed, after all others were tried; names them. A chunk that another
                writer changed since the plan is one of them.
            SupersededError: Another snapshot was started since the plan.
        """
        header = check_unchanged(self.catalog.refresh(), plan.token)
        if plan.chunks:
            self.runner.ready()
        state, token = self.catalog.state, plan.token
        origin = Provenance(
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
        work = _Work(self, plan, origin, dict(state.schemas))
        failed = Failures()
        jobs = shared_jobs(plan.chunks, lambda chunk: chunk.bytes)
        run_job = partial(attempt_chunks, attempt=work.attempt, policy=self.retry)
        for outcomes in side_by_side(run_job, jobs, self.parallelism, "compact", failed, self.runner.interrupt):
            yield from outcomes
        write_hints(self.catalog.store, self.catalog.state, self.catalog.refresh)
        if failed:
            raise CompactionFailedError(
                f"{len(failed):,} of {counted(len(plan.chunks), 'chunk')} {noun(len(failed), 'was', 'were')} not"
                f" compacted: {first_failures(failed)}."
                f" {failed.report('compacted', len(plan.chunks))}",
                **failed.attributes(),
            )


def totals_of(outcomes: Sequence[Compacted]) -> dict[str, int]:
    """Return the sums over chunks as reports show them."""
    return {
        "files_before": sum(each.planned.files for each in outcomes),
        "files_after": sum(len(each.files) for each in outcomes),
        "bytes_before": sum(each.planned.bytes for each in outcomes),
        "bytes_after": sum(each.bytes for each in outcomes),
        "rows_deleted": sum(each.rows_deleted for each in outcomes),
        "rows_duplicate": sum(each.rows_duplicate for each in outcomes),
    }


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

    def attempt(self, jobs: Sequence[ChunkCompaction]) -> Iterator[Compacted]:
        """Compact each chunk once; a chunk that fails does not stop the others."""
        store = self.run.catalog.store
        single = self.origin.header is not None and self.origin.header.single_file
        size = MAX_FILE_SIZE if single else self.plan.options.target_size
        tasks = [
            Merge(store, self._provenance(group.schema_id), group, job.window, job.zone, size)
            for job in jobs
            for group in job.groups
        ]
        results, lost = list[Merged](), None
        try:
            results = list(self.run.runner.map(merge_files, tasks))
        except SnapshotError as error:
            lost = error
        for job in jobs:
            own = [each for each in results if each.chunk == job.chunk.id]
            try:
                # A missing result is an error, never an empty table.
                if failure := lost or error_of(job.chunk.id, own, len(job.groups)):
                    raise failure
                by_table = {part.table: part for part in own}
                outcome = self._commit(job, [by_table[group.table.table_name] for group in job.groups])
            except (SupersededError, LocationDeletedError):  # nothing of this run can be committed any more
                raise
            except SnapshotError as error:
                outcome = Compacted(job.chunk.id, "failed", job, error=error)
            yield outcome

    def _provenance(self, schema_id: int) -> Provenance:
        return replace(self.origin, schema_id=schema_id, schema_sha256=self.schemas[schema_id].sha256)

    def _commit(self, job: ChunkCompaction, parts: Sequence[Merged]) -> Compacted:
        catalog, files = self.run.catalog, tuple(file for part in parts for file in part.files)
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
            job,
            files,
            sum(part.rows_deleted for part in parts),
            sum(part.rows_duplicate for part in parts),
            revision,
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
        origin = replace(self._provenance(newest), fence=job.chunk.fence)
        opened_at = min(part.opened_at for part in parts)
        ordered = tuple(sorted(files, key=lambda file: file.path))
        outcome = Outcome(job.chunk.id, "read", ordered, opened_at=opened_at)
        supersedes = tuple(sorted({file.attempt for group in job.groups for file in group.files}))
        compaction = Compaction(self.plan.options.dedupe, tuple(tables))
        return replace(origin.receipt(outcome, supersedes), compaction=compaction)
