"""Writes data files: Arrow batches of one table and window become verifiable Parquet objects.

One pass collects rows into row groups, encodes, hashes and stores them. Memory contains the rows of at most three row
groups, whatever the chunk's size.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain

import pyarrow as pa
import pyarrow.parquet as pq

from snapshot_assets.engine.parquet.encodings import Encodings, choose_encodings
from snapshot_assets.engine.parquet.statistics import file_columns, row_groups
from snapshot_assets.errors import DatabaseError
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.units import time_text
from snapshot_assets.storage.base import ObjectStore, ObjectWriter

ROW_GROUP_BYTES = 32 << 20
"""Most bytes of rows in one row group, in Arrow's memory; a single larger row is a row group."""
ROW_GROUP_ROWS = 1 << 20
ROW_GROUPS_PER_FILE = 4
"""A row group takes at most this share of `max_file_size`, so that a file exceeds it by little."""
SMALLEST_ROW_GROUP = 64 << 10


@dataclass(frozen=True)
class FileTarget:
    """Names and metadata of the files of one task attempt at one table and window.

    Attributes:
        schema_id: Schema of the rows.
        attempt: 8 hex digits of the task attempt.
        tombstones_through: Newest tombstone revision physically applied.
        stem: Path without part and extension (see `format.layout.data_file_stem`).
        metadata: Further entries of the footers; each becomes the key `snapshot.<name>`.
    """

    chunk: int
    schema: str
    table: str
    schema_id: int
    attempt: str
    tombstones_through: int
    stem: str
    metadata: Mapping[str, str] = field(default_factory=dict)

    def path(self, part: int) -> str:
        """Return the path of one file."""
        return f"{self.stem}-{part:04d}.parquet"


