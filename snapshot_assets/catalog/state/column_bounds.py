"""Statistics of many files in columns: the minimum and maximum of each column of a table, file by file.

They are read one column at a time, and only if a predicate needs the column (InfluxDB IOx, "Statistics").
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
from snapshot_assets.format.files import DataFile, Physical

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
    """

    def __init__(
        self, columns: Callable[[], Iterable[str]] = tuple, read: Callable[[str], ByKind] = lambda _: {}
    ) -> None:
        self._columns = columns
        self._read = read

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

    def readable(self) -> Bounds:
        """Read all bounds, and return them without the columns that cannot be read."""
        bounds: dict[str, ByKind] = {}
        for column in self.columns:
            with suppress(DamageError, ObjectNotFoundError):
                bounds[column] = self.of(column)
        return Bounds(lambda: bounds, bounds.__getitem__)

    def take(self, rows: np.ndarray, count: int) -> Bounds:
        """Return the bounds of some files, numbered by their place in `rows`.

        Args:
            rows: The numbers of these files here.
            count: Number of files here.
        """
        places = np.full(count, -1, dtype=np.int64)
        places[rows] = np.arange(len(rows))

        def read(column: str) -> ByKind:
            moved = {kind: _moved(table, places) for kind, table in self.of(column).items()}
            return {kind: table for kind, table in moved.items() if table.num_rows}

        return Bounds(lambda: self.columns, read)

    def concat(self, other: Bounds, count: int) -> Bounds:
        """Return these bounds, then the others; `count` is the number of files here."""

        def read(column: str) -> ByKind:
            tables = {kind: [table] for kind, table in self.of(column).items()}
            for kind, table in other.of(column).items():
                shifted = table.set_column(0, "file", pa.array(table["file"].to_numpy() + count))
                tables.setdefault(kind, []).append(shifted)
            return {kind: pa.concat_tables(tables[kind]) for kind in KINDS if kind in tables}

        return Bounds(lambda: self.columns | other.columns, read)


def _moved(table: pa.Table, places: np.ndarray) -> pa.Table:
    files = places[table["file"].to_numpy()]
    kept = np.flatnonzero(files >= 0)
    kept = kept[np.argsort(files[kept], kind="stable")]
    return table.take(pa.array(kept)).set_column(0, "file", pa.array(files[kept]))


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
