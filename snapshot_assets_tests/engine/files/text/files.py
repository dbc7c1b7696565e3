"""Writes rows as text files, and reads them back."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

import pyarrow as pa

from snapshot_assets.engine.files.read import TextSchema, read_batches
from snapshot_assets.engine.files.target import FileTarget
from snapshot_assets.engine.files.write import write_files
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.header import FileFormat
from snapshot_assets.storage.base import ObjectStore

FORMATS = (
    FileFormat("csv"),
    FileFormat("csv", header=True, delimiter="\t", compression="gzip"),
    FileFormat("csv", delimiter=";", quote="'", escape="\\", null="NULL", compression="zstd"),
    FileFormat("json"),
    FileFormat("json", compression="gzip"),
    FileFormat("json", compression="zstd"),
)


def write(
    store: ObjectStore, rows: pa.Table, written: FileFormat, *, max_file_size: int = 1 << 28, keep_empty: bool = False
) -> list[DataFile]:
    attempt = secrets.token_hex(4)
    target = FileTarget(0, "main", "t", 1, attempt, 0, f"data/0/main.t-{attempt}")
    batches = rows.to_batches()
    return write_files(
        store,
        target,
        rows.schema,
        batches,
        max_file_size=max_file_size,
        file_format=written,
        keep_empty=keep_empty,
    )


def read(
    store: ObjectStore,
    files: Iterable[DataFile],
    schema: pa.Schema,
    written: FileFormat,
    columns: pa.Schema | None = None,
) -> pa.Table:
    text = TextSchema(written, schema)
    wanted = schema if columns is None else columns
    batches = [batch for file in files for batch in read_batches(store, file, wanted, text, verify=True)]
    return pa.Table.from_batches(batches, wanted)


def same(found: pa.Table, expected: pa.Table) -> bool:
    """Return whether rows are equal; a NaN equals a NaN."""
    if found.equals(expected):
        return True
    return found.schema.equals(expected.schema) and repr(found.to_pylist()) == repr(expected.to_pylist())
