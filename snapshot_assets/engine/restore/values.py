"""Finds values of a snapshot that columns of the target cannot hold, before anything is loaded.

Read are only columns of an existing table that are shorter than the snapshot's, and, for a dry run, those whose values
the source could hold and the target cannot. The log's statistics decide for dates and times that are not in lists.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from snapshot_assets.databases.definition import FailedStatement, ObjectKey, Statement
from snapshot_assets.databases.protocol.sql_target import SqlTarget
from snapshot_assets.databases.protocol.target import OtherType, UnfitValues
from snapshot_assets.engine.restore.files import FilePlan, as_carried, changed_carriers
from snapshot_assets.engine.restore.tasks import batches_of
from snapshot_assets.errors import RestoreError
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.relations import Column, DatabaseSchema, Table, TableName
from snapshot_assets.format.units import counted
from snapshot_assets.storage.base import ObjectStore

_PADDED = ("character(", "char(")
"""Types whose values lose spaces at their end."""

_INTEGER_DIGITS = r"^[+-]?0*(?P<digits>\d*)"


@dataclass
class _Longest:
    """The longest value of a column, and the values that are too long."""

    column: OtherType
    length: int = 0
    too_long: int = 0
    first: str = ""

    @property
    def name(self) -> str:
        """The column's name."""
        return self.column.column

    def skips(self, file: DataFile) -> bool:
        """Return False: only the values themselves have lengths."""
        return False

    def add(self, values: pa.Array, path: str) -> None:
        """Measure the values of a batch."""
        limit = self.column.limit or 0
        lengths = _lengths(values, self.column.found)
        over = pc.sum(pc.greater(lengths, limit)).as_py() or 0
        self.length = max(self.length, pc.max(lengths).as_py() or 0)
        self.too_long += over
        self.first = self.first or (path if over else "")


def too_long(
    store: ObjectStore,
    files: Iterable[FilePlan],
    tables: Iterable[Table],
    documents: Mapping[int, DatabaseSchema],
    shorter: Iterable[OtherType],
) -> Iterator[RestoreError]:
    """Yield an error for each column that has values which the target's column cannot hold.

    Args:
        store: The location.
        files: The files to load; only those of tables with such a column are read.
        tables: Tables as the target holds them.
        documents: Schemas by id.
        shorter: Columns of the target that are shorter than the snapshot's.
    """
    columns: dict[TableName, list[_Longest]] = defaultdict(list)
    for each in shorter:
        columns[each.table].append(_Longest(each))
    by_name = {table.table_name: table for table in tables}
    read_columns(store, files, by_name, documents, columns)
    for longest in (each for some in columns.values() for each in some):
        if longest.too_long:
            yield _refusal(longest)


class Measure(Protocol):
    """What is found out about a column's values."""

    @property
    def name(self) -> str:
        """The column's name."""

    def skips(self, file: DataFile) -> bool:
        """Return whether a file need not be read."""

    def add(self, values: pa.Array, path: str) -> None:
        """Take the values of a batch of a file."""


def read_columns(
    store: ObjectStore,
    files: Iterable[FilePlan],
    tables: Mapping[TableName, Table],
    documents: Mapping[int, DatabaseSchema],
    columns: Mapping[TableName, Sequence[Measure]],
) -> None:
    """Read columns of the files that are to be loaded, without rows that are not restored.

    Args:
        store: The location.
        files: The files.
        tables: Tables as the target holds them.
        documents: Schemas by id.
        columns: By table, what takes the values of its columns.
    """
    for file in files:
        name = file.table.table_name
        if wanted := [each for each in columns.get(name, ()) if not each.skips(file.file)]:
            changed = changed_carriers(documents[file.file.schema_id], file.source, file.table)
            _measure(store, file, as_carried(tables[name], changed), wanted)


def _measure(store: ObjectStore, file: FilePlan, table: Table, columns: Sequence[Measure]) -> None:
    wanted = {each.name for each in columns} | ({table.time_index} if file.cut else set())
    schema = pa.schema([column.arrow_field() for column in table.columns if column.name in wanted])
    for batch in batches_of(store, file, table, schema):
        for each in columns:
            each.add(batch.column(each.name), file.file.path)


def _lengths(values: pa.Array, found: str) -> pa.Array:
    """Return the length of each value; of a number, its digits before the decimal point."""
    while pa.types.is_list(values.type):
        values = values.flatten()
        found = found.removesuffix("[]")
    if found.endswith("[]"):  # the text of a whole array; the server checks its elements
        return pa.array([], pa.int32())
    if found.startswith("numeric"):
        digits = pc.extract_regex(pc.cast(values, pa.string()), _INTEGER_DIGITS)
        return pc.utf8_length(pc.struct_field(digits, "digits"))
    texts = pc.cast(values, pa.string())
    return pc.utf8_length(pc.utf8_rtrim_whitespace(texts) if found.startswith(_PADDED) else texts)


def _refusal(longest: _Longest) -> RestoreError:
    column = longest.column
    return RestoreError(
        f"Column {column.table}.{column.column} is {column.found} in the target, where the import needs"
        f" {column.expected}. Values that are longer: {longest.too_long:,}; the longest has {longest.length}, and the"
        f" first is in {longest.first}. Alter the column, or drop the table and let the import make it.",
        column=f"{column.table}.{column.column}",
    )


@dataclass
class _Unfit:
    """A column that may have values which the target cannot hold, and how many it has."""

    name: str
    values: UnfitValues
    count: int = 0
    first: str = ""

    def skips(self, file: DataFile) -> bool:
        """Return whether a file's statistics prove that all its values fit."""
        bounds = self.values.bounds
        found = next((each for each in file.columns if each.column == self.name), None)
        if bounds is None or found is None or not isinstance(found.minimum, int) or not isinstance(found.maximum, int):
            return False
        return bounds[0] <= found.minimum and found.maximum <= bounds[1]

    def add(self, values: pa.Array, path: str) -> None:
        """Count the values of a batch that do not fit."""
        count = self.values.count(values)
        self.count += count
        self.first = self.first or (path if count else "")

    def __str__(self) -> str:
        found = f"{counted(self.count, 'value')} {self.values.what}"
        return f"column {self.name} has {found}; the first is in {self.first}"


def unfit_values(
    store: ObjectStore,
    target: SqlTarget,
    files: Iterable[FilePlan],
    tables: Iterable[Table],
    documents: Mapping[int, DatabaseSchema],
) -> Iterator[FailedStatement]:
    """Yield each table whose rows the target would refuse.

    Args:
        store: The location.
        target: The target.
        files: The files to load.
        tables: Tables as the target holds them.
        documents: Schemas by id.
    """
    by_name = {table.table_name: table for table in tables}
    columns = {name: list(_unfit_columns(target, table.columns)) for name, table in by_name.items()}
    read_columns(store, files, by_name, documents, columns)
    for name, some in columns.items():
        if found := [str(each) for each in some if each.count]:
            yield FailedStatement(Statement(ObjectKey("rows", of=name), "", name), "; ".join(found))


def _unfit_columns(target: SqlTarget, columns: Iterable[Column]) -> Iterator[_Unfit]:
    for column in columns:
        if column.generated is None and (values := target.unfit_values(column)) is not None:
            yield _Unfit(column.name, values)
