"""Loads chunks: tasks hash all files of a chunk, then load each in a transaction. Small chunks share a job.

Tasks are plain functions that also run without Spark.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Generic, TypeVar

import pyarrow as pa

from snapshot_assets.databases.open import open_target
from snapshot_assets.databases.protocol.source import DatabaseAddress, Rows
from snapshot_assets.databases.protocol.sql_target import SqlTarget
from snapshot_assets.databases.protocol.target import Load, LoadedFile, RestoreRecord
from snapshot_assets.engine.files.read import check_hash, read_batches
from snapshot_assets.engine.jobs import Failures, MapRunner, first_failures, shared_jobs, side_by_side
from snapshot_assets.engine.reports import reporter
from snapshot_assets.engine.restore.damage import KEEP_GOING
from snapshot_assets.engine.restore.decide import ChunkLoad, entry_of
from snapshot_assets.engine.restore.files import FilePlan
from snapshot_assets.engine.retry import RetryPolicy, attempt_chunks
from snapshot_assets.errors import (
    DamageError,
    ObjectNotFoundError,
    RestoreFailedError,
    SnapshotError,
    TaskFailedError,
    foreign_text,
)
from snapshot_assets.format.relations import Table
from snapshot_assets.format.units import counted
from snapshot_assets.storage.base import ObjectStore

if TYPE_CHECKING:
    from snapshot_assets.engine.restore.plan import RestorePlan

_Work = TypeVar("_Work")

HASHED_HERE = 16 << 20
"""Bytes that this process hashes sooner than a Spark job starts."""


@dataclass(frozen=True)
class FileWork:
    """One file to hash and load.

    Attributes:
        table: The table as the target holds it, with the carriers of the file's columns.
        entry: The file's ledger row.
    """

    plan: FilePlan
    table: Table
    entry: LoadedFile


@dataclass(frozen=True)
class Task(Generic[_Work]):
    """What one task does over one connection, one work after the other."""

    address: DatabaseAddress
    store: ObjectStore
    works: tuple[_Work, ...]


@dataclass(frozen=True)
class ReplaceTask(Task[FileWork]):
    """One chunk to replace in one transaction.

    Attributes:
        tables: Tables of the chunk, with the rows to delete; their new rows come from `works`.
    """

    chunk: int
    record: RestoreRecord
    tables: tuple[tuple[Table, Rows], ...]


@dataclass(frozen=True)
class FileResult:
    """The result for one file, or for a replaced chunk.

    Attributes:
        rows: Rows inserted since the restore was planned; None if the file was not loaded.
        damaged: Path of the file if the error is its damage; else "".
    """

    chunk: int
    rows: int | None = None
    error: SnapshotError | None = None
    damaged: str = ""


def hash_files(task: Task[FileWork]) -> Iterator[FileResult]:
    """Hash files, and yield the error of every damaged one."""
    for work in task.works:
        file = work.plan.file
        try:
            check_hash(task.store, file)
        except (DamageError, ObjectNotFoundError) as error:
            yield FileResult(file.chunk, error=error, damaged=file.path)
        except SnapshotError as error:
            yield FileResult(file.chunk, error=error)


def load_files(task: Task[FileWork]) -> Iterator[FileResult]:
    """Load files; after one that fails, the next is loaded."""
    try:
        target = open_target(task.address)
    except SnapshotError as error:
        yield from (FileResult(work.plan.file.chunk, error=error) for work in task.works)
        return
    with closing(target):
        for work in task.works:
            yield _load(task.store, work, target)
        # What a run reports as loaded must survive a crash of the server. One wait covers all files.
        try:
            target.flush()
        except SnapshotError as error:
            yield from (FileResult(work.plan.file.chunk, error=error) for work in task.works)


def _load(store: ObjectStore, work: FileWork, target: SqlTarget) -> FileResult:
    file = work.plan.file
    try:
        with reporter().work(file.chunk, target.interrupt), errors_naming(file.path):
            batches = batches_of(store, work.plan, work.table, stored_schema(work.table))
            loaded = target.load(work.entry, work.table, reporter().counted(batches))
            # A task that died after its commit is repeated: its plan did not have the file in the ledger.
            return FileResult(file.chunk, target.loaded_rows(work.entry) if loaded is None else loaded)
    except SnapshotError as error:
        return FileResult(file.chunk, error=error)


@contextmanager
def errors_naming(what: str) -> Iterator[None]:
    """Turn an error of a driver or of Arrow into one of this package, so that only this file or chunk fails."""
    try:
        yield
    except SnapshotError:
        raise
    except Exception as error:
        raise TaskFailedError(f"{what}: {foreign_text(error)}", object=what) from error


def replace_chunk(task: ReplaceTask) -> Iterator[FileResult]:
    """Delete a chunk's rows and load its current files, in one transaction."""
    try:
        with (
            errors_naming(f"chunk {task.chunk}"),
            closing(open_target(task.address)) as target,
            reporter().work(task.chunk, target.interrupt),
        ):
            rows = target.replace(task.chunk, [_replacement(task, table, which) for table, which in task.tables])
    except SnapshotError as error:
        yield FileResult(task.chunk, error=error)
    else:
        yield FileResult(task.chunk, rows)


