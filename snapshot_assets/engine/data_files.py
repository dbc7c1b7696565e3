"""Data files as batches of a wanted schema, whatever schema they were written with (STORAGE, "Schema")."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from snapshot_assets.catalog.verify import hash_object
from snapshot_assets.errors import ChecksumMismatchError, DocumentError, LimitExceededError
from snapshot_assets.format.files import DataFile
from snapshot_assets.storage.base import ObjectStore

BATCH_ROWS = 65_536
MAX_ROW_GROUP_BYTES = 1 << 30
"""Most bytes that a row group of several rows may unpack to; written are 32 MiB at most."""


def check_hash(store: ObjectStore, file: DataFile) -> None:
    """Read a data file and make sure that its bytes are those that were written.

    Raises:
        ChecksumMismatchError: They are not; names the file, and what was found and expected.
        ObjectNotFoundError: It is missing.
    """
    found, _ = hash_object(store, file.path)
    if found != file.sha256:
        raise ChecksumMismatchError(
            f"{file.path} has SHA-256 {found}; expected {file.sha256}. Verify the location; nothing of the file was"
            " used.",
            object=file.path,
            found=found,
            expected=file.sha256,
        )


def read_batches(
    store: ObjectStore, file: DataFile, schema: pa.Schema, row_groups: Sequence[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield a data file's rows in the given schema: missing columns are NULL, dropped ones ignored, others cast safely.

    Args:
        store: The location.
        file: The file.
        schema: What is wanted of it.
        row_groups: Numbers of the row groups wanted; None for all.

    Raises:
        DocumentError: The file is not what the log says of it, or a column cannot be cast; names table, column and
            both types.
        LimitExceededError: A row group unpacks to far more than any that is written.
    """
    with store.open_reader(file.path) as source, _parquet(source, file) as parquet:
        _check_size(parquet.metadata, file)
        found = parquet.schema_arrow
        wanted = [name for name in schema.names if name in found.names]
        for batch in parquet.iter_batches(BATCH_ROWS, row_groups, columns=wanted):
            yield _conformed(batch, schema, file)


@contextmanager
def _parquet(source: object, file: DataFile) -> Iterator[pq.ParquetFile]:
    try:
        with pq.ParquetFile(source) as parquet:
            yield parquet
    except (pa.ArrowInvalid, OSError) as error:
        raise DocumentError(f"{file.path} cannot be read as Parquet: {error}.", object=file.path) from error


def _check_size(metadata: pq.FileMetaData, file: DataFile) -> None:
    if metadata.num_rows != file.rows:
        raise DocumentError(f"{file.path} holds {metadata.num_rows} rows; the log says {file.rows}.", object=file.path)
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if group.num_rows > 1 and group.total_byte_size > MAX_ROW_GROUP_BYTES:
            raise LimitExceededError(
                f"Row group {number} of {file.path} unpacks to {group.total_byte_size} bytes; at most"
                f" {MAX_ROW_GROUP_BYTES} are read, and 32 MiB are written.",
                object=file.path,
            )


def _conformed(batch: pa.RecordBatch, schema: pa.Schema, file: DataFile) -> pa.RecordBatch:
    present = set(batch.schema.names)
    columns = [
        _cast(batch.column(field.name), field, file) if field.name in present else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    if not columns:  # a table without columns still has rows
        return batch.select([])
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(array: pa.Array, field: pa.Field, file: DataFile) -> pa.Array:
    if array.type == field.type:
        return array
    try:
        return array.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DocumentError(
            f"Column {file.schema}.{file.table}.{field.name} is {array.type} in {file.path}, and its values cannot be"
            f" read as {field.type} without loss: {error}.",
            object=file.path,
            column=field.name,
        ) from error
