"""Reads Parquet data files. A file may be hostile; see `row_groups`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from snapshot_assets.engine.files.parquet.row_groups import RowGroup
from snapshot_assets.errors import DocumentError
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.arrow_types import arrow_type_text
from snapshot_assets.format.units import counted

ChooseGroups = Callable[[pq.FileMetaData, pa.Schema], Sequence[int]]
"""Returns the numbers of the row groups to read, from a file's footer and its columns."""


def read_parquet(
    source: BinaryIO, file: DataFile, names: Iterable[str], choose: ChooseGroups | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in those of the named columns that it has.

    Args:
        source: The file.
        file: Its description.
        names: The columns.
        choose: Chooses the row groups; None for all.

    Raises:
        DocumentError: The file contradicts its description.
        LimitExceededError: A row group unpacks to far more than the writer makes.
    """
    with pq.ParquetFile(source) as parquet:
        metadata, found = parquet.metadata, parquet.schema_arrow
    names = list(names)
    _check(metadata, found, names, file)
    wanted = [name for name in names if name in found.names]
    for number in range(metadata.num_row_groups) if choose is None else choose(metadata, found):
        yield from RowGroup(source, metadata, number, file).batches(wanted)


def _check(metadata: pq.FileMetaData, found: pa.Schema, names: Iterable[str], file: DataFile) -> None:
    """Compare a footer with the log; `names` are the columns to read."""
    rows = sum(metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))
    if (metadata.num_rows, rows) != (file.rows, file.rows):
        raise DocumentError(
            f"{file.path} has {counted(metadata.num_rows, 'row')}; the log records {file.rows:,}.", object=file.path
        )
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
