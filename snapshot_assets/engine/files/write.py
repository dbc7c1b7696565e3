"""Writes data files: Arrow batches of one table and window become verifiable objects of a format."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from snapshot_assets.engine.files.batches import checked
from snapshot_assets.engine.files.parquet.writer import write_empty_parquet, write_parquet
from snapshot_assets.engine.files.target import FileTarget
from snapshot_assets.engine.files.text.writer import write_empty_text, write_text
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.header import PARQUET, FileFormat
from snapshot_assets.format.relations import TableName
from snapshot_assets.storage.base import ObjectStore


def write_files(
    store: ObjectStore,
    target: FileTarget,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    *,
    max_file_size: int,
    file_format: FileFormat = PARQUET,
    keep_empty: bool = False,
) -> list[DataFile]:
    """Write batches as data files; see `write_parquet` and `write_text` for the sizes of files.

    An error aborts the open object; finished objects stay as orphans.

    Args:
        store: The location.
        target: Names and metadata of the files.
        schema: The schema of every batch.
        batches: The rows.
        max_file_size: Bytes at which a file is closed.
        file_format: The format.
        keep_empty: Whether one file is written if there are no rows.

    Returns:
        The files, in order; none if there are no rows, unless `keep_empty`.

    Raises:
        DatabaseError: A batch has another schema, or rows without columns, which no data file can store.
        StorageError: The store refused or failed.
    """
    rows = checked(batches, TableName(target.schema, target.table), schema)
    if file_format.is_text:
        files = write_text(store, target, rows, file_format, max_file_size=max_file_size)
    else:
        files = write_parquet(store, target, rows, max_file_size=max_file_size)
    if files or not keep_empty:
        return files
    if file_format.is_text:
        return [write_empty_text(store, target, schema, file_format)]
    return [write_empty_parquet(store, target, schema)]
