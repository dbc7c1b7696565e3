"""Reads text data files. A file may be hostile: it is unpacked and parsed in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import BinaryIO

import pyarrow as pa

from snapshot_assets.engine.files.text import csv_lines, json_lines
from snapshot_assets.errors import DocumentError
from snapshot_assets.format.counts import noun, number_text
from snapshot_assets.format.file_formats import FileFormat
from snapshot_assets.format.files import DataFile


def read_text(
    source: BinaryIO, file: DataFile, names: Sequence[str], written: FileFormat, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in those of the named columns that it has.

    Args:
        source: The file.
        file: Its description.
        names: The columns.
        written: Its format.
        schema: All its columns.

    Raises:
        DocumentError: The file has another number of rows than its description.
        ArrowInvalid: The file is not of the format.
    """
    wanted = [name for name in names if name in schema.names]
    rows = 0
    if file.rows:  # without a row there is nothing to read but a header
        read = wanted or schema.names[:1]
        for batch in _decoder(written, schema, read)(partial(_unpacked, source, written)):
            rows += batch.num_rows
            if rows > file.rows:
                break
            yield batch if wanted else batch.select([])
    if rows != file.rows:
        more = " or more" if rows > file.rows else ""
        found = f"{number_text(rows)}{more} {noun(rows, 'row')}"
        raise DocumentError(f"{file.path} has {found}; the log records {number_text(file.rows)}.", object=file.path)


def _decoder(
    written: FileFormat, schema: pa.Schema, wanted: Sequence[str]
) -> Callable[[Callable[[], BinaryIO]], Iterator[pa.RecordBatch]]:
    if written.name == "json":
        return lambda opened: json_lines.decode_lines(opened(), schema, wanted)
    return lambda opened: csv_lines.decode_lines(opened, schema, wanted, written)


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
