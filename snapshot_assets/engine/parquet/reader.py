"""Reads data files as batches of a given schema, whatever schema they were written with (FORMAT.md, section 5).

A file may be hostile; see `row_groups`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from snapshot_assets.catalog.verify.objects import hash_object
from snapshot_assets.engine.parquet.row_groups import MAX_ROW_GROUP_BYTES, RowGroup
from snapshot_assets.engine.time_range import in_zone
from snapshot_assets.errors import ChecksumMismatchError, DocumentError, LimitExceededError
from snapshot_assets.format.arrow_types import arrow_type_text
from snapshot_assets.format.evaluation import true_rows
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.predicates import Predicate, columns_of
from snapshot_assets.storage.base import ObjectStore

ChooseGroups = Callable[[pq.FileMetaData, pa.Schema], Sequence[int]]
"""Returns the numbers of the row groups to read, from a file's footer and its columns."""


def check_hash(store: ObjectStore, file: DataFile) -> None:
    """Read a data file and compare its SHA-256.

    Raises:
        ChecksumMismatchError: The SHA-256 differs; names the file and both values.
        ObjectNotFoundError: The file is missing.
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
    store: ObjectStore,
    file: DataFile,
    schema: pa.Schema,
    row_groups: Sequence[int] | ChooseGroups | None = None,
    *,
    verify: bool = False,
    zone: str = "UTC",
    deleted: Sequence[Predicate] = (),
) -> Iterator[pa.RecordBatch]:
    """Yield a data file's rows in a schema: missing columns are NULL, dropped ones ignored, others cast safely.

    Args:
        store: The location.
        file: The file.
        schema: The columns to read.
        row_groups: Numbers of the row groups to read, or a function that chooses them; None for all.
        verify: Whether the whole file is hashed before its first row.
        zone: IANA zone of times without one, for a column that gained or lost its zone.
        deleted: Predicates of tombstones; rows for which one is true are left out.

    Raises:
        ChecksumMismatchError: The file has another SHA-256; no row was yielded.
        DocumentError: The file contradicts the log, or a column cannot be cast; names table, column and both types.
        LimitExceededError: A row group unpacks to far more than the writer makes.
    """
    if verify:
        check_hash(store, file)
    with store.open_reader(file.path) as source, _as_parquet(file):
        with pq.ParquetFile(source) as parquet:
            metadata, found = parquet.metadata, parquet.schema_arrow
        filters = [(predicate, columns_of(predicate)) for predicate in deleted]
        names = list(dict.fromkeys((*schema.names, *(name for _, columns in filters for name in columns))))
        _check(metadata, found, names, file)
        wanted = [name for name in names if name in found.names]
        chosen = row_groups(metadata, found) if callable(row_groups) else row_groups
        for number in range(metadata.num_row_groups) if chosen is None else chosen:
            group = RowGroup(source, metadata, number, file)
            for batch in group.batches(wanted):
                yield _conformed(_visible(batch, filters, file, zone), schema, file, zone)


@contextmanager
def _as_parquet(file: DataFile) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise DocumentError(f"{file.path} cannot be read as Parquet: {error}.", object=file.path) from error


def _check(metadata: pq.FileMetaData, found: pa.Schema, names: Iterable[str], file: DataFile) -> None:
    """Compare a footer with the log; `names` are the columns to read."""
    rows = sum(metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))
    if (metadata.num_rows, rows) != (file.rows, file.rows):
        raise DocumentError(f"{file.path} has {metadata.num_rows} rows; the log records {file.rows}.", object=file.path)
    for name in names:
        if found.names.count(name) > 1:
            raise DocumentError(f"{file.path} has several columns {name!r}.", object=file.path, column=name)
        if name in found.names:
            try:
                arrow_type_text(found.field(name).type)
            except DocumentError as error:
                raise DocumentError(
                    f"Column {name!r} of {file.path}: {error}", object=file.path, column=name
                ) from error


def _visible(
    batch: pa.RecordBatch, filters: Sequence[tuple[Predicate, dict[str, pa.DataType | None]]], file: DataFile, zone: str
) -> pa.RecordBatch:
    """Return the rows that no tombstone deletes; columns are compared in the types of the predicates."""
    for predicate, kinds in filters:
        values = {name: _column(batch, name, kind, file, zone) for name, kind in kinds.items()}
        kept = pc.invert(true_rows(predicate, values, batch.num_rows))
        # Without columns all rows are equal, and Arrow's filter would lose them.
        batch = batch.filter(kept) if batch.num_columns else batch.slice(0, kept.true_count)
    return batch


def _conformed(batch: pa.RecordBatch, schema: pa.Schema, file: DataFile, zone: str) -> pa.RecordBatch:
    """Return rows of a file in the given schema; see `read_batches`."""
    columns = [_column(batch, field.name, field.type, file, zone) for field in schema]
    if not columns:  # a table without columns still has rows
        return batch.select([])
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(batch: pa.RecordBatch, name: str, kind: pa.DataType | None, file: DataFile, zone: str) -> pa.Array:
    """Return a column in a type, or in its own for None; NULLs if the file lacks it."""
    place = batch.schema.get_field_index(name)
    if place < 0:
        return _nulls(batch.num_rows, pa.field(name, kind or pa.null()), file)
    array = batch.column(place)
    return array if kind is None else _cast(array, pa.field(name, kind), file, zone)


def _nulls(rows: int, field: pa.Field, file: DataFile) -> pa.Array:
    if pa.types.is_fixed_size_binary(field.type) and rows * field.type.byte_width > MAX_ROW_GROUP_BYTES:
        raise LimitExceededError(
            f"{rows} values of column {field.name!r}, a {field.type}, which {file.path} lacks, take more than the"
            f" {MAX_ROW_GROUP_BYTES} bytes that are allocated at once.",
            object=file.path,
        )
    return pa.nulls(rows, field.type)


def _cast(array: pa.Array, field: pa.Field, file: DataFile, zone: str) -> pa.Array:
    if array.type == field.type:
        return array
    try:
        return _zoned(array, field.type, zone).cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DocumentError(
            f"Column {file.schema}.{file.table}.{field.name} is {array.type} in {file.path}, and its values cannot be"
            f" read as {field.type} without loss: {error}.",
            object=file.path,
            column=field.name,
        ) from error


def _zoned(array: pa.Array, wanted: pa.DataType, zone: str) -> pa.Array:
    """Return times with or without a zone, as wanted; Arrow's own cast would treat every time as UTC."""
    if not (pa.types.is_timestamp(array.type) and pa.types.is_timestamp(wanted)):
        return array
    if array.type.tz is None and wanted.tz is not None:
        return in_zone(array, zone)
    if array.type.tz is not None and wanted.tz is None:
        return pc.local_timestamp(array.cast(pa.timestamp(array.type.unit, zone)))
    return array
