"""Untimed tables that are divided by ranges of their primary keys, so that a change rewrites a range and not the table.

A large table is divided when it is first exported. The log has the ranges, and later exports read the same ones: a row
has its place in one of them, also a row that is added later. A range that has outgrown twice its size is divided again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.databases.protocol.query import ColumnRange
from snapshot_assets.databases.protocol.source import AllRows, Database, KeyRows, Rows, Scan, joined_ranges
from snapshot_assets.databases.selection.selection import key_column
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.chunk_parts import KeyRange, RowsErased, divisions
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName

Portion = TableName | KeyRange
"""The rows of a table in a chunk, or a range of them."""


def written_range(scan: Scan, files: Iterable[DataFile]) -> KeyRange | None:
    """Return the range that a scan reads, with the attempts of the files that were written of it; None for others."""
    if not isinstance(scan.rows, KeyRows):
        return None
    own, attempts = scan.rows.range, tuple(file.attempt for file in files)
    return KeyRange(*scan.table.table_name, own.column, own.type, own.low or "", own.high or "", attempts)


def together(rows: Sequence[Rows]) -> list[Rows]:
    """Return rows of a table, with ranges that follow each other as one, and all of its ranges as all rows."""
    joined = joined_ranges(each.range for each in rows if isinstance(each, KeyRows))
    others = [each for each in rows if not isinstance(each, KeyRows)]
    return others + [AllRows() if each.low is each.high is None else KeyRows(each) for each in joined]


def recorded_parts(state: State, schema: DatabaseSchema) -> dict[TableName, dict[Rows, Portion]]:
    """Return the parts of each untimed table as the log has them: its ranges, in order of the key, or the whole table.

    A table is one part, too, if a file of it is of no range, because an older build wrote it, if a compaction left out
    rows, which may have been of any range, or if the source has another key.
    """
    known = state.chunks.get(UNTIMED_CHUNK)
    divided = divisions(known.chunk.ranges) if known else {}
    if divided and known:
        attempts = {attempt for each in known.chunk.ranges for attempt in each.attempts}
        files = [each.file for each in state.live_files(UNTIMED_CHUNK) if each.file.attempt not in attempts]
        undivided: list[DataFile | RowsErased] = [*known.chunk.erased, *files]
        for each in undivided:
            divided.pop((each.schema, each.table), None)
    return {table.table_name: _parts(table, divided.get(table.table_name)) for table in schema.tables}


def _parts(table: Table, ranges: Sequence[KeyRange] | None) -> dict[Rows, Portion]:
    column = key_column(table)
    if not ranges or column is None or (column.name, column.type) != (ranges[0].column, ranges[0].type):
        return {AllRows(): table.table_name}
    return {KeyRows(ColumnRange(each.column, each.type, each.low or None, each.high or None)): each for each in ranges}


def divided(database: Database, table: Table, rows: Rows, range_bytes: int) -> Sequence[Rows]:
    """Return ranges of a table that is larger than they are, or of a range that has outgrown twice its size.

    Returns:
        The ranges; only `rows` where the table is small, or cannot be divided.

    Raises:
        SnapshotError: See `Database.estimate`.
    """
    scan, most = Scan(table, rows), range_bytes * (2 if isinstance(rows, KeyRows) else 1)
    if not most or key_column(table) is None or (size := database.estimate(scan)) <= most:
        return [rows]
    ranges = database.divide(scan, -(-size // range_bytes))
    return [KeyRows(each) for each in ranges] if len(ranges) > 1 else [rows]
