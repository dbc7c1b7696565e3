"""Finds values of a snapshot that PostgreSQL cannot hold and its source could, for a dry run.

The log's statistics decide for dates and times that are not in lists; other columns are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from snapshot_assets.databases.definition import FailedStatement, ObjectKey, Statement
from snapshot_assets.databases.postgresql.value_limits import holds_text, limits, unfit
from snapshot_assets.engine.restore.files import FilePlan
from snapshot_assets.engine.restore.lengths import read_columns
from snapshot_assets.format.counts import counted
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.relations import Column, DatabaseSchema, Table
from snapshot_assets.storage.base import ObjectStore


@dataclass
class _Unfit:
    """A column that may have values which do not fit, and how many it has."""

    name: str
    kind: pa.DataType
    type: str
    count: int = 0
    first: str = ""

    def skips(self, file: DataFile) -> bool:
        """Return whether a file's statistics prove that all its values fit."""
        bounds = limits(self.kind, self.type)
        found = next((each for each in file.columns if each.column == self.name), None)
        if bounds is None or found is None or not isinstance(found.minimum, int) or not isinstance(found.maximum, int):
            return False
        return bounds[0] <= found.minimum and found.maximum <= bounds[1]

    def add(self, values: pa.Array, path: str) -> None:
        """Count the values of a batch that do not fit."""
        count = unfit(values, self.type)
        self.count += count
        self.first = self.first or (path if count else "")

    def __str__(self) -> str:
        nul = "with the character NUL, which PostgreSQL does not hold in text"
        early = f"before 4714-11-24 BC, or later than type {self.type} has"
        what = nul if holds_text(_of_list(self.kind)) else early
        return f"column {self.name} has {counted(self.count, 'value')} {what}; the first is in {self.first}"


def _of_list(kind: pa.DataType) -> pa.DataType:
    return _of_list(kind.value_type) if pa.types.is_list(kind) else kind


def unfit_values(
    store: ObjectStore, files: Iterable[FilePlan], tables: Iterable[Table], documents: Mapping[int, DatabaseSchema]
) -> Iterator[FailedStatement]:
    """Yield each table whose rows PostgreSQL would refuse.

    Args:
        store: The location.
        files: The files to load.
        tables: Tables as the target holds them.
        documents: Schemas by id.
    """
    by_name = {table.table_name: table for table in tables}
    columns = {name: list(_columns(table.columns)) for name, table in by_name.items()}
    read_columns(store, files, by_name, documents, columns)
    for name, some in columns.items():
        if found := [str(each) for each in some if each.count]:
            yield FailedStatement(Statement(ObjectKey("rows", of=name), "", name), "; ".join(found))


def _columns(columns: Iterable[Column]) -> Iterator[_Unfit]:
    for column in columns:
        kind = column.arrow_field().type
        of = _of_list(kind)
        if column.generated is None and (holds_text(of) or limits(of, column.type) is not None):
            yield _Unfit(column.name, kind, column.type)
