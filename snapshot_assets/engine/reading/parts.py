"""Which files, and which row groups of them, hold rows of a table in a time range: read off the log alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from snapshot_assets.catalog.state import State
from snapshot_assets.engine.time_range import TimeRange
from snapshot_assets.errors import PlanError
from snapshot_assets.format.files import ColumnStatistics, DataFile
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName

_GROUP_BYTES = 32 << 20
_OPEN_COST = 4 << 20


@dataclass(frozen=True)
class FilePart:
    """What is read of one file.

    Attributes:
        file: The file, without its statistics.
        row_groups: Numbers of the row groups that may hold rows; None for all.
        cut: Whether rows must be filtered by the time range.
    """

    file: DataFile
    row_groups: tuple[int, ...] | None = None
    cut: bool = False


def file_parts(
    state: State, table: Table, documents: Mapping[int, DatabaseSchema], time_range: TimeRange | None
) -> list[FilePart]:
    """Return what must be read for a table's rows, by chunk and path.

    Args:
        state: The state that is read.
        table: The table as the newest schema has it.
        documents: The schemas that files were written with, by id; used only with a time range.
        time_range: None for all rows, those without a time included.

    Raises:
        PlanError: The table has no time index, or rows would have to be filtered by a time that travelled as text.
    """
    files = [known.file for known in state.live_files() if (known.file.schema, known.file.table) == table.table_name]
    if time_range is None:
        return [FilePart(bare(file)) for file in files]
    if table.time_index is None:
        raise PlanError(
            f"table {table.table_name} has no time index, so it has no range of time: leave start and end out"
        )
    found: list[FilePart] = []
    for file in files:
        if file.chunk == UNTIMED_CHUNK:
            continue
        window = state.window(file.chunk)
        if time_range.covers(window.start, window.end):
            found.append(FilePart(bare(file)))
        elif time_range.overlaps(window.start, window.end):
            _check_comparable(table)
            found.extend(_edge(file, table, documents, time_range))
    return found


def grouped(parts: Sequence[FilePart]) -> list[list[FilePart]]:
    """Return the parts in groups of neighbours, each as much as one task should read."""
    groups: list[list[FilePart]] = []
    size = _GROUP_BYTES
    for part in parts:
        cost = part.file.bytes + _OPEN_COST
        if size + cost > _GROUP_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(part)
        size += cost
    return groups


def bare(file: DataFile) -> DataFile:
    """Return a file without its statistics."""
    return replace(file, columns=(), row_groups=())


def _check_comparable(table: Table) -> None:
    assert table.time_index is not None
    kind = table.column(table.time_index).arrow_field().type
    if not _is_time(kind):
        raise PlanError(
            f"{table.table_name}.{table.time_index} travelled as {kind}, so rows cannot be filtered by it. Let"
            " start and end lie on bounds of chunks (table $chunks lists them), or leave them out."
        )


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date32(kind))


def _edge(
    file: DataFile, table: Table, documents: Mapping[int, DatabaseSchema], time_range: TimeRange
) -> Iterator[FilePart]:
    """Yield the part of a file at the range's edge; nothing if its statistics exclude it."""
    bounds = _Bounds.of(file, table, documents, time_range)
    if bounds is None:
        yield FilePart(bare(file), cut=True)
        return
    if not all(bounds.overlap([file.columns])):
        return
    kept = bounds.overlap([group.columns for group in file.row_groups])
    if all(kept):
        yield FilePart(bare(file), cut=True)
    elif any(kept):
        yield FilePart(bare(file), tuple(number for number, keep in enumerate(kept) if keep), cut=True)


@dataclass(frozen=True)
class _Bounds:
    """Compares bounds of a time column with a range, as its values themselves are compared.

    Attributes:
        table: The table.
        kind: Type of the column's values in the file, as Parquet keeps it.
    """

    table: Table
    kind: pa.DataType
    time_range: TimeRange

    @classmethod
    def of(
        cls, file: DataFile, table: Table, documents: Mapping[int, DatabaseSchema], time_range: TimeRange
    ) -> _Bounds | None:
        """Return the bounds of a file; None where its time column has none that could be compared."""
        kind = _type_in(file, table, documents)
        if kind is None or not _is_time(kind):
            return None
        if pa.types.is_timestamp(kind) and kind.unit == "s":
            kind = pa.timestamp("ms", kind.tz)  # Parquet has no seconds
        return cls(table, kind, time_range)

    def overlap(self, statistics: Sequence[Sequence[ColumnStatistics]]) -> list[bool]:
        """Tell of each set of columns' bounds whether a time in the range may lie within: in unknown ones it may."""
        times = [next((one for one in columns if one.column == self.table.time_index), None) for columns in statistics]
        known = {n: (one.minimum, one.maximum) for n, one in enumerate(times) if one is not None}
        known = {n: pair for n, pair in known.items() if all(type(bound) is int for bound in pair)}
        zone = self.time_range.zone
        early = self._kept(TimeRange(None, self.time_range.end, zone), {n: pair[0] for n, pair in known.items()})
        late = self._kept(TimeRange(self.time_range.start, None, zone), {n: pair[1] for n, pair in known.items()})
        return [n not in known or (n in early and n in late) for n in range(len(times))]

    def _kept(self, time_range: TimeRange, values: Mapping[int, object]) -> set[int]:
        """Return the numbers of the values that lie in a range."""
        storage = pa.int32() if pa.types.is_date32(self.kind) else pa.int64()
        times = pa.array(values.values(), storage).view(self.kind)
        names = [self.table.time_index, "number of the value"]
        batch = pa.RecordBatch.from_arrays([times, pa.array(values, pa.int64())], names)
        return set(time_range.filter(batch, self.table).column(1).to_pylist())


def _type_in(file: DataFile, table: Table, documents: Mapping[int, DatabaseSchema]) -> pa.DataType | None:
    """Return the type of the time column in a file, None if the file does not have it."""
    name = TableName(file.schema, file.table)
    for written in documents[file.schema_id].tables:
        if written.table_name == name:
            return next((c.arrow_field().type for c in written.columns if c.name == table.time_index), None)
    return None
