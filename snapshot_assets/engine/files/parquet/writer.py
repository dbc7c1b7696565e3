"""Writes Parquet data files.

One pass collects rows into row groups, encodes, hashes and stores them. Memory contains the rows of at most three row
groups, whatever the chunk's size.

A sample of the rows chooses the encodings. Three compete for every column:

- a dictionary, for strings and codes, and for measures rounded to few digits, which repeat often;
- the encoding for the type: DELTA_BINARY_PACKED for timestamps, integers and short decimals, BYTE_STREAM_SPLIT for
  floats, DELTA_LENGTH_BYTE_ARRAY for text that never repeats;
- PLAIN, which costs more compression time, so it has to win by a tenth.

No fixed rule by type is best: on ten million sensor readings, this choice is 20 % smaller than dictionaries everywhere,
half the size of the encodings for the types, and takes the least processor time. BYTE_STREAM_SPLIT is for floats only,
because DuckDB reads it for no other type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from snapshot_assets.engine.files.batches import pieces
from snapshot_assets.engine.files.parquet.statistics import file_columns, row_groups
from snapshot_assets.engine.files.target import FileTarget, HashingSink
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.units import time_text
from snapshot_assets.storage.base import ObjectStore

SAMPLE_ROWS = 65_536
"""Enough rows to evaluate a dictionary; the three trials take about 25 ms for a table of eight columns."""
SAMPLE_BYTES = 4 << 20
PLAIN_HANDICAP = 1.1

_BY_PHYSICAL_TYPE = {
    "FLOAT": "BYTE_STREAM_SPLIT",
    "DOUBLE": "BYTE_STREAM_SPLIT",
    "INT32": "DELTA_BINARY_PACKED",
    "INT64": "DELTA_BINARY_PACKED",
    "BYTE_ARRAY": "DELTA_LENGTH_BYTE_ARRAY",
}


@dataclass(frozen=True)
class Encodings:
    """The encoding of every leaf column, by its path in the Parquet schema; a column in neither is PLAIN.

    Attributes:
        dictionary: Columns with a dictionary.
        others: Encoding by column without one.
    """

    dictionary: tuple[str, ...] = ()
    others: dict[str, str] = field(default_factory=dict)

    def options(self) -> dict[str, Any]:
        """Return the arguments of `pyarrow.parquet.ParquetWriter` for these encodings."""
        return {
            "use_dictionary": list(self.dictionary) or False,
            "column_encoding": dict(self.others) or None,
            # Zstandard level 1: level 3 takes 30 % longer and saves 1 %.
            "compression": "zstd",
            "compression_level": 1,
            # Decimals of up to 18 digits as INT32 or INT64: smaller, and read in a third of the time.
            "store_decimal_as_integer": True,
        }


def choose_encodings(rows: pa.Table) -> Encodings:
    """Return the encodings that make a sample, the first rows, smallest.

    Args:
        rows: Rows of the table to be written, at least one.
    """
    count = min(rows.num_rows, SAMPLE_ROWS)
    while count > 1 and rows.slice(0, count).nbytes > SAMPLE_BYTES:
        count //= 2
    sample = rows.slice(0, count)
    with_dictionary = _trial(sample, True, None)
    # A dot in a name can make the paths of two columns equal; options cannot distinguish them, so both stay PLAIN.
    paths = [column.path_in_schema for column in with_dictionary]
    own = {
        column.path_in_schema: _BY_PHYSICAL_TYPE[column.physical_type]
        for column in with_dictionary
        if column.physical_type in _BY_PHYSICAL_TYPE and paths.count(column.path_in_schema) == 1
    }
    with_own, plain = _trial(sample, False, own or None), _trial(sample, False, None)
    dictionary: list[str] = []
    others: dict[str, str] = {}
    for path, *columns in zip(paths, with_dictionary, with_own, plain, strict=True):
        if paths.count(path) > 1:
            continue
        size, own_size, plain_size = (column.total_compressed_size for column in columns)
        plain_size *= PLAIN_HANDICAP
        if size <= min(own_size, plain_size):
            dictionary.append(path)
        elif path in own and own_size <= plain_size:
            others[path] = own[path]
    return Encodings(tuple(dictionary), others)


def _trial(sample: pa.Table, dictionary: bool, encoding: dict[str, str] | None) -> list[pq.ColumnChunkMetaData]:
    """Write a sample, and return what its footer says of its columns."""
    options = {**Encodings().options(), "use_dictionary": dictionary, "column_encoding": encoding}
    with pq.ParquetWriter(pa.BufferOutputStream(), sample.schema, write_statistics=False, **options) as writer:
        writer.write_table(sample)
    group = writer.writer.metadata.row_group(0)
    return [group.column(index) for index in range(group.num_columns)]


ROW_GROUP_BYTES = 32 << 20
"""Most bytes of rows in one row group, in Arrow's memory; a single larger row is a row group."""
ROW_GROUP_ROWS = 1 << 20
ROW_GROUPS_PER_FILE = 4
"""A row group takes at most this share of `max_file_size`, so that a file exceeds it by little."""
SMALLEST_ROW_GROUP = 64 << 10


