"""The tasks of a restore, as plain functions that also run without Spark.

Two rounds of tasks restore a chunk: the first hashes all its files, the second loads them, each in one transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

import pyarrow as pa

from snapshot_assets.databases.open import open_target
from snapshot_assets.databases.protocol.source import DatabaseAddress, Rows
from snapshot_assets.databases.protocol.sql_target import SqlTarget
from snapshot_assets.databases.protocol.target import Load, LoadedFile, RestoreRecord
from snapshot_assets.engine.files.read import check_hash, read_batches
from snapshot_assets.engine.reports import reporter
from snapshot_assets.engine.restore.files import FilePlan
from snapshot_assets.errors import DamageError, ObjectNotFoundError, SnapshotError, TaskFailedError
from snapshot_assets.format.relations import Table
from snapshot_assets.storage.base import ObjectStore

_Work = TypeVar("_Work")


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
            loaded = target.load(work.entry, work.table, reporter().counted(_batches(store, work)))
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
        raise TaskFailedError(f"{what}: {type(error).__name__}: {error}", object=what) from error


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
    files = [(work.entry, work.table, reporter().counted(_batches(task.store, work))) for work in works]
    return Load(task.record.location_id, task.record.id, table, rows, files)


def _batches(store: ObjectStore, work: FileWork) -> Iterator[pa.RecordBatch]:
    return batches_of(store, work.plan, work.table, stored_schema(work.table))


def stored_schema(table: Table) -> pa.Schema:
    """Return the schema that a table is loaded with: without generated columns."""
    return pa.schema([column.arrow_field() for column in table.columns if column.generated is None])


def batches_of(store: ObjectStore, plan: FilePlan, table: Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file that are restored, in the schema that it is loaded with."""
    for batch in read_batches(store, plan.file, schema, plan.text, zone=plan.zone, deleted=plan.deleted):
        yield batch if plan.cut is None else plan.cut.filter(batch, table)
