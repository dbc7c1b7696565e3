"""Statistics of files, a table for each column and kind of value, and tables that are compressed in memory.

Statistics are read one column at a time, and only if a predicate needs the column (InfluxDB IOx, "Statistics").
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache, cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from snapshot_assets.errors import DamageError, ObjectNotFoundError
from snapshot_assets.format.actions import DataFile, Physical

_LOG = logging.getLogger(__name__)

KINDS: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "integer": pa.int64(),
    "floating": pa.float64(),
    "binary": pa.binary(),
}
"""The Arrow type of bounds, by the kind of their physical values."""

ByKind = dict[str, pa.Table]
"""Bounds of one column by kind, in the columns `file` (row of the file), `null_count`, `minimum` and `maximum`.

The last three are NULL if unknown. A file is in at most one table, and only if its statistics name the column.
"""


def schema_of(kind: str) -> pa.Schema:
    """Return the columns of a kind's table."""
    bound = KINDS[kind]
    return pa.schema([("file", pa.int64()), ("null_count", pa.int64()), ("minimum", bound), ("maximum", bound)])


class Bounds:
    """Bounds of files by column.

    Args:
        columns: Returns the names of the columns that have bounds in some file. It is called once they are asked for:
            to name them, the statistics of every file are decoded.
        read: Returns the bounds of such a column.
        parts: Bounds that these consist of, with the places of their files; see `placed`.
    """

    def __init__(
        self,
        columns: Callable[[], Iterable[str]] = tuple,
        read: Callable[[str], ByKind] = lambda _: {},
        parts: Sequence[tuple[Bounds, np.ndarray | slice]] = (),
    ) -> None:
        self._columns, self._read, self.parts = columns, read, parts

    @cached_property
    def columns(self) -> frozenset[str]:
        """The columns that have bounds in some file."""
        return frozenset(self._columns())

    def of(self, column: str) -> ByKind:
        """Return the bounds of a column, sorted by file.

        Raises:
            DamageError: The checkpoint that holds them is damaged.
            ObjectNotFoundError: The checkpoint was pruned since it was opened.
        """
        return self._read(column) if column in self.columns else {}

    def of_or_none(self, column: str) -> ByKind:
        """Return the bounds of a column, or none if they cannot be read: unknown bounds exclude no file."""
        try:
            return self.of(column)
        except (DamageError, ObjectNotFoundError) as error:
            _LOG.warning("Statistics of column %s cannot be read, so they exclude no file: %s", column, error)
            return {}

    def packed(self) -> Bounds:
        """Read all bounds, and return them compressed in memory."""
        packed = {column: {kind: _pack(table) for kind, table in self.of(column).items()} for column in self.columns}

        def read(column: str) -> ByKind:
            return {kind: _unpack(stream) for kind, stream in packed[column].items()}

        return Bounds(lambda: packed, read)

    def readable(self) -> Bounds:
        """Read all bounds, and return them without the columns that cannot be read."""
        bounds: dict[str, ByKind] = {}
        for column in self.columns:
            with suppress(DamageError, ObjectNotFoundError):
                bounds[column] = self.of(column)
        return Bounds(lambda: bounds, bounds.__getitem__)

    def take(self, rows: np.ndarray, count: int) -> Bounds:
        """Return the bounds of some of the `count` files here, numbered by their place in `rows`."""
        places = np.full(count + 1, -1, dtype=np.int64)
        places[rows] = np.arange(len(rows))
        return placed((self, places))


def placed(*given: tuple[Bounds, np.ndarray]) -> Bounds:
    """Return bounds of files with the new place of each file, -1 for none; the places of each bounds end with -1.

    Bounds that were placed before are replaced by their parts, so that parts are not nested, whatever was done to them.
    """
    parts = [
        (part, places[earlier]) for bounds, places in given for part, earlier in bounds.parts or [(bounds, slice(None))]
    ]

    def read(column: str) -> ByKind:
        found: defaultdict[str, list[tuple[pa.Table, np.ndarray]]] = defaultdict(list)
        for part, places in parts:
            for kind, table in part.of(column).items():
                found[kind].append((table, places[table["file"].to_numpy()]))
        return {kind: moved for kind in KINDS if kind in found and (moved := _moved(found[kind])).num_rows}

    return Bounds(lambda: {name for part, _ in parts for name in part.columns}, read, parts)


def _moved(found: Sequence[tuple[pa.Table, np.ndarray]]) -> pa.Table:
    """Return the rows of tables sorted by their new places, without those that have none."""
    table, places = pa.concat_tables([each for each, _ in found]), np.concatenate([each for _, each in found])
    kept = np.flatnonzero(places >= 0)
    kept = kept[np.argsort(places[kept], kind="stable")]
    return table.take(pa.array(kept)).set_column(0, "file", pa.array(places[kept]))


class PackedTable:
    """A table whose columns are compressed in memory, each by itself."""

    def __init__(self, table: pa.Table) -> None:
        self.schema = table.schema
        self._columns = {name: _pack(table.select([name])) for name in table.schema.names}

    def __getitem__(self, name: str) -> pa.ChunkedArray:
        """Return a column."""
        return _unpack(self._columns[name])[name]

    def unpacked(self) -> pa.Table:
        """Return the table, each column in memory of its own."""
        return pa.table([self[name] for name in self.schema.names], self.schema)


def _pack(table: pa.Table) -> pa.Buffer:
    sink, options = pa.BufferOutputStream(), pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    pa.default_memory_pool().release_unused()  # else it may keep the tables of all columns
    return sink.getvalue()


def _unpack(stream: pa.Buffer) -> pa.Table:
    options = pa.ipc.IpcReadOptions(use_threads=False)  # the pool keeps what it allocated in other threads
    return pa.ipc.open_stream(stream, options=options).read_all()


def bounds_of(files: Sequence[DataFile]) -> Bounds:
    """Return the bounds in the statistics of some files, numbered in the order of the files."""

    @cache
    def tables() -> dict[str, ByKind]:
        rows: defaultdict[tuple[str, str], list[tuple[int, int | None, Any, Any]]] = defaultdict(list)
        for number, file in enumerate(files):
            for each in file.columns:
                key = each.column, _kind(each.minimum, each.maximum)
                rows[key].append((number, each.null_count, each.minimum, each.maximum))
        bounds: defaultdict[str, ByKind] = defaultdict(dict)
        for (column, kind), values in rows.items():
            schema = schema_of(kind)
            arrays = [pa.array(each, field.type) for each, field in zip(zip(*values, strict=True), schema, strict=True)]
            bounds[column][kind] = pa.Table.from_arrays(arrays, schema=schema)
        return bounds

    return Bounds(tables, lambda column: tables()[column])


def _kind(minimum: Physical | None, maximum: Physical | None) -> str:
    """Return the kind of bounds; any kind fits if both are unknown."""
    match minimum if minimum is not None else maximum:
        case bool():
            return "boolean"
        case float():
            return "floating"
        case bytes():
            return "binary"
    return "integer"
