"""Totals of a state: files, rows and bytes of each table, and the number of chunks of each status."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.format.actions import RowsOutside
from snapshot_assets.format.units import time_text


@dataclass(frozen=True)
class TableSize:
    """A table's live files."""

    schema: str
    table: str
    files: int
    rows: int
    bytes: int


def table_sizes(state: State) -> list[TableSize]:
    """Return the live files of a state by table, in the order of names."""
    groups = live_table(state).group_by(["schema", "table"])
    counted = groups.aggregate([("path", "count"), ("rows", "sum"), ("bytes", "sum")])
    found = (
        TableSize(str(row["schema"]), str(row["table"]), row["path_count"], row["rows_sum"], row["bytes_sum"])
        for row in counted.to_pylist()
    )
    return sorted(found, key=lambda size: (size.schema, size.table))


def live_table(state: State) -> pa.Table:
    """Return the live files of a state in the columns of `file_set.COLUMNS`, by chunk and path."""
    table = state.files.merged().table
    return table.filter(pc.equal(table["removed"], 0))


def chunk_statuses(state: State) -> dict[str, int]:
    """Return how many chunks have each status, as the manifest shows it."""
    chunks = {*state.expected_chunks(), *state.chunks, *state.in_progress}
    return dict(sorted(Counter(str(state.status(chunk)) for chunk in chunks).items()))


def rows_outside(state: State) -> tuple[RowsOutside, ...]:
    """Return by table how many rows of the source lay outside the range when the snapshot was sealed last."""
    return state.newest_seal.seal.rows_outside if state.newest_seal else ()


def outside_text(state: State) -> str:
    """Return for people how many rows outside the range were not exported; "" where all were."""
    rows, header = sum(each.rows for each in rows_outside(state)), state.header
    if not rows or header is None or header.start is None or header.end is None:
        return ""
    counted = f"{rows:,} rows" if rows > 1 else "1 row"
    return (
        f"{counted} outside {time_text(header.start)} … {time_text(header.end)} {'were' if rows > 1 else 'was'} "
        "not exported"
    )
