"""Reads data files as batches of a given schema, whatever schema they were written with (FORMAT.md, section 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

import pyarrow as pa

from snapshot_assets.catalog.schemas import VERIFY, naming_lost_files
from snapshot_assets.catalog.verify.objects import hash_object
from snapshot_assets.engine.files.batches import conformed, visible
from snapshot_assets.engine.files.parquet.reader import ChooseGroups, read_parquet
from snapshot_assets.engine.files.text import csv_lines, json_lines
from snapshot_assets.engine.reports import reporter
from snapshot_assets.errors import ChecksumMismatchError, DocumentError
from snapshot_assets.format.actions import DataFile, Header
from snapshot_assets.format.header import FileFormat, format_of
from snapshot_assets.format.predicates import Predicate, columns_of
from snapshot_assets.format.relations import DatabaseSchema, TableName
from snapshot_assets.format.units import noun, number_text
from snapshot_assets.storage.base import ObjectStore


def read_text(
    source: BinaryIO, file: DataFile, names: Sequence[str], written: FileFormat, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in those of the named columns that it has; `schema` has all its columns.

    Raises:
        DocumentError: The file has another number of rows than its description.
        ArrowInvalid: The file is not of the format.
    """
    wanted = [name for name in names if name in schema.names]
    rows = 0
    if file.rows:  # without a row there is nothing to read but a header
        read, opened = wanted or schema.names[:1], partial(_unpacked, source, written)
        if written.name == "json":
            batches = json_lines.decode_lines(opened(), schema, read)
        else:
            batches = csv_lines.decode_lines(opened, schema, read, written)
        for batch in batches:
            rows += batch.num_rows
            if rows > file.rows:
                break
            yield batch if wanted else batch.select([])
    if rows != file.rows:
        more = " or more" if rows > file.rows else ""
        found = f"{number_text(rows)}{more} {noun(rows, 'row')}"
        raise DocumentError(f"{file.path} has {found}; the log records {number_text(file.rows)}.", object=file.path)


class _KeptOpen:
    """A file that Arrow reads and closes, without closing the object: it may be read again from its start."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        """Read from the file."""
        return self._source.read(size)

    def close(self) -> None:
        """Do nothing: the store closes the object."""


def _unpacked(source: BinaryIO, written: FileFormat) -> BinaryIO:
    """Return the unpacked bytes of a file, from its start."""
    source.seek(0)
    file = pa.PythonFile(_KeptOpen(source), "r")
    unpacked: BinaryIO = file
    if written.compression != "none":
        unpacked = pa.CompressedInputStream(file, written.compression)
    return unpacked


TextOf = Callable[[DataFile], "TextSchema | None"]
"""Returns what a data file does not say about itself; None for Parquet."""


@dataclass(frozen=True)
class TextSchema:
    """What a text file does not say about itself: how its values are written, and its columns."""

    format: FileFormat
    columns: pa.Schema


def text_schemas(header: Header | None, documents: Mapping[int, DatabaseSchema]) -> TextOf:
    """Return the function that finds the schemas of a snapshot's text files; for Parquet there may be no documents."""
    found: dict[tuple[int, str, str], TextSchema] = {}
    written = format_of(header)

    def of(file: DataFile) -> TextSchema | None:
        if not written.is_text:
            return None
        key = (file.schema_id, file.schema, file.table)
        if key not in found:
            table = documents[file.schema_id].table(TableName(file.schema, file.table))
            found[key] = TextSchema(written, table.arrow_schema())
        return found[key]

    return of


def check_hash(store: ObjectStore, file: DataFile) -> None:
    """Read a data file and compare its SHA-256.

    Raises:
        ChecksumMismatchError: The SHA-256 differs; names the file and both values.
        InterruptedTaskError: The run of the task was interrupted.
        ObjectNotFoundError: The file is missing.
    """
    reporter().check()
    with naming_lost_files():
        found, _ = hash_object(store, file.path)
    check_sha256(file, found)


def check_sha256(file: DataFile, found: str) -> None:
    """Compare a data file's SHA-256 with the log's; see `check_hash` for the error."""
    if found != file.sha256:
        raise ChecksumMismatchError(
            f"{file.path} has SHA-256 {found}; expected {file.sha256}. Nothing of the file was used; {VERIFY}",
            object=file.path,
            found=found,
            expected=file.sha256,
        )


def read_batches(
    store: ObjectStore,
    file: DataFile,
    schema: pa.Schema,
    text: TextSchema | None = None,
    *,
    row_groups: ChooseGroups | None = None,
    verify: bool = False,
    zone: str = "UTC",
    deleted: Sequence[Predicate] = (),
) -> Iterator[pa.RecordBatch]:
    """Yield a data file's rows in a schema: missing columns are NULL, dropped ones ignored, others cast safely.

    Args:
        store: The location.
        file: The file.
        schema: The columns to read.
        text: What a text file does not say about itself; None for Parquet.
        row_groups: Chooses the row groups of a Parquet file; None for all.
        verify: Whether the whole file is hashed before its first row.
        zone: IANA zone of times without one, for a column that gained or lost its zone.
        deleted: Predicates of tombstones; rows for which one is true are left out.

    Raises:
        ChecksumMismatchError: The file has another SHA-256; no row was yielded.
        DocumentError: The file contradicts the log, or a column cannot be cast; names table, column and both types.
        LimitExceededError: Rows unpack to far more than the writer makes.
    """
    if verify:
        check_hash(store, file)
    filters = [(predicate, columns_of(predicate)) for predicate in deleted]
    names = list(dict.fromkeys((*schema.names, *(name for _, columns in filters for name in columns))))
    with store.open_reader(file.path) as source:
        try:
            if text is None:
                batches = read_parquet(source, file, names, row_groups)
            else:
                batches = read_text(source, file, names, text.format, text.columns)
            for batch in batches:
                yield conformed(visible(batch, filters, file, zone), schema, file, zone)
        except (pa.ArrowException, OSError) as error:
            kind = "Parquet" if text is None else text.format.name.upper()
            raise DocumentError(f"{file.path} cannot be read as {kind}: {error}.", object=file.path) from error
