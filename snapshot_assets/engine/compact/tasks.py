"""Tasks of a compaction: plain functions that also run without Spark.

A task merges files of one table and chunk. It hashes the input first, so that no damage is rewritten under a checksum
that hides it. It hashes the output and counts its rows, so that the commit may seal it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
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
"""Most bytes of primary keys, as Arrow stores them, that a search for duplicates keeps in memory."""


@dataclass(frozen=True)
class Input:
    """A file that is merged.

    Attributes:
        deleting: Predicates of the tombstones that delete its rows.
    """

    file: DataFile
    deleting: tuple[Predicate, ...] = ()


@dataclass(frozen=True)
class Merge:
    """Files of one table and chunk that one task merges.

    Attributes:
        window: The window as text, for footers; "" for chunk 0.
        table: The table in its newest schema.
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
    seconds: float = 0.0


class _VisibleRows:
    """Reads the rows that no tombstone deletes, in the given columns, and counts the deleted ones."""

    def __init__(self, work: Merge, schema: pa.Schema) -> None:
        self._work = work
        self._schema = schema
        self.deleted = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        work = self._work
        for each in work.inputs:
            left = 0
            for batch in read_batches(work.store, each.file, self._schema, zone=work.zone, deleted=each.deleting):
                left += batch.num_rows
                yield batch
            if each.deleting:
                self.deleted += each.file.rows - left


def merge_files(work: Merge) -> Iterator[Merged]:
    """Merge files and check that no row was lost; yields the one result, which may be an error."""
    opened_at, started = datetime.now(UTC), time.monotonic()
    name = work.table.table_name
    try:
        result = _merge(work, opened_at)
    except SnapshotError as error:
        yield Merged(work.chunk, name, opened_at, error=error)
    except Exception as error:  # whatever Arrow or the disk raises fails this merge only
        described = TaskFailedError(f"{name} in chunk {work.chunk}: {type(error).__name__}: {error}", chunk=work.chunk)
        yield Merged(work.chunk, name, opened_at, error=described)
    else:
        yield replace(result, seconds=time.monotonic() - started)


def _merge(work: Merge, opened_at: datetime) -> Merged:
    for each in work.inputs:
        check_hash(work.store, each.file)
    table, schema = work.table, work.table.arrow_schema()
    rows = _VisibleRows(work, schema)
    batches: Iterable[pa.RecordBatch] = rows
    duplicate = 0
    if work.dedupe:
        newest = _newest(work)
        batches = _filtered(rows, newest)
        duplicate = len(newest) - int(newest.sum())
    if table.time_index is not None and is_sortable(schema.field(table.time_index).type):
        batches = sorted_batches(batches, table.time_index)
    files = tuple(write_table(work.store, work.provenance, work.chunk, work.window, table, batches, work.max_file_size))
    _check_rows(work, rows.deleted + duplicate, files)
    for file in files:
        check_hash(work.store, file)
    return Merged(work.chunk, table.table_name, opened_at, files, rows.deleted, duplicate)


def _check_rows(work: Merge, left_out: int, files: tuple[DataFile, ...]) -> None:
    expected = sum(each.file.rows for each in work.inputs) - left_out
    found = sum(file.rows for file in files)
    if found != expected:
        raise TaskFailedError(
            f"The compaction of {work.table.table_name} in chunk {work.chunk} wrote {found} of {expected} rows; nothing"
            " of it was committed. Report this, and compact without this table.",
            chunk=work.chunk,
            found=found,
            expected=expected,
        )


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
    assert work.table.primary_key is not None
    key = [work.table.column(name).arrow_field() for name in work.table.primary_key.columns]
    parts: list[pa.RecordBatch] = []
    size = 0
    for batch in _VisibleRows(work, pa.schema(key)):
        parts.append(batch)
        size += batch.nbytes
        if size > MAX_KEY_BYTES:
            raise TaskFailedError(
                f"The primary keys of {work.table.table_name} in chunk {work.chunk} take more than {MAX_KEY_BYTES}"
                " bytes, too many to search for duplicates. Compact without dedupe.",
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
    newest = np.invert(complete)
    newest[last.to_numpy()] = True
    return newest
