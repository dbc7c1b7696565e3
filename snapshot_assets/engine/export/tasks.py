"""The work of a chunk, its outcome, and the task of an export: a plain function that also runs without Spark.

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
from itertools import chain
from typing import TYPE_CHECKING, Any

from snapshot_assets.catalog.receipts import Receipt, write_young_receipt
from snapshot_assets.databases.open import kind_of, open_database
from snapshot_assets.databases.protocol.source import Database, DatabaseAddress, Scan, TimelessRows
from snapshot_assets.databases.sql import qualified
from snapshot_assets.engine.export.division import Portion, written_range
from snapshot_assets.engine.files.target import FileSums, FileTarget
from snapshot_assets.engine.reports import reporter
from snapshot_assets.errors import DatabaseError, SnapshotError, TaskFailedError, foreign_text
from snapshot_assets.format.actions import DataFile, Header, ObjectRef
from snapshot_assets.format.chunk_parts import KeyRange, RowsErased, joined
from snapshot_assets.format.documents import FORMAT_VERSION
from snapshot_assets.format.header import format_of
from snapshot_assets.format.layout import UNTIMED_CHUNK, data_file_stem, new_attempt
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import Table, TableName
from snapshot_assets.storage.base import ObjectStore

if TYPE_CHECKING:
    import pyarrow as pa

    from snapshot_assets.catalog.verify.faults import Fault


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

    def receipt(self, outcome: Outcome, supersedes: tuple[str, ...] = ()) -> Receipt:
        """Return the receipt of a chunk that was read."""
        return Receipt(
            snapshot_id=self.snapshot_id,
            base_revision=self.base_revision,
            schema_sha256=self.schema_sha256,
            chunk=outcome.chunk,
            attempt=new_attempt(),
            opened_at=outcome.opened_at,
            fence=dict(self.fence),
            files=outcome.files,
            supersedes=supersedes,
            run=self.run,
            location_id=self.location_id,
            header=self.header,
            version=self.version,
            ranges=outcome.ranges,
        )


Frame = tuple[Table, Any]
"""A table's document, and the DataFrame with its rows."""


@dataclass(frozen=True)
class ChunkWork:
    """One chunk to export, as planned; or the part of it that one task reads.

    Attributes:
        window: The window as text, for footers; "" for chunk 0.
        scans: The scans of each task that reads the chunk; a part has one task.
        size: Estimated bytes; small chunks share a task.
        whole: Whether these are all scans of the chunk; then the task writes its receipt.
        timeless_allowed: Whether rows without a finite time may be exported; otherwise such a row fails the chunk.
        counts: Rows that are read by table, as the database counts them; see `Database.count_rows`.
        frames: DataFrames with the rows, instead of scans.
        check: Raises an error if the frames may not be exported. Every attempt calls it, because it reads the source.
        status: Status of the outcome once the chunk is committed.
        replaces: The chunk's files, which the commit removes unless they stay; None if the chunk must not be completed
            yet. A part has none.
        superseded: The attempts of the files that it removes, which the receipt names.
        only: The parts that are read, ranges as the log has them; the files of others stay as they are. None for all.
    """

    chunk: int
    window: str = ""
    scans: tuple[tuple[Scan, ...], ...] = ()
    size: int = 0
    whole: bool = True
    timeless_allowed: bool = True
    counts: Mapping[TableName, int] = field(default_factory=dict)
    frames: tuple[Frame, ...] = ()
    check: Callable[[], None] | None = None
    status: str = "exported"
    replaces: tuple[DataFile, ...] | None = None
    superseded: tuple[str, ...] = ()
    only: frozenset[Portion] | None = None

    @property
    def parts(self) -> list[ChunkWork]:
        """The work of each task."""
        whole = len(self.scans) == 1 and self.only is None  # only then the task writes the receipt
        task = replace(self, whole=whole, replaces=None, superseded=self.superseded if whole else ())
        return [replace(task, scans=(scans,)) for scans in self.scans]

    def replacing(self, files: tuple[DataFile, ...]) -> ChunkWork:
        """Return the work, whose commit replaces files, except those of tables that are not read."""
        gone = {file.attempt for file in files if not self.stays(file)}
        return replace(self, replaces=files, superseded=tuple(sorted(gone)))

    @property
    def keeps_all(self) -> bool:
        """Whether nothing is read: the chunk only takes the run's fence."""
        return self.only is not None and not self.only

    def stays(self, known: DataFile | RowsErased | KeyRange) -> bool:
        """Return whether a file, or what is known of a table or range, stays as it is."""
        if self.only is None or TableName(known.schema, known.table) in self.only:
            return False
        ranges = [each for each in self.only if isinstance(each, KeyRange)]
        if isinstance(known, DataFile):
            return not any(known.attempt in each.attempts for each in ranges)
        return known not in ranges

    def check_counts(self, files: Iterable[DataFile], address: DatabaseAddress) -> None:
        """Compare the rows that the chunk's tasks wrote with those that the database counted.

        Args:
            files: What the tasks wrote.
            address: The database, whose kind tells how it mends indexes.

        Raises:
            DatabaseError: They differ.
        """
        written = Counter[TableName]()
        for file in files:
            written[TableName(file.schema, file.table)] += file.rows
        for name, counted in self.counts.items():
            if written[name] != counted:
                advice = kind_of(address.uri).mend_indexes.format(table=qualified(name))
                raise DatabaseError(
                    f"{name}: the database counts {counted:,} rows in {self.window or 'chunk 0'}, and the tasks read"
                    f" {written[name]:,} of the same state, so nothing of this chunk is committed. The usual"
                    f" cause is a corrupt index: {advice}, then run again. If the numbers still differ, report it.",
                    table=str(name),
                    chunk=self.chunk,
                )


