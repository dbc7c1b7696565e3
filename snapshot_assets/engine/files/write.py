"""Writes data files: Arrow batches of one table and window become verifiable objects of a format.

The rows of a partitioned copy are sorted, and divided among folders so that one file is open at a time.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from snapshot_assets.engine.files.batches import checked
from snapshot_assets.engine.files.parquet.writer import write_empty_parquet, write_parquet
from snapshot_assets.engine.files.target import FileTarget
from snapshot_assets.engine.files.text.writer import write_empty_text, write_text
from snapshot_assets.errors import DatabaseError, PlanError, UnsupportedTypeError
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.header import PARQUET, FileFormat
from snapshot_assets.format.layout import MAX_FOLDER_BYTES, partition_folder
from snapshot_assets.format.relations import Table, TableName
from snapshot_assets.spans import span
from snapshot_assets.storage.base import ObjectStore

_SHOWN = 60
_UUID = pa.binary(16)
_ALLOWED = (
    pa.types.is_integer,
    pa.types.is_boolean,
    pa.types.is_date,
    pa.types.is_string,
    pa.types.is_large_string,
)


def check_partition_columns(table: Table, columns: Sequence[str]) -> None:
    """Check that a table has columns, and that their values can name folders.

    Raises:
        PlanError: It does not have one, or one is named twice; names those that it has.
        UnsupportedTypeError: Values of a column's type cannot name folders; names the cast that helps.
    """
    by_name = {column.name: column for column in table.columns}
    if twice := [name for name in columns if columns.count(name) > 1]:
        raise PlanError(f"partition_by names column {twice[0]!r} twice: the database ignores case. Name it once.")
    for name in columns:
        if name not in by_name:
            raise PlanError(
                f"partition_by names {name!r}, which is no column of the query. Its columns are: {', '.join(by_name)}."
            )
        kind = by_name[name].arrow_field().type
        if not any(is_allowed(kind) for is_allowed in _ALLOWED) and kind != _UUID:
            to = "date" if pa.types.is_timestamp(kind) else "text"
            raise UnsupportedTypeError(
                f"partition_by names {name!r} of type {by_name[name].type}; folders are named by integers, text,"
                f" booleans, dates and UUIDs. Add CAST({name} AS {to}) to the query under a name of its own, and"
                " partition by that.",
                column=name,
                type=by_name[name].type,
            )


def partitions(
    batches: Iterable[pa.RecordBatch], columns: Sequence[str]
) -> Iterator[tuple[str, Iterator[pa.RecordBatch]]]:
    """Yield the folder of each partition, with slashes behind its names, and the partition's rows.

    Rows sorted by the columns have each folder once, or twice where NULL and the empty text share it. The rows of a
    partition must be read before the next one is asked for.

    Args:
        batches: The rows.
        columns: The columns whose values name the folders, outermost first; empty for one partition without a folder.

    Raises:
        DatabaseError: A value cannot name a folder.
    """
    if not columns:
        yield "", iter(batches)
        return
    pieces = (piece for batch in batches for piece in _pieces(batch, columns))
    for folder, group in groupby(pieces, key=itemgetter(0)):
        yield folder, (rows for _, rows in group)


def _pieces(batch: pa.RecordBatch, columns: Sequence[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Cut a batch where a value changes."""
    if not batch.num_rows:
        return
    values = [batch.column(name) for name in columns]
    changes = np.zeros(batch.num_rows, dtype=bool)
    for array in values:
        codes = pc.dictionary_encode(array, null_encoding="encode").indices.to_numpy(zero_copy_only=False)
        changes[1:] |= codes[1:] != codes[:-1]
    starts = [0, *map(int, np.flatnonzero(changes)), batch.num_rows]
    for start, end in pairwise(starts):
        names = (_folder(name, array[start]) for name, array in zip(columns, values, strict=True))
        yield "".join(f"{name}/" for name in names), batch.slice(start, end - start)


def _folder(column: str, value: pa.Scalar) -> str:
    folder = partition_folder(column, _text(column, value))
    size = len(folder.encode())
    if size > MAX_FOLDER_BYTES:
        raise DatabaseError(
            f"The folder {folder[:_SHOWN]}… of partition column {column!r} has a name of {size} bytes; a folder's name"
            f" has at most {MAX_FOLDER_BYTES}. Partition by a shorter value: add one such as left({column}, 60) to the"
            " query.",
            column=column,
        )
    return folder


def _text(column: str, value: pa.Scalar) -> str | None:
    """Return a value as CSV files hold it; None for NULL."""
    if not value.is_valid:
        return None
    if pa.types.is_boolean(value.type):
        return "true" if value.as_py() else "false"
    if pa.types.is_fixed_size_binary(value.type):
        return str(uuid.UUID(bytes=value.as_py()))
    if not pa.types.is_date(value.type):
        return str(value.as_py())
    try:
        return str(value.as_py().isoformat())
    except (OverflowError, ValueError):
        raise DatabaseError(
            f"Partition column {column!r} has a date outside the years 1 to 9999, for which Hive has no folder. Exclude"
            " the row in the query, or cast the column to text.",
            column=column,
        ) from None


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
        keep_empty: Whether one file is written if there are no rows, instead of none.

    Returns:
        The files, in order.

    Raises:
        DatabaseError: A batch has another schema, or rows without columns, which no data file can store.
        StorageError: The store refused or failed.
    """
    rows = checked(batches, TableName(target.schema, target.table), schema)
    with span("encode"):
        if file_format.is_text:
            files = write_text(store, target, rows, file_format, max_file_size=max_file_size)
        else:
            files = write_parquet(store, target, rows, max_file_size=max_file_size)
    if files or not keep_empty:
        return files
    if file_format.is_text:
        return [write_empty_text(store, target, schema, file_format)]
    return [write_empty_parquet(store, target, schema)]
