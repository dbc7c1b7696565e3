"""Selects the files and row groups that may contain rows of a table in a time range.

The log selects files; the task that reads a file selects row groups from its footer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq

from snapshot_assets.catalog.state.file_pruning import deletions, match_files, written_schemas
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.engine.files.parquet.statistics import row_groups
from snapshot_assets.engine.files.read import TextSchema, text_schemas
from snapshot_assets.engine.time_range import TimeFilter, is_time
from snapshot_assets.errors import PlanError
from snapshot_assets.format.actions import ColumnStatistics, DataFile
from snapshot_assets.format.predicates import Predicate
from snapshot_assets.format.relations import DatabaseSchema, Table

_GROUP_BYTES = 32 << 20
_OPEN_COST = 4 << 20


@dataclass(frozen=True)
class FilePart:
    """The part of one file that is read.

    Attributes:
        file: The file, without its statistics.
        cut: Whether the time range selects row groups from the file's footer, and filters rows.
        deleted: Predicates of tombstones; rows for which one is true are left out.
        dropped: Whether tombstones delete all rows.
        text: What a text file does not say about itself; None for Parquet.
    """

    file: DataFile
    cut: bool = False
    deleted: tuple[Predicate, ...] = ()
    dropped: bool = False
    text: TextSchema | None = None


def file_parts(
    state: State,
    table: Table,
    documents: Mapping[int, DatabaseSchema],
    time_range: TimeFilter | None,
    *,
    dropped: bool = False,
) -> list[FilePart]:
    """Return the parts to read for a table's rows, by chunk and path.

    Args:
        state: The state.
        table: The table in the newest schema.
        documents: The schemas of the files, by id; used only for text files, with a time range or with tombstones.
        time_range: None for all rows, also those without a time.
        dropped: Whether to include files that are deleted whole.

    Raises:
        PlanError: A time that is carried as text would have to filter rows.
    """
    written = written_schemas(documents, table.table_name)
    gone = deletions(state, table.table_name, written)
    text_of = text_schemas(state.header, documents)
    parts = [
        replace(
            part,
            deleted=gone.of(part.file.path),
            dropped=part.file.path in gone.dropped,
            text=text_of(part.file),
        )
        for part in _in_range(state, table, written, time_range)
    ]
    return [part for part in parts if dropped or not part.dropped]


def _in_range(
    state: State, table: Table, written: Mapping[int, pa.Schema], time_range: TimeFilter | None
) -> Iterator[FilePart]:
    """Yield the parts that may hold rows of a time range."""
    start, end = (time_range.start, time_range.end) if time_range else (None, None)
    found = match_files(state, table.table_name, start=start, end=end)
    matches = list(found)
    edges = [match for match in matches if not match.certain]
    if not edges or time_range is None or table.time_index is None:
        yield from (FilePart(_bare(match.file)) for match in matches)
        return
    _check_comparable(table)
    paths = [match.file.path for match in edges]
    statistics = dict(zip(paths, found.statistics(table.time_index, edges), strict=True))
    for match in matches:
        if match.certain:
            yield FilePart(_bare(match.file))
        elif all(_overlap(written[match.file.schema_id], table, time_range, [statistics[match.file.path]])):
            yield FilePart(_bare(match.file), cut=True)


def grouped(parts: Sequence[FilePart]) -> list[list[FilePart]]:
    """Return the parts in groups of neighbours, one group a task."""
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


def _bare(file: DataFile) -> DataFile:
    """Return a file without its statistics."""
    return replace(file, columns=(), row_groups=())


def _check_comparable(table: Table) -> None:
    assert table.time_index is not None
    kind = table.column(table.time_index).arrow_field().type
    if not is_time(kind):
        raise PlanError(
            f"{table.table_name}.{table.time_index} is carried as {kind}, so rows cannot be filtered by it. Let"
            " start and end lie on bounds of chunks (table $chunks lists them), or omit them."
        )


def _overlap(
    schema: pa.Schema, table: Table, time_range: TimeFilter, bounds: Sequence[ColumnStatistics | None]
) -> list[bool]:
    """Return for each bounds of a file's time column whether they overlap the range; unknown bounds do."""
    kind = schema.field(table.time_index).type if table.time_index in schema.names else None
    if kind is None or not is_time(kind):
        return [True] * len(bounds)
    if pa.types.is_timestamp(kind) and kind.unit == "s":
        kind = pa.timestamp("ms", kind.tz)  # Parquet has no seconds
    numbers = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    known = [one if one and type(one.minimum) is type(one.maximum) is int else None for one in bounds]
    first = pa.array([one and one.minimum for one in known], numbers).view(kind)
    last = pa.array([one and one.maximum for one in known], numbers).view(kind)
    kept: list[bool] = time_range.overlapping(first, last, table).fill_null(True).to_pylist()
    return kept


def groups_in_range(
    table: Table, time_range: TimeFilter, metadata: pq.FileMetaData, schema: pa.Schema
) -> Sequence[int]:
    """Return the numbers of the row groups that may contain rows of a time range, from a file's footer."""
    bounds = [
        next((one for one in group.columns if one.column == table.time_index), None)
        for group in row_groups(metadata, schema)
    ]
    return [number for number, kept in enumerate(_overlap(schema, table, time_range, bounds)) if kept]
