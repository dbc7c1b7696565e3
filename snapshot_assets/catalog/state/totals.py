"""Totals: rows, files and bytes of each table and of each readable revision, and the number of chunks by status.

The totals of all revisions take one pass over the files. Folding each revision separately would take as long as the
number of revisions times the number of files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from snapshot_assets.catalog.state.fold import SealState, State
from snapshot_assets.errors import RowsOutsideError
from snapshot_assets.format import actions as act
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.units import counted, noun, number_text, time_text

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from snapshot_assets.catalog.state.file_columns import FileColumns

_NAMED = 3
"""Tables with rows outside the range that a sentence names."""


def table_sizes(state: State) -> list[dict[str, Any]]:
    """Return the `schema`, `table`, `files`, `rows` and `bytes` of each table's live files, sorted by table."""
    groups = live_table(state).group_by(["schema", "table"])
    counted = groups.aggregate([("path", "count"), ("rows", "sum"), ("bytes", "sum")])
    sizes = counted.rename_columns(["schema", "table", "files", "rows", "bytes"]).to_pylist()
    return sorted(sizes, key=lambda size: (size["schema"], size["table"]))


def live_table(state: State) -> pa.Table:
    """Return the live files of a state as a table of `file_columns.COLUMNS`, by chunk and path."""
    import pyarrow.compute as pc

    table = state.files.merged().table
    return table.filter(pc.equal(table["removed"], 0))


def chunk_statuses(state: State) -> dict[str, int]:
    """Return the number of chunks by status, as the manifest shows it; an empty chunk 0 is not counted."""
    chunks = {*state.expected_chunks(), *state.chunks, *state.in_progress}
    if UNTIMED_CHUNK not in state.counted_chunks() and not state.files.chunk(UNTIMED_CHUNK):
        chunks.discard(UNTIMED_CHUNK)
    return dict(sorted(Counter(str(state.status(chunk)) for chunk in chunks).items()))


def rows_outside(state: State) -> tuple[act.RowsOutside, ...]:
    """Return the number of source rows outside the range at the newest seal, by table."""
    return state.newest_seal.seal.rows_outside if state.newest_seal else ()


def missing_text(state: State) -> str:
    """Return how many chunks are not exported, such as `2 of 4 chunks are not exported`; "" if all are."""
    missing = len(state.missing())
    if not missing:
        return ""
    chunks = counted(len(state.counted_chunks()), "chunk")
    return f"{number_text(missing)} of {chunks} {noun(missing, 'is', 'are')} not exported"


def outside_text(state: State) -> str:
    """Return a sentence part on rows outside the range that were not exported; "" without such rows."""
    header = state.header
    if header is None or header.start is None or header.end is None:
        return ""
    return rows_text(rows_outside(state), header.start, outside_end(header))


def outside_end(header: act.Header) -> datetime | None:
    """Return the end that rows are outside of; None for a range that grows, whose later windows will hold them."""
    return None if header.kind == "continuous" else header.end


def rows_text(outside: Sequence[act.RowsOutside], start: datetime, end: datetime | None) -> str:
    """Return a sentence part on rows outside a range, or before it if it has no end; "" without such rows.

    It names the tables with most of these rows.
    """
    rows = sum(each.rows for each in outside)
    if not rows:
        return ""
    where = f"outside {time_text(start)} … {time_text(end)}" if end is not None else f"before {time_text(start)}"
    return f"{counted(rows, 'row')} {where} {noun(rows, 'was', 'were')} not exported ({_tables_text(outside)})"


def _tables_text(outside: Sequence[act.RowsOutside]) -> str:
    """Return tables with their rows, such as `main.orders 1,200, main.visits 7 and 2 more`; the largest first."""
    tables = sorted((each for each in outside if each.rows), key=lambda each: -each.rows)
    named = (f"{TableName(each.schema, each.table)} {number_text(each.rows)}" for each in tables[:_NAMED])
    more = f" and {number_text(len(tables) - _NAMED)} more" if len(tables) > _NAMED else ""
    return ", ".join(named) + more


def refuse_outside(outside: Sequence[act.RowsOutside], start: datetime, end: datetime | None) -> None:
    """Refuse rows outside a range, for a plan that allows none.

    Raises:
        RowsOutsideError: There are some; its attribute `tables` has the rows of every table.
    """
    if text := rows_text(outside, start, end):
        raise RowsOutsideError(
            f"{text}, and fail_on_rows_outside allows none. Change start_time or end_time so that the range holds them,"
            " or correct their times.",
            tables={f"{each.schema}.{each.table}": each.rows for each in outside},
        )


def refuse_recorded(state: State) -> None:
    """Refuse the rows outside the range that the newest seal records; see `refuse_outside`."""
    if state.header is not None and state.header.start is not None:
        refuse_outside(rows_outside(state), state.header.start, outside_end(state.header))


@dataclass(frozen=True)
class RevisionSummary:
    """A readable revision.

    Attributes:
        schema_id: Its newest schema, 0 for none.
        rows: Rows of all its files. Rows deleted by a tombstone count until compaction drops them.
    """

    sealed: SealState
    schema_id: int
    rows: int
    files: int
    bytes: int


def revision_summaries(state: State) -> Mapping[int, RevisionSummary]:
    """Return a summary of each revision that the head can read, ascending."""
    import numpy as np

    seals = state.readable()
    revisions = np.array([seal.revision for seal in seals], dtype=np.int64)
    files = state.files.merged()
    totals = zip(*(_totals(files, name, revisions) for name in ("rows", "", "bytes")), strict=True)
    return {
        seal.revision: RevisionSummary(seal, schema_id, *counts)
        for seal, schema_id, counts in zip(seals, schema_ids(state, revisions), totals, strict=True)
    }


def _totals(files: FileColumns, column: str, revisions: np.ndarray) -> list[int]:
    """Return the sum of a column over the files of each revision; without a column, their number."""
    import numpy as np

    values = files.column(column) if column else np.ones(files.table.num_rows, dtype=np.int64)
    closed = ~files.live
    total_added = _sums_through(files.column("added"), values, revisions)
    total_removed = _sums_through(files.column("removed")[closed], values[closed], revisions)
    return [int(each) for each in total_added - total_removed]


def _sums_through(at: np.ndarray, values: np.ndarray, revisions: np.ndarray) -> np.ndarray:
    """Return for each revision the sum of the values at revisions up to it."""
    import numpy as np

    order = np.argsort(at, kind="stable")
    sums = np.concatenate([[0], np.cumsum(values[order])])
    return np.asarray(sums[np.searchsorted(at[order], revisions, side="right")])


def schema_ids(state: State, revisions: np.ndarray) -> list[int]:
    """Return the newest schema id at each of some ascending revisions; 0 before the first."""
    import numpy as np

    marks, ids = [0], [0]
    for event in state.events:
        for action in event.actions:
            match action:
                case act.Begin() | act.Rollback():
                    marks.append(event.revision)
                    ids.append(0)
                case act.SchemaAdded():
                    marks.append(event.revision)
                    ids.append(max(ids[-1], action.schema_id))
    return [ids[place - 1] for place in np.searchsorted(marks, revisions, side="right").tolist()]
