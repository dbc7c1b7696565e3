"""Tasks of an export: plain functions that also run without Spark.

A task is data: it is pickled into the closure, secrets included, and opens its own database connection and store. Rows
go from the database to the file inside the task; only metadata of files comes back.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from snapshot_assets.catalog.receipts import Receipt, write_young_receipt
from snapshot_assets.databases.open import open_database
from snapshot_assets.databases.protocol.source import Database, DatabaseAddress, Scan, TimelessRows
from snapshot_assets.databases.sql import qualified
from snapshot_assets.engine.files.target import FileTarget
from snapshot_assets.engine.reports import reporter
from snapshot_assets.errors import DatabaseError, SnapshotError, TaskFailedError
from snapshot_assets.format.actions import DataFile, Header, ObjectRef
from snapshot_assets.format.documents import FORMAT_VERSION
from snapshot_assets.format.header import format_of
from snapshot_assets.format.layout import data_file_stem, new_attempt
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import Table, TableName
from snapshot_assets.storage.base import ObjectStore

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Provenance:
    """Origin of a run's files, which every file and receipt records.

    Attributes:
        base_revision: Head when the run planned.
        tombstones_through: Newest revision whose tombstones the files need not be filtered by: the head before the
            source was opened, or the revision that a compaction planned on.
        schema_sha256: Content of the schema documents in force.
        fence: The state of the database that is read.
        metadata: Further entries of the files' footers.
        header: The snapshot's header when the run planned.
        version: Format version of receipts.
    """

    location_id: str
    snapshot_id: str
    base_revision: int
    schema_id: int
    schema_sha256: str
    run: str
    tombstones_through: int
    fence: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    header: Header | None = None
    version: int = FORMAT_VERSION

    def receipt(self, part: ChunkResult, supersedes: tuple[str, ...] = ()) -> Receipt:
        """Return the receipt of a finished chunk."""
        return Receipt(
            snapshot_id=self.snapshot_id,
            base_revision=self.base_revision,
            schema_sha256=self.schema_sha256,
            chunk=part.chunk,
            attempt=new_attempt(),
            opened_at=part.opened_at,
            fence=dict(self.fence),
            files=part.files,
            supersedes=supersedes,
            run=self.run,
            location_id=self.location_id,
            header=self.header,
            version=self.version,
        )


@dataclass(frozen=True)
class ChunkWork:
    """The scans of one chunk, or of a part of it, that one task runs.

    Attributes:
        window: The window as text, for footers; "" for chunk 0.
        whole: Whether these are all scans of the chunk; then the task writes its receipt.
        timeless_allowed: Whether rows without a finite time may be exported; otherwise such a row fails the chunk.
        counts: Rows of the whole chunk by table, as the database counts them; see `Database.count_rows`.
    """

    chunk: int
    window: str
    scans: tuple[Scan, ...]
    whole: bool = True
    timeless_allowed: bool = True
    supersedes: tuple[str, ...] = ()
    counts: Mapping[TableName, int] = field(default_factory=dict)

    def check_counts(self, files: Iterable[DataFile]) -> None:
        """Compare the rows that the chunk's tasks wrote with those that the database counted.

        Raises:
            DatabaseError: They differ.
        """
        written = Counter[TableName]()
        for file in files:
            written[TableName(file.schema, file.table)] += file.rows
        for name, counted in self.counts.items():
            if written[name] != counted:
                raise DatabaseError(
                    f"{name}: the database counts {counted:,} rows in {self.window or 'chunk 0'}, and the tasks read"
                    f" {written[name]:,} of the same state, so nothing of this chunk is committed. The usual"
                    f" cause is a corrupt index: check the indexes with amcheck, and REINDEX TABLE {qualified(name)},"
                    " then run again. If the numbers still differ, report it.",
                    table=str(name),
                    chunk=self.chunk,
                )


Frame = tuple[Table, Any]
"""A table's document, and the DataFrame with its rows."""


@dataclass(frozen=True)
class ChunkPlan:
    """How one chunk is read: one work per task, or DataFrames.

    Attributes:
        size: Estimated bytes; small chunks share a task.
        check: Raises an error if the frames may not be exported. Every attempt calls it, because it reads the source.
    """

    chunk: int
    works: tuple[ChunkWork, ...] = ()
    size: int = 0
    window: str = ""
    frames: tuple[Frame, ...] = ()
    check: Callable[[], None] | None = None


@dataclass(frozen=True)
class Task:
    """One Spark task: some chunks' work on one database connection."""

    address: DatabaseAddress
    store: ObjectStore
    provenance: Provenance
    works: tuple[ChunkWork, ...]
    max_file_size: int


