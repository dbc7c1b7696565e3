"""The data file writer: Arrow batches of one table and window in, Parquet objects out, hashed as they are written.

Memory is bounded whatever the chunk's size: at most one row group of Arrow data is held, besides its encoded form. A
file is closed once it has reached `max_file_size`, so it may exceed that by one row group (as Materialize's Parquet
sink: the size is approximate).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from snapshot_assets.engine.encodings import choose_encodings
from snapshot_assets.engine.statistics import file_statistics, row_group_statistics
from snapshot_assets.errors import DocumentError
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.units import time_text
from snapshot_assets.storage.base import ObjectStore, ObjectWriter

ROW_GROUP_BYTES = 64 << 20
"""Most Arrow bytes of a row group; less where `max_file_size` is small (a quarter of it)."""
ROW_GROUP_ROWS = 1 << 20
_ZSTD_LEVEL = 1
_PAGE_BYTES = 1 << 20


@dataclass(frozen=True)
class FileTarget:
    """Where one attempt at a table of a chunk writes, and what its files say of themselves.

    Attributes:
        stem: Path without part and extension; files are `<stem>-<part>.parquet`.
        metadata: Further footer entries, without the prefix `snapshot.`.
    """

    chunk: int
    schema: str
    table: str
    schema_id: int
    attempt: str
    tombstones_through: int
    stem: str
    metadata: Mapping[str, str] = field(default_factory=dict)


def write_files(
    store: ObjectStore,
    target: FileTarget,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    *,
    max_file_size: int,
) -> list[DataFile]:
    """Write batches as Parquet files and return one record per file; no rows, no file.

    Args:
        store: The location.
        target: Names and footer entries.
        schema: The table's Arrow schema, which every batch has.
        batches: The rows, in any sizes.
        max_file_size: Bytes at which a file is closed and the next one begun.

    Raises:
        DocumentError: A batch has another schema.
        StorageError: The store failed; the file at hand is aborted, and nothing of it is visible.
    """
    files: list[DataFile] = []
    row_group_bytes = min(ROW_GROUP_BYTES, max(1, max_file_size // 4))
    groups = _row_groups(schema, batches, row_group_bytes)
    group = next(groups, None)
    while group is not None:
        path = f"{target.stem}-{len(files):04d}.parquet"
        with store.open_writer(path) as writer, _OpenFile(writer, path, target, group) as opened:
            while group is not None and opened.size < max_file_size:
                opened.write(group)
                group = next(groups, None)
            files.append(opened.finish())
    return files


def _row_groups(schema: pa.Schema, batches: Iterable[pa.RecordBatch], most_bytes: int) -> Iterator[pa.Table]:
    """Yield tables of about one row group each: small batches joined, large ones cut."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.schema.equals(schema):
            raise DocumentError(f"A batch has the columns {batch.schema}; expected {schema}.")
        for piece in _pieces(batch, most_bytes):
            if rows and (size + piece.nbytes > most_bytes or rows + piece.num_rows > ROW_GROUP_ROWS):
                yield pa.Table.from_batches(held, schema)
                held, rows, size = [], 0, 0
            held.append(piece)
            rows, size = rows + piece.num_rows, size + piece.nbytes
    if rows:
        yield pa.Table.from_batches(held, schema)


def _pieces(batch: pa.RecordBatch, most_bytes: int) -> Iterator[pa.RecordBatch]:
    if not batch.num_rows:
        return
    count = max(-(-batch.nbytes // most_bytes), -(-batch.num_rows // ROW_GROUP_ROWS))
    length = -(-batch.num_rows // count)
    for start in range(0, batch.num_rows, length):
        yield batch.slice(start, length)


class _HashingSink:
    """The file-like object that Parquet is written to: hashes and counts what passes to the store."""

    closed = False

    def __init__(self, writer: ObjectWriter) -> None:
        self._writer: ObjectWriter | None = writer
        self.sha256 = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes | memoryview) -> int:
        if self._writer is None:
            return len(data)
        self.sha256.update(data)
        self.size += len(data)
        return self._writer.write(data)

    def flush(self) -> None:
        """The store flushes when the object is published."""

    def close(self) -> None:
        self.closed = True

    def abandon(self) -> None:
        """Let nothing more through: pyarrow writes a footer even when it is closed by an error."""
        self._writer = None


class _OpenFile:
    """One Parquet file under construction; its encodings fit the first row group."""

    def __init__(self, writer: ObjectWriter, path: str, target: FileTarget, first: pa.Table) -> None:
        self._path, self._target, self._schema = path, target, first.schema
        self._sink = _HashingSink(writer)
        self._first = self._last = datetime.now(UTC)
        self._metadata: list[Any] = []
        encodings = choose_encodings(first)
        self._parquet = pq.ParquetWriter(
            pa.PythonFile(self._sink, "w"),
            first.schema,
            compression="zstd",
            compression_level=_ZSTD_LEVEL,
            use_dictionary=encodings.dictionary,
            column_encoding=encodings.columns or None,
            data_page_size=_PAGE_BYTES,
            metadata_collector=self._metadata,
        )

    def __enter__(self) -> _OpenFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        if kind is not None:
            self._sink.abandon()
            self._parquet.close()

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._sink.size

    def write(self, group: pa.Table) -> None:
        """Append one row group."""
        self._last = datetime.now(UTC)
        self._parquet.write_table(group, row_group_size=group.num_rows)

    def finish(self) -> DataFile:
        """Write the footer and return what is known of the file; the caller publishes it."""
        target = self._target
        own = {
            "schema": target.schema,
            "table": target.table,
            "chunk": str(target.chunk),
            "attempt": target.attempt,
            "first_ingest_time": time_text(self._first),
            "last_ingest_time": time_text(self._last),
        }
        self._parquet.add_key_value_metadata({f"snapshot.{k}": v for k, v in {**target.metadata, **own}.items()})
        self._parquet.close()
        groups = row_group_statistics(self._schema, self._metadata[-1])
        return DataFile(
            path=self._path,
            schema=target.schema,
            table=target.table,
            chunk=target.chunk,
            attempt=target.attempt,
            rows=sum(group.rows for group in groups),
            bytes=self._sink.size,
            sha256=self._sink.sha256.hexdigest(),
            schema_id=target.schema_id,
            tombstones_through=target.tombstones_through,
            columns=file_statistics(self._schema, groups),
            row_groups=groups,
        )
