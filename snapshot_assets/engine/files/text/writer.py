"""Writes text data files. A line is never cut, and a file is closed before its limit is passed (Materialize)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from isal import igzip

from snapshot_assets.engine.files.batches import pieces
from snapshot_assets.engine.files.parquet.statistics import BOUND_BYTES, file_columns, row_groups
from snapshot_assets.engine.files.target import FileTarget, HashingSink
from snapshot_assets.engine.files.text import csv_lines, json_lines
from snapshot_assets.engine.files.text.values import offsets_of, values_of
from snapshot_assets.format.actions import ColumnStatistics, DataFile
from snapshot_assets.format.header import FileFormat
from snapshot_assets.storage.base import ObjectStore

_LONG = 2 * BOUND_BYTES
"""Characters or bytes of a value after which it is cut: enough for a bound, which is cut again."""

_MOST_VALUES = 256
"""Most bounds of blocks that a column keeps before they become one pair."""


class Bounds:
    """Collects the least and the greatest value of each column, and the number of its NULLs."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._values: dict[str, list[Any]] = {field.name: [] for field in schema}
        self._nulls = dict.fromkeys(schema.names, 0)

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows into account."""
        for name, array in zip(batch.schema.names, batch.columns, strict=True):
            self._nulls[name] += array.null_count
            try:
                found = pc.min_max(_cut(array))
            except pa.ArrowNotImplementedError:  # types without an order
                continue
            values = self._values[name]
            values += [found["min"], found["max"]]
            if len(values) >= _MOST_VALUES:
                found = pc.min_max(pa.array(values, array.type))
                values[:] = [found["min"], found["max"]]

    def columns(self) -> tuple[ColumnStatistics, ...]:
        """Return the bounds as Parquet has them: a Parquet file of the least and greatest values gives them."""
        length = max((len(values) for values in self._values.values()), default=0)
        columns = []
        for field in self._schema:
            values = self._values[field.name]
            columns.append(pa.array(values, field.type) if len(values) == length else pa.nulls(length, field.type))
        rows = pa.table(columns, schema=self._schema.with_metadata(None))
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink)
        metadata = pq.read_metadata(pa.BufferReader(sink.getvalue()))
        found = file_columns(row_groups(metadata, self._schema), self._schema)
        return tuple(replace(each, null_count=self._nulls[each.column]) for each in found)


def _cut(array: pa.Array) -> pa.Array:
    """Return an array with the beginnings of its values, if they are long: their order is the same."""
    if array.nbytes <= _LONG * len(array):
        return array
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        return pc.utf8_slice_codeunits(array, 0, _LONG)
    if pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type):
        return pc.binary_slice(array, 0, _LONG)
    return array


PIECE_BYTES = 4 << 20
"""Most bytes of rows, in Arrow's memory, that become text at once; a single larger row is a piece."""
BLOCK_BYTES = 1 << 20
"""Most bytes of lines that are compressed as one frame; a single larger line is a block."""
_BLOCKS_PER_FILE = 16
_LEVEL = 1  # of gzip as of zstd: the fastest that still packs well


@dataclass(frozen=True)
class _Block:
    """Rows and their lines."""

    rows: pa.RecordBatch
    lines: pa.Array

    @property
    def data(self) -> memoryview:
        """The lines, one behind the other."""
        return values_of(self.lines)

    def split(self, size: int) -> tuple[_Block, _Block]:
        """Return the first rows, whose lines have at most `size` bytes, and the other rows."""
        offsets = offsets_of(self.lines)
        count = int(np.searchsorted(offsets, offsets[0] + max(size, 0), "right")) - 1
        return self.halves(count)

    def halves(self, count: int) -> tuple[_Block, _Block]:
        """Return the first rows, and the others."""
        first = _Block(self.rows.slice(0, count), self.lines.slice(0, count))
        return first, _Block(self.rows.slice(count), self.lines.slice(count))

    def blocks(self, size: int) -> Iterator[_Block]:
        """Split into blocks of at most some bytes, or of one row."""
        rest = self
        while rest.rows.num_rows:
            block, others = rest.split(size)
            if not block.rows.num_rows:
                block, others = rest.halves(1)
            yield block
            rest = others