@dataclass(frozen=True)
class Outcome(FileSums):
    """Outcome of a chunk, or of the part of it that one task read.

    Attributes:
        status: `exported`, `replaced` (it was completed before, and is exported again), `repaired` (its files were
            damaged), `adopted` (an earlier attempt's receipt), `present` (completed before), or `failed`; `read` until
            it is committed.
        seconds: Time of the slowest task, reading and writing.
        faults: What was damaged.
        hashed: Whether this run hashed all its files, as it wrote or read them.
        opened_at: When the first file may have been opened.
        receipt: Reference of the receipt, where one task read the whole chunk.
        ranges: The ranges of divided tables.
    """

    chunk: int
    status: str
    files: tuple[DataFile, ...] = ()
    seconds: float = 0.0
    error: SnapshotError | None = None
    faults: tuple[Fault, ...] = ()
    hashed: bool = True
    opened_at: datetime = field(default_factory=lambda: datetime.now(UTC), compare=False)
    receipt: ObjectRef | None = None
    ranges: tuple[KeyRange, ...] = ()

    @property
    def counted(self) -> bool:
        """Whether people count the chunk: each is counted, except chunk 0 if it is empty."""
        return self.chunk != UNTIMED_CHUNK or bool(self.files) or self.error is not None


@dataclass(frozen=True)
class Task:
    """One Spark task: some chunks' work on one database connection."""

    address: DatabaseAddress
    store: ObjectStore
    provenance: Provenance
    works: tuple[ChunkWork, ...]
    max_file_size: int


def run_task(task: Task) -> Iterator[Outcome]:
    """Run a task's works one after the other; a failed work does not stop the others."""
    try:
        database = open_database(task.address)
    except SnapshotError as error:
        yield from (Outcome(work.chunk, "failed", error=error) for work in task.works)
        return
    with closing(database):
        for work in task.works:
            yield _run_work(task, work, database)


def _run_work(task: Task, work: ChunkWork, database: Database) -> Outcome:
    opened_at, started = datetime.now(UTC), time.monotonic()
    files: list[DataFile] = []
    ranges: list[KeyRange] = []
    try:
        with reporter().work(work.chunk, database.interrupt):
            for scan in chain.from_iterable(work.scans):
                refused = isinstance(scan.rows, TimelessRows) and not work.timeless_allowed
                with database.scan(scan) as batches:
                    written = write_table(
                        task.store,
                        task.provenance,
                        work.chunk,
                        work.window,
                        scan.table,
                        _refuse_rows(scan.table, batches) if refused else batches,
                        task.max_file_size,
                    )
                files += written
                if each := written_range(scan, written):
                    ranges.append(each)
        outcome = Outcome(work.chunk, "read", tuple(files), opened_at=opened_at, ranges=joined(ranges))
        if work.whole:
            work.check_counts(files, task.address)
            receipt = task.provenance.receipt(outcome, work.superseded)
            outcome = replace(outcome, receipt=write_young_receipt(task.store, receipt, datetime.now(UTC)))
        return replace(outcome, seconds=time.monotonic() - started)
    except SnapshotError as error:
        return Outcome(work.chunk, "failed", error=error)
    except Exception as error:  # an error of a driver or of Arrow fails only this chunk
        described = TaskFailedError(foreign_text(error), chunk=work.chunk)
        return Outcome(work.chunk, "failed", error=described)


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
    from snapshot_assets.engine.files.write import partitions, write_files

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