def _replacement(task: ReplaceTask, table: Table, rows: Rows) -> Load:
    works = [work for work in task.works if work.table.table_name == table.table_name]
    files = []
    for work in works:
        batches = batches_of(task.store, work.plan, work.table, stored_schema(work.table))
        files.append((work.entry, work.table, reporter().counted(batches)))
    return Load(task.record.location_id, task.record.id, table, rows, files)


def stored_schema(table: Table) -> pa.Schema:
    """Return the schema that a table is loaded with: without generated columns."""
    return pa.schema([column.arrow_field() for column in table.columns if column.generated is None])


def batches_of(store: ObjectStore, plan: FilePlan, table: Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file that are restored, in the schema that it is loaded with."""
    for batch in read_batches(store, plan.file, schema, plan.text, zone=plan.zone, deleted=plan.deleted):
        yield batch if plan.cut is None else plan.cut.filter(batch, table)


@dataclass(frozen=True)
class ChunkOutcome:
    """The outcome of one chunk.

    Attributes:
        status: `loaded`, `replaced`, `present` (the ledger has all its files), `empty` (the snapshot has no rows of
            it), `left_out` (the restore was asked to leave out all tables of which it has rows), `incomplete` (tables
            with damaged files are left out, or it has rows only of tables that could not be made) or `failed`.
        rows: Rows inserted since the restore was planned.
        bytes: Bytes of the files that they came from.
        seconds: Time of its job, hashing and loading; of a job of several chunks, its part by bytes.
        counted: Whether people count the chunk; see `ChunkLoad.counted`.
        damaged: Faults of files that only their hash showed, by path.
    """

    chunk: int
    status: str
    rows: int = 0
    bytes: int = 0
    seconds: float = 0.0
    error: SnapshotError | None = None
    counted: bool = True
    damaged: Mapping[str, str] = field(default_factory=dict)

    @property
    def changed(self) -> bool:
        """Whether the run did anything with the chunk."""
        return self.status not in ("present", "empty", "left_out")


@dataclass(frozen=True)
class Loader:
    """Loads chunks of one restore.

    Attributes:
        parallelism: Returns the jobs at a time.
        slots: Returns the tasks of one job.
    """

    store: ObjectStore
    address: DatabaseAddress
    runner: MapRunner
    plan: RestorePlan
    parallelism: Callable[[], int]
    slots: Callable[[], int]
    retry: RetryPolicy

    def run(self, loads: Sequence[ChunkLoad]) -> Iterator[ChunkOutcome]:
        """Load chunks and yield the outcome of each.

        Raises:
            RestoreFailedError: Some chunks failed; raised after the last one, and names them.
        """
        failed = Failures()
        todo: list[ChunkLoad] = []
        for load in loads:
            if load.plans or load.replace:
                todo.append(load)
            else:
                present = "present" if load.chunk.files else load.chunk.without_files
                status = "incomplete" if load.left else present
                yield ChunkOutcome(load.chunk.chunk, status, counted=load.counted or bool(load.left))
        jobs = shared_jobs(todo, lambda load: load.bytes)
        run_job = partial(attempt_chunks, attempt=self._attempt, policy=self.retry)
        for outcomes in side_by_side(run_job, jobs, self.parallelism, "restore", failed, self.runner.interrupt):
            yield from outcomes
        if failed:
            tried = sum(load.counted for load in loads)
            way = f" {KEEP_GOING}" if failed.damaged and not self.plan.settings.keep_going else ""
            raise RestoreFailedError(
                f"{len(failed):,} of {counted(tried, 'chunk')} could not be loaded: {first_failures(failed)}."
                f" {failed.report('loaded', tried)}{way}",
                **failed.attributes(),
            )

    def _attempt(self, loads: Sequence[ChunkLoad]) -> list[ChunkOutcome]:
        """Hash all files, then load the chunks without a damaged file; returns one outcome per chunk."""
        started, keep_going = time.monotonic(), self.plan.settings.keep_going
        try:
            works = {load.chunk.chunk: list(map(self._work, load.plans)) for load in loads}
            tasks = self._tasks([work for each in works.values() for work in each])
            few = sum(load.bytes for load in loads) < HASHED_HERE
            errors = list(chain.from_iterable(map(hash_files, tasks)) if few else self.runner.map(hash_files, tasks))
            found = {each.damaged: str(each.error) for each in errors if each.damaged} if keep_going else {}
            loads = [load.without(found) for load in loads]
            results = [each for each in errors if each.damaged not in found]
            failed = {result.chunk for result in results}
            left = {plan.file.path for load in loads for plan in load.left}
            works = {chunk: [work for work in some if work.plan.file.path not in left] for chunk, some in works.items()}
            whole = [load for load in loads if load.chunk.chunk not in failed]
            added = [work for load in whole if not load.replace for work in works[load.chunk.chunk]]
            results += self.runner.map(load_files, self._tasks(added))
            for load in (load for load in whole if load.replace):
                chunk, record = load.chunk, self.plan.record
                tables = tuple((self.plan.tables[table.table_name], rows) for table, rows in chunk.tables)
                own = tuple(works[chunk.chunk])
                task = ReplaceTask(self.address, self.store, own, chunk.chunk, record, tables)
                results += self.runner.map(replace_chunk, [task])
        except SnapshotError as error:
            return [ChunkOutcome(load.chunk.chunk, "failed", error=error) for load in loads]
        per_byte = (time.monotonic() - started) / max(sum(load.bytes for load in loads), 1)
        return [self._outcome(load, results, load.bytes * per_byte, found) for load in loads]

    def _work(self, file: FilePlan) -> FileWork:
        return FileWork(file, self.plan.table_of(file), entry_of(file, self.plan.record))

    def _tasks(self, works: Sequence[FileWork]) -> list[Task[FileWork]]:
        """Divide work into a task for each slot, of about equal bytes, keeping the order within each."""
        shares: list[list[FileWork]] = [[] for _ in range(min(self.slots(), len(works)) if len(works) > 1 else 1)]
        sizes = [0] * len(shares)
        for work in works:
            smallest = sizes.index(min(sizes))
            shares[smallest].append(work)
            sizes[smallest] += work.plan.file.bytes
        return [Task(self.address, self.store, tuple(share)) for share in shares]

    def _outcome(
        self, load: ChunkLoad, results: Sequence[FileResult], seconds: float, damaged: Mapping[str, str]
    ) -> ChunkOutcome:
        chunk = load.chunk.chunk
        mine = [result for result in results if result.chunk == chunk]
        error = next((result.error for result in mine if result.error is not None), None)
        if error is not None:
            return ChunkOutcome(chunk, "failed", error=error)
        rows = sum(result.rows or 0 for result in mine)
        status = "incomplete" if load.left else "replaced" if load.replace else "loaded"
        own = {path: damaged[path] for path in (plan.file.path for plan in load.left) if path in damaged}
        return ChunkOutcome(chunk, status, rows, load.bytes, seconds, damaged=own)
