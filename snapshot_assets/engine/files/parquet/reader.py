"""Reads Parquet data files, which may be hostile, under limits.

A row group is unpacked only after its page headers show the unpacked size. Values in a dictionary, which may occur a
million times each, are measured before they are expanded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from snapshot_assets.engine.files.parquet.pages import read_pages
from snapshot_assets.errors import DocumentError, LimitExceededError
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.arrow_types import arrow_type_text, with_leaves
from snapshot_assets.format.units import counted

BATCH_ROWS = 65_536
MAX_ROW_GROUP_BYTES = 256 << 20
"""Most unpacked bytes of a row group of several rows. The writer makes 32 MiB in Arrow's memory; Parquet takes four
times that for the smallest integers."""
MAX_ROW_BYTES = 2 << 30
"""Most bytes of a row group of one row: the longest text in Arrow."""

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "BYTE_ARRAY": 4, "INT64": 8, "DOUBLE": 8, "INT96": 12}


class RowGroup:
    """One row group, as the file that Arrow reads: Arrow gets exactly the bytes that were checked."""

    def __init__(self, source: BinaryIO, metadata: pq.FileMetaData, number: int, file: DataFile) -> None:
        self._source = source
        self._file = file
        self._number = number
        self._footer = metadata
        self._metadata = metadata.row_group(number)
        self._name = f"Row group {number} of {file.path}"
        self._chunks: dict[int, bytes] = {}
        self.rows: int = self._metadata.num_rows
        self._limit = MAX_ROW_BYTES if self.rows <= 1 else MAX_ROW_GROUP_BYTES
        self.closed = False

    def batches(self, wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in the named columns.

        Raises:
            DocumentError: Pages or rows contradict the footer.
            LimitExceededError: The columns unpack to far more than the writer makes.
        """
        texts, rows = self._check(_leaves(self._footer, wanted)), 0
        with pq.ParquetFile(self, metadata=self._footer, read_dictionary=texts) as parquet:
            for batch in parquet.iter_batches(BATCH_ROWS, [self._number], columns=wanted):
                rows += batch.num_rows
                yield self._unpacked(batch)
        if rows != self.rows:
            raise DocumentError(
                f"{self._name} has {counted(rows, 'row')}; its footer records {self.rows:,}.", object=self._file.path
            )

    def _check(self, leaves: Sequence[int]) -> list[str]:
        """Read columns, check that they can be unpacked, and return those with a dictionary of texts."""
        chunks = {leaf: self._metadata.column(leaf) for leaf in leaves}
        unpacked = sum(each.total_uncompressed_size for each in chunks.values())
        self._limited(max(self._metadata.total_byte_size, unpacked))
        self._limited(sum(each.total_compressed_size for each in chunks.values()), "is packed into")
        unpacked, texts = 0, []
        for leaf, chunk in chunks.items():
            column = self._footer.schema.column(leaf)
            levels = column.max_repetition_level > 0, column.max_definition_level > 0
            name = f"Column {column.path!r} of {self._file.path}"
            pages = read_pages(self._read(chunk), chunk.num_values, chunk.compression, levels, name)
            unpacked += pages.unpacked
            self._limited(unpacked)
            # A batch has any number of values of a nested column, and one a row of other columns.
            values = pages.values if column.max_repetition_level else min(self.rows, BATCH_ROWS)
            self._limited(values * _WIDTHS.get(column.physical_type, column.length))
            if pages.dictionary and column.physical_type == "BYTE_ARRAY":
                texts.append(column.path)
        return texts

    def _read(self, chunk: pq.ColumnChunkMetaData) -> bytes:
        start: int = chunk.data_page_offset
        if chunk.dictionary_page_offset is not None and 0 < chunk.dictionary_page_offset < start:
            start = chunk.dictionary_page_offset
        self._source.seek(start)
        self._chunks[start] = self._source.read(chunk.total_compressed_size)
        return self._chunks[start]

    def _unpacked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with values in place of dictionaries, unless they would be larger than the limit."""
        size = sum(map(_text_bytes, batch.columns))
        self._limited(size)
        columns = [array.cast(with_leaves(array.type, _without_dictionary)) for array in batch.columns]
        return pa.RecordBatch.from_arrays(columns, names=batch.schema.names) if columns else batch

    def _limited(self, size: int, how: str = "unpacks to") -> None:
        if size > self._limit:
            raise LimitExceededError(
                f"{self._name} {how} {size} bytes; at most {self._limit} are read, and 32 MiB are written unless a row"
                " is larger. Nothing of it was unpacked.",
                object=self._file.path,
            )

    # The file interface for pyarrow

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move in the file."""
        return self._source.seek(offset, whence)

    def tell(self) -> int:
        """Return the place in the file."""
        return self._source.tell()

    def read(self, size: int = -1) -> bytes:
        """Read from the file, or from the bytes read before."""
        known = self._chunks.get(self._source.tell())
        return known if known is not None and len(known) == size else self._source.read(size)

    def close(self) -> None:
        """Release the bytes read before."""
        self._chunks.clear()
        self.closed = True


def _leaves(metadata: pq.FileMetaData, wanted: Iterable[str]) -> list[int]:
    """Return the numbers of the Parquet columns of the wanted columns: one each, several for a nested one."""
    names = set(wanted)
    found = []
    for number in range(metadata.num_columns):
        parts = metadata.schema.column(number).path.split(".")
        if any(".".join(parts[:length]) in names for length in range(1, len(parts) + 1)):
            found.append(number)
    return found


def _text_bytes(array: pa.Array) -> int:
    """Return the length of the values in dictionaries, if they were expanded."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return pc.sum(pc.binary_length(array.dictionary).cast(pa.int64()).take(array.indices)).as_py() or 0
    if pa.types.is_struct(kind):
        return sum(map(_text_bytes, array.flatten()))
    if pa.types.is_map(kind):
        return _text_bytes(array.keys) + _text_bytes(array.items)
    return _text_bytes(array.flatten()) if pa.types.is_list(kind) else 0


def _without_dictionary(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


ChooseGroups = Callable[[pq.FileMetaData, pa.Schema], Sequence[int]]
"""Returns the numbers of the row groups to read, from a file's footer and its columns."""


def read_parquet(
    source: BinaryIO, file: DataFile, names: Iterable[str], choose: ChooseGroups | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the row groups that `choose` returns, or of all, in the named columns that the file has.

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