def write_parquet(
    store: ObjectStore,
    target: FileTarget,
    batches: Iterable[pa.RecordBatch],
    *,
    max_file_size: int,
) -> list[DataFile]:
    """Write batches, each with some rows, as Parquet files; see `write.write_files`.

    A file is closed once it has `max_file_size` bytes. It may exceed that by its last row group, whose rows take at
    most a quarter of `max_file_size` (and 32 MiB) in memory, unless a single row is larger.
    """
    limit = min(max(max_file_size // ROW_GROUPS_PER_FILE, SMALLEST_ROW_GROUP), ROW_GROUP_BYTES)
    groups = _row_groups(iter(batches), limit)
    files: list[DataFile] = []
    encodings: Encodings | None = None
    for first in groups:
        encodings = encodings or choose_encodings(first.rows)
        path = target.path(len(files), ".parquet")
        files.append(_write_file(store, target, path, encodings, chain([first], groups), max_file_size))
    return files


def write_empty_parquet(store: ObjectStore, target: FileTarget, schema: pa.Schema) -> DataFile:
    """Write a file without rows: its schema and its metadata."""
    path, now = target.path(0, ".parquet"), datetime.now(UTC)
    with store.open_writer(path) as out, HashingSink(out) as sink:
        writer = pq.ParquetWriter(sink, schema)
        writer.add_key_value_metadata(_footer(target, now, now))
        writer.close()
    return target.data_file(path, 0, sink, ())


@dataclass(frozen=True)
class _RowGroup:
    """Rows of one row group, and when the first and last of their batches arrived."""

    rows: pa.Table
    first: datetime
    last: datetime


def _row_groups(batches: Iterator[pa.RecordBatch], limit: int) -> Iterator[_RowGroup]:
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    first = last = datetime.now(UTC)
    for batch in batches:
        arrived = datetime.now(UTC)
        for piece in pieces(batch, limit, ROW_GROUP_ROWS):
            if pending and (size + piece.nbytes > limit or rows + piece.num_rows > ROW_GROUP_ROWS):
                yield _RowGroup(pa.Table.from_batches(pending), first, last)
                pending, rows, size = [], 0, 0
            if not pending:
                first = arrived
            pending.append(piece)
            rows, size, last = rows + piece.num_rows, size + piece.nbytes, arrived
    if pending:
        yield _RowGroup(pa.Table.from_batches(pending), first, last)


def _write_file(
    store: ObjectStore,
    target: FileTarget,
    path: str,
    encodings: Encodings,
    groups: Iterator[_RowGroup],
    max_file_size: int,
) -> DataFile:
    with store.open_writer(path) as out, HashingSink(out) as sink:
        group: _RowGroup | None = next(groups)
        assert group is not None
        schema, first = group.rows.schema, group.first
        # Pages of 20,000 rows, pyarrow's default, would cost 6 % of the time and 2 % of the size.
        writer = pq.ParquetWriter(sink, schema, max_rows_per_page=ROW_GROUP_ROWS, **encodings.options())
        while group is not None:
            writer.write_table(group.rows, row_group_size=group.rows.num_rows)
            last = group.last
            group = next(groups, None) if sink.size < max_file_size else None
        writer.add_key_value_metadata(_footer(target, first, last))
        writer.close()
    metadata = writer.writer.metadata
    found = row_groups(metadata, schema)
    return target.data_file(path, metadata.num_rows, sink, file_columns(found, schema), found)


def _footer(target: FileTarget, first_ingest: datetime, last_ingest: datetime) -> dict[str, str]:
    facts = {
        **target.metadata,
        "schema": target.schema,
        "table": target.table,
        "chunk": str(target.chunk),
        "attempt": target.attempt,
        "first_ingest_time": time_text(first_ingest),
        "last_ingest_time": time_text(last_ingest),
    }
    return {f"snapshot.{name}": value for name, value in facts.items()}