def write_text(
    store: ObjectStore,
    target: FileTarget,
    batches: Iterable[pa.RecordBatch],
    written: FileFormat,
    *,
    max_file_size: int,
) -> list[DataFile]:
    """Write batches, each with some rows, as text files; see `write.write_files`.

    The next file is started before `max_file_size` would be passed. A single larger row is a file of its own. In
    compressed files each block of lines is a frame of its own, and the frames' sizes count.
    """
    encode = json_lines.encode_lines if written.name == "json" else partial(csv_lines.encode_lines, written=written)
    size = max(min(BLOCK_BYTES, max_file_size // _BLOCKS_PER_FILE), 1)
    rows = (piece for batch in batches for piece in pieces(batch, PIECE_BYTES))
    blocks = (block for piece in rows for block in _Block(piece, encode(piece)).blocks(size))
    files: list[DataFile] = []
    block = next(blocks, None)
    while block is not None:
        path = target.path(len(files), written.extension)
        file, block = _write_file(store, target, path, written, block, blocks, max_file_size)
        files.append(file)
    return files


def write_empty_text(store: ObjectStore, target: FileTarget, schema: pa.Schema, written: FileFormat) -> DataFile:
    """Write a file without rows; a CSV file with a header has that."""
    path = target.path(0, written.extension)
    with store.open_writer(path) as out, HashingSink(out) as sink:
        sink.write(_packed(csv_lines.header_line(schema.names, written), written))
    return target.data_file(path, 0, sink, Bounds(schema).columns())


def _write_file(
    store: ObjectStore,
    target: FileTarget,
    path: str,
    written: FileFormat,
    first: _Block,
    others: Iterator[_Block],
    max_file_size: int,
) -> tuple[DataFile, _Block | None]:
    """Write blocks while they fit; returns the file, and the block that begins the next one."""
    bounds, rows = Bounds(first.rows.schema), 0
    block: _Block | None = first
    with store.open_writer(path) as out, HashingSink(out) as sink:
        if header := csv_lines.header_line(first.rows.schema.names, written):
            sink.write(_packed(header, written))
        while block is not None:
            fitting, packed, left = _fitting(block, written, max_file_size - sink.size, alone=not rows)
            if fitting.rows.num_rows:
                sink.write(packed)
                bounds.add(fitting.rows)
                rows += fitting.rows.num_rows
            if left is not None:
                block = left
                break
            block = next(others, None)
    return target.data_file(path, rows, sink, bounds.columns()), block


def _fitting(
    block: _Block, written: FileFormat, room: int, *, alone: bool
) -> tuple[_Block, bytes | memoryview, _Block | None]:
    """Return the first rows that fit into the bytes that are left, their own bytes, and the rest, if there is one.

    A file that is `alone`, because it has no row yet, gets one, whatever its size.
    """
    if written.compression == "none":
        fitting, left = block.split(room)
        if alone and not fitting.rows.num_rows:
            fitting, left = block.halves(1)
        return fitting, fitting.data, left if left.rows.num_rows else None
    packed = _packed(block.data, written)
    if len(packed) <= room or (alone and block.rows.num_rows == 1):
        return block, packed, None
    if not alone:
        return block.halves(0)[0], b"", block
    half, left = block.halves(block.rows.num_rows // 2)
    fitting, packed, more = _fitting(half, written, room, alone=True)
    return fitting, packed, left if more is None else block.halves(fitting.rows.num_rows)[1]


def _packed(data: bytes | memoryview, written: FileFormat) -> bytes | memoryview:
    if written.compression == "none":
        return data
    if written.compression == "gzip":
        return igzip.compress(data, _LEVEL, mtime=0)
    packed: bytes = pa.Codec(written.compression, compression_level=_LEVEL).compress(data, asbytes=True)
    return packed
