"""Statistics of many files in columns: what each column of a table holds at least and at most, file by file.

They are read one column at a time, and only when a predicate asks for it (InfluxDB IOx, "Statistics").
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
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
"""Arrow's type of bounds by the kind of their physical values."""

ByKind = dict[str, pa.Table]
"""Bounds of one column by kind: `file` (row of its file), `null_count`, `minimum`, `maximum`; the last three may be
NULL, for not known. A file stands in one table at most, and only if the statistics of it name the column."""


def schema_of(kind: str) -> pa.Schema:
    """Return the columns of a kind's table."""
    bound = KINDS[kind]
    return pa.schema([("file", pa.int64()), ("null_count", pa.int64()), ("minimum", bound), ("maximum", bound)])


class Bounds:
    """Bounds of files by column.

    Args:
        columns: Names of the columns that have bounds in some file.
        read: Returns the bounds of one of them.
    """

    def __init__(self, columns: Iterable[str] = (), read: Callable[[str], ByKind] = lambda _: {}) -> None:
        self.columns = frozenset(columns)
        self._read = read

    def of(self, column: str) -> ByKind:
        """Return the bounds of a column, sorted by file.

        Raises:
            DamageError: The checkpoint that they are read from is damaged.
            ObjectNotFoundError: It was pruned since it was opened.
        """
        return self._read(column) if column in self.columns else {}

    def known(self, column: str) -> ByKind:
        """Return the bounds of a column; none where they cannot be read, since what is not known excludes no file."""
        try:
            return self.of(column)
        except (DamageError, ObjectNotFoundError) as error:
            _LOG.warning("Statistics of column %s cannot be read, so they exclude no file: %s", column, error)
            return {}

    def readable(self) -> Bounds:
        """Return the bounds of the columns whose bounds can be read, all of them read."""
        found: dict[str, ByKind] = {}
        for column in self.columns:
            with suppress(DamageError, ObjectNotFoundError):
                found[column] = self.of(column)
        return Bounds(found, found.__getitem__)

    def take(self, rows: np.ndarray, count: int) -> Bounds:
        """Return the bounds of some files, numbered as they stand in `rows`.

        Args:
            rows: Their numbers here.
            count: How many files there are here.
        """
        places = np.full(count, -1, dtype=np.int64)
        places[rows] = np.arange(len(rows))

        def read(column: str) -> ByKind:
            return {kind: moved for kind, table in self.of(column).items() if (moved := _moved(table, places)).num_rows}

        return Bounds(self.columns, read)

    def concat(self, other: Bounds, count: int) -> Bounds:
        """Return these bounds and then the others; `count` is how many files there are here."""

        def read(column: str) -> ByKind:
            first, second = self.of(column), other.of(column)
            shifted = {kind: table.set_column(0, "file", _shifted(table, count)) for kind, table in second.items()}
            kinds = [kind for kind in KINDS if kind in first or kind in shifted]
            return {kind: pa.concat_tables([each[kind] for each in (first, shifted) if kind in each]) for kind in kinds}

        return Bounds(self.columns | other.columns, read)


def _moved(table: pa.Table, places: np.ndarray) -> pa.Table:
    files = places[table["file"].to_numpy()]
    kept = np.flatnonzero(files >= 0)
    kept = kept[np.argsort(files[kept], kind="stable")]
    return table.take(pa.array(kept)).set_column(0, "file", pa.array(files[kept]))


def _shifted(table: pa.Table, count: int) -> pa.Array:
    return pa.array(table["file"].to_numpy() + count)


def bounds_of(files: Sequence[DataFile]) -> Bounds:
    """Return the bounds that files carry with them, numbered in their order."""

    @cache
    def tables() -> dict[str, ByKind]:
        rows: defaultdict[tuple[str, str], list[tuple[int, int | None, Any, Any]]] = defaultdict(list)
        for number, file in enumerate(files):
            for each in file.columns:
                key = each.column, _kind(each.minimum, each.maximum)
                rows[key].append((number, each.null_count, each.minimum, each.maximum))
        found: defaultdict[str, ByKind] = defaultdict(dict)
        for (column, kind), values in rows.items():
            schema = schema_of(kind)
            arrays = [pa.array(each, field.type) for each, field in zip(zip(*values, strict=True), schema, strict=True)]
            found[column][kind] = pa.Table.from_arrays(arrays, schema=schema)
        return found

    return Bounds({each.column for file in files for each in file.columns}, lambda column: tables()[column])


def _kind(minimum: Physical | None, maximum: Physical | None) -> str:
    """Return the kind of bounds; of two that are not known it does not matter which."""
    match minimum if minimum is not None else maximum:
        case bool():
            return "boolean"
        case float():
            return "floating"
        case bytes():
            return "binary"
    return "integer"