@dataclass(frozen=True)
class ChunkResult:
    """Result of one chunk's work: its files, or its error.

    Attributes:
        opened_at: When the first file may have been opened.
        receipt: Reference of the receipt, where the work was the whole chunk.
        seconds: Duration.
    """

    chunk: int
    opened_at: datetime
    files: tuple[DataFile, ...] = ()
    receipt: ObjectRef | None = None
    error: SnapshotError | None = None
    seconds: float = 0.0


def run_task(task: Task) -> Iterator[ChunkResult]:
    """Run a task's works one after the other; a failed work does not stop the others."""
    try:
        database = open_database(task.address)
    except SnapshotError as error:
        yield from (ChunkResult(work.chunk, datetime.now(UTC), error=error) for work in task.works)
        return
    with closing(database):
        for work in task.works:
            yield _run_work(task, work, database)


def _run_work(task: Task, work: ChunkWork, database: Database) -> ChunkResult:
    opened_at, started = datetime.now(UTC), time.monotonic()
    try:
        with reporter().work(work.chunk, database.interrupt):
            files = tuple(file for scan in work.scans for file in _export_scan(task, work, scan, database))
        result = ChunkResult(work.chunk, opened_at, files)
        if work.whole:
            work.check_counts(files)
            receipt = task.provenance.receipt(result, work.supersedes)
            result = replace(result, receipt=write_young_receipt(task.store, receipt, datetime.now(UTC)))
        return replace(result, seconds=time.monotonic() - started)
    except SnapshotError as error:
        return ChunkResult(work.chunk, opened_at, error=error)
    except Exception as error:  # an error of a driver or of Arrow fails only this chunk
        described = TaskFailedError(f"{type(error).__name__}: {error}", chunk=work.chunk)
        return ChunkResult(work.chunk, opened_at, error=described)


def _export_scan(task: Task, work: ChunkWork, scan: Scan, database: Database) -> list[DataFile]:
    with database.scan(scan) as scanned:
        batches = scanned
        if isinstance(scan.rows, TimelessRows) and not work.timeless_allowed:
            batches = _refuse_rows(scan.table, scanned)
        return write_table(
            task.store, task.provenance, work.chunk, work.window, scan.table, batches, task.max_file_size
        )


def write_table(
    store: ObjectStore,
    provenance: Provenance,
    chunk: int,
    window: str,
    table: Table,
    batches: Iterable[pa.RecordBatch],
    max_file_size: int,
    *,
    keep_empty: bool = False,
) -> list[DataFile]:
    """Write one table's batches as a new attempt at a chunk.

    Rows of a partitioned copy go to the folders of their partitions; sorted rows make the fewest files.

    Returns:
        Its files; without rows none, or with `keep_empty` one.
    """
    from snapshot_assets.engine.files.partitions import partitions
    from snapshot_assets.engine.files.write import write_files

    attempt, header = new_attempt(), provenance.header
    target = FileTarget(
        chunk=chunk,
        schema=table.schema_name,
        table=table.name,
        schema_id=provenance.schema_id,
        attempt=attempt,
        tombstones_through=provenance.tombstones_through,
        stem=data_file_stem(chunk, table.table_name, attempt),
        single=header is not None and header.single_file,
        metadata={
            **provenance.metadata,
            "location_id": provenance.location_id,
            "snapshot_id": provenance.snapshot_id,
            "schema_sha256": provenance.schema_sha256,
            "window": window,
        },
    )
    write = partial(
        write_files,
        store,
        schema=table.arrow_schema(),
        max_file_size=max_file_size,
        file_format=format_of(header),
    )
    files: list[DataFile] = []
    for folders, rows in partitions(reporter().counted(batches), header.partition_by if header is not None else ()):
        stem = data_file_stem(chunk, table.table_name, attempt, folders)
        files += write(replace(target, stem=stem, first_part=len(files)), batches=rows)
    return files if files or not keep_empty else write(target, batches=(), keep_empty=True)


def _refuse_rows(table: Table, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows:
            raise timeless_rows_error(table)
        yield batch


def timeless_rows_error(table: Table) -> DatabaseError:
    """Return the error for rows without a finite time, where the plan forbids them."""
    return DatabaseError(
        f"{table.table_name} holds rows whose {table.time_index} is NULL or infinite, and the plan has "
        "null_time: fail. Correct the rows, or write null_time: chunk0 to export them in chunk 0.",
        table=table_text(table.table_name),
    )
