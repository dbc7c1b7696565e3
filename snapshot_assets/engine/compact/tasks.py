"""What one task of a compaction does, as plain functions that run without Spark too.

Files of one table and chunk are merged into new ones. What is read is hashed before, so that no damage is written anew
under a checksum that hides it; what was written is hashed after, and its rows are counted: the commit may then seal it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from snapshot_assets.engine.export.tasks import Provenance, write_table
from snapshot_assets.engine.parquet.reader import check_hash, read_batches
from snapshot_assets.engine.parquet.sorting import is_sortable, sorted_batches
from snapshot_assets.errors import SnapshotError, TaskFailedError
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.predicates import Predicate
from snapshot_assets.format.relations import Table, TableName
from snapshot_assets.storage.base import ObjectStore

MAX_KEY_BYTES = 1 << 30
"""Most bytes of primary keys, as Arrow holds them, among which duplicates are looked for: they are held in memory."""


@dataclass(frozen=True)
class Input:
    """A file that is merged.

    Attributes:
        deleting: Predicates of the tombstones that delete rows of it.
    """

    file: DataFile
    deleting: tuple[Predicate, ...] = ()


@dataclass(frozen=True)
class Merge:
    """Files of one table and chunk that one task merges.

    Attributes:
        window: The window as text, for footers; "" for chunk 0.
        table: The table as the newest schema has it.
        inputs: The files, oldest first.
        dedupe: Whether only the newest of several rows with one primary key stays.
        zone: IANA zone of times without one.
    """

    store: ObjectStore
    provenance: Provenance
    chunk: int
    window: str
    table: Table
    inputs: tuple[Input, ...]
    max_file_size: int
    dedupe: bool
    zone: str


@dataclass(frozen=True)
class Merged:
    """What became of a merge: its files, or the error that ended it.

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
    seconds: float = 0.0


@dataclass
class _Counts:
    deleted: int = 0
    duplicate: int = 0


def merge_files(work: Merge) -> Iterator[Merged]:
    """Merge files and make sure that no row was lost on the way; an error is what it yields then."""
    opened_at, started = datetime.now(UTC), time.monotonic()
    name, counts = work.table.table_name, _Counts()
    try:
        files = _write(work, counts)
    except SnapshotError as error:
        yield Merged(work.chunk, name, opened_at, error=error)
    except Exception as error:  # whatever Arrow or the disk raises fails this merge only
        described = TaskFailedError(f"{name} in chunk {work.chunk}: {type(error).__name__}: {error}", chunk=work.chunk)
        yield Merged(work.chunk, name, opened_at, error=described)
    else:
        seconds = time.monotonic() - started
        yield Merged(work.chunk, name, opened_at, files, counts.deleted, counts.duplicate, seconds=seconds)


def _write(work: Merge, counts: _Counts) -> tuple[DataFile, ...]:
    for each in work.inputs:
        check_hash(work.store, each.file)
    table, schema = work.table, work.table.arrow_schema()
    batches = _newest(work, counts) if work.dedupe else _rows(work, schema, counts)
    if table.time_index is not None and is_sortable(schema.field(table.time_index).type):
        batches = sorted_batches(batches, table.time_index)
    files = tuple(write_table(work.store, work.provenance, work.chunk, work.window, table, batches, work.max_file_size))
    _check_rows(work, counts, files)
    for file in files:
        check_hash(work.store, file)
    return files


def _check_rows(work: Merge, counts: _Counts, files: tuple[DataFile, ...]) -> None:
    read = sum(each.file.rows for each in work.inputs)
    expected, found = read - counts.deleted - counts.duplicate, sum(file.rows for file in files)
    if found != expected:
        raise TaskFailedError(
            f"The compaction of {work.table.table_name} in chunk {work.chunk} wrote {found} of {expected} rows; nothing"
            " of it was committed. Report this, and compact without this table.",
            chunk=work.chunk,
            found=found,
            expected=expected,
        )


def _rows(work: Merge, schema: pa.Schema, counts: _Counts) -> Iterator[pa.RecordBatch]:
    """Yield the rows that no tombstone has deleted, in the given columns."""
    for each in work.inputs:
        left = 0
        for batch in read_batches(work.store, each.file, schema, zone=work.zone, deleted=each.deleting):
            left += batch.num_rows
            yield batch
        if each.deleting:
            counts.deleted += each.file.rows - left


def _newest(work: Merge, counts: _Counts) -> Iterator[pa.RecordBatch]:
    """Yield the visible rows without those whose primary key a newer one has.

    Newer is what was added by a later revision, then the greater path, then the later row.
    """
    stays, start = _stays(work), 0
    for batch in _rows(work, work.table.arrow_schema(), counts):
        kept = batch.filter(pa.array(stays[start : start + batch.num_rows]))
        counts.duplicate += batch.num_rows - kept.num_rows
        start += batch.num_rows
        yield kept


def _stays(work: Merge) -> np.ndarray:
    """Tell of each visible row whether it stays. A row whose key is not complete is no duplicate of any."""
    assert work.table.primary_key is not None
    key = [work.table.column(name).arrow_field() for name in work.table.primary_key.columns]
    parts: list[pa.RecordBatch] = []
    size = 0
    for batch in _rows(work, pa.schema(key), _Counts()):
        parts.append(batch)
        size += batch.nbytes
        if size > MAX_KEY_BYTES:
            raise TaskFailedError(
                f"The primary keys of {work.table.table_name} in chunk {work.chunk} take more than {MAX_KEY_BYTES}"
                " bytes, too many to look for duplicates among them. Compact without dedupe.",
                chunk=work.chunk,
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
    stays = np.invert(complete)
    stays[last.to_numpy()] = True
    return stays
