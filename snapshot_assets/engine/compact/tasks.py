"""Tasks of a compaction: plain functions that also run without Spark.

A task merges files of one table and chunk. It hashes the input first, so that no damage is rewritten under a checksum
that hides it. It hashes the output and counts its rows, so that the commit may seal it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from snapshot_assets.engine.compact.plan import Group
from snapshot_assets.engine.export.tasks import Provenance, write_table
from snapshot_assets.engine.files.read import check_hash, read_batches
from snapshot_assets.engine.files.sorting import sorted_batches
from snapshot_assets.engine.reports import reporter
from snapshot_assets.engine.time_range import is_time
from snapshot_assets.errors import SnapshotError, TaskFailedError
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.units import counted, number_text
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
        described = TaskFailedError(f"{work.what}: {type(error).__name__}: {error}", chunk=work.group.chunk)
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
    _check_rows(work, rows.deleted + duplicate, files)
    for file in files:
        check_hash(work.store, file)
    return replace(empty, files=files, rows_deleted=rows.deleted, rows_duplicate=duplicate)


def _check_rows(work: Merge, left_out: int, files: tuple[DataFile, ...]) -> None:
    expected = work.group.rows - left_out
    found = sum(file.rows for file in files)
    if found != expected:
        raise TaskFailedError(
            f"The compaction of {work.what} wrote {number_text(found)} of {counted(expected, 'row')}; nothing of it was"
            " committed. Report this, and compact without this table.",
            chunk=work.group.chunk,
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