def write_files(
    store: ObjectStore,
    target: FileTarget,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    *,
    max_file_size: int,
) -> list[DataFile]:
    """Write batches as Parquet files.

    A file is closed once it has `max_file_size` bytes. It may exceed that by its last row group, whose rows take at
    most a quarter of `max_file_size` (and 32 MiB) in memory, unless a single row is larger. An error aborts the open
    object; finished objects stay as orphans.

    Args:
        store: The location.
        target: Names and metadata of the files.
        schema: The schema of every batch.
        batches: The rows.
        max_file_size: Bytes at which a file is closed.

    Returns:
        The files, in order; empty if there are no rows.

    Raises:
        DatabaseError: A batch has another schema, or rows without columns, which Parquet cannot store.
        StorageError: The store refused or failed.
    """
    limit = min(max(max_file_size // ROW_GROUPS_PER_FILE, SMALLEST_ROW_GROUP), ROW_GROUP_BYTES)
    groups = _row_groups(_checked(batches, target, schema), limit)
    files: list[DataFile] = []
    encodings: Encodings | None = None
    for first in groups:
        encodings = encodings or choose_encodings(first.rows)
        path = target.path(len(files))
        files.append(_write_file(store, target, path, encodings, chain([first], groups), max_file_size))
    return files


@dataclass(frozen=True)
class _RowGroup:
    """Rows of one row group, and when the first and last of their batches arrived."""

    rows: pa.Table
    first: datetime
    last: datetime


def _checked(batches: Iterable[pa.RecordBatch], target: FileTarget, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Compare the batches' schema, and yield those with rows, without metadata of their source."""
    for batch in batches:
        if not batch.schema.equals(schema):
            raise DatabaseError(
                f"A batch of {target.schema}.{target.table} has the columns {_text(batch.schema)}; expected"
                f" {_text(schema)}. Extract the schema again: the table may have changed meanwhile.",
                table=f"{target.schema}.{target.table}",
            )
        if batch.num_rows and not schema.names:
            raise DatabaseError(
                f"{target.schema}.{target.table} has rows and no columns, and a data file cannot store such rows. Omit"
                " the table from the plan: name the others under `tables`.",
                table=f"{target.schema}.{target.table}",
            )
        if batch.num_rows:
            yield batch.replace_schema_metadata(schema.metadata)


def _text(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}{'' if field.nullable else ' not null'}" for field in schema)


def _row_groups(batches: Iterator[pa.RecordBatch], limit: int) -> Iterator[_RowGroup]:
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    first = last = datetime.now(UTC)
    for batch in batches:
        arrived = datetime.now(UTC)
        for piece in pieces(batch, limit):
            if pending and (size + piece.nbytes > limit or rows + piece.num_rows > ROW_GROUP_ROWS):
                yield _RowGroup(pa.Table.from_batches(pending), first, last)
                pending, rows, size = [], 0, 0
            if not pending:
                first = arrived
            pending.append(piece)
            rows, size, last = rows + piece.num_rows, size + piece.nbytes, arrived
    if pending:
        yield _RowGroup(pa.Table.from_batches(pending), first, last)


def pieces(batch: pa.RecordBatch, limit: int) -> Iterator[pa.RecordBatch]:
    """Split a batch in halves until each fits into a row group: rows may differ in width by orders of magnitude."""
    if batch.num_rows == 1 or (batch.nbytes <= limit and batch.num_rows <= ROW_GROUP_ROWS):
        yield batch
        return
    half = batch.num_rows // 2
    yield from pieces(batch.slice(0, half), limit)
    yield from pieces(batch.slice(half), limit)


def _write_file(
    store: ObjectStore,
    target: FileTarget,
    path: str,
    encodings: Encodings,
    groups: Iterator[_RowGroup],
    max_file_size: int,
) -> DataFile:
    with store.open_writer(path) as out, _HashingSink(out) as sink:
        metadata, schema = _encode(sink, target, encodings, groups, max_file_size)
    found = row_groups(metadata, schema)
    return DataFile(
        path=path,
        schema=target.schema,
        table=target.table,
        chunk=target.chunk,
        attempt=target.attempt,
        rows=metadata.num_rows,
        bytes=sink.size,
        sha256=sink.sha256.hexdigest(),
        schema_id=target.schema_id,
        tombstones_through=target.tombstones_through,
        columns=file_columns(found, schema),
        row_groups=found,
    )


def _encode(
    sink: _HashingSink, target: FileTarget, encodings: Encodings, groups: Iterator[_RowGroup], max_file_size: int
) -> tuple[pq.FileMetaData, pa.Schema]:
    group: _RowGroup | None = next(groups)
    assert group is not None
    schema, first = group.rows.schema, group.first
    # Pages of 20,000 rows, pyarrow's default, would cost 6 % of the time and 2 % of the size.
    writer = pq.ParquetWriter(sink, schema, max_rows_per_page=ROW_GROUP_ROWS, **encodings.options())
    while group is not None:
        writer.write_table(group.rows, row_group_size=group.rows.num_rows)
        last = group.last
        group = next(groups, None) if sink.size < max_file_size else None
    writer.add_key_value_metadata(_footer(target, first, last))
    writer.close()
    return writer.writer.metadata, schema


def _footer(target: FileTarget, first_ingest: datetime, last_ingest: datetime) -> dict[str, str]:
    facts = {
        **target.metadata,
        "schema": target.schema,
        "table": target.table,
        "chunk": str(target.chunk),
        "attempt": target.attempt,
        "first_ingest_time": time_text(first_ingest),
        "last_ingest_time": time_text(last_ingest),
    }
    return {f"snapshot.{name}": value for name, value in facts.items()}


class _HashingSink:
    """The file that Parquet writes to: hashes and counts the bytes that go to the store.

    Leaving the context raises an error of the store. Later writes are dropped: a failed Parquet writer still tries to
    write its footer when it is deleted.
    """

    def __init__(self, out: ObjectWriter) -> None:
        self._out: ObjectWriter | None = out
        self._failure: BaseException | None = None
        self.sha256 = hashlib.sha256()
        self.size = 0
        self.closed = False

    def __enter__(self) -> _HashingSink:
        return self

    def __exit__(self, _kind: object, _error: object, _traceback: object) -> None:
        self._out = None
        if self._failure is not None:
            raise self._failure

    def write(self, data: bytes) -> int:
        if self._out is None or self._failure is not None:
            return len(data)
        try:
            self._out.write(data)
        except BaseException as failure:
            self._failure = failure
            raise
        self.sha256.update(data)
        self.size += len(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing: no bytes are buffered."""

    def close(self) -> None:
        """Do nothing: the store closes the object."""
