"""What a snapshot has and lacks: totals, and sentences on what was not exported and what exports it.

Commands stand between backticks, without the location. A command or the assets of its plan export a database;
`snapshots copy` or the asset `copy` a query's rows; a Dagster asset its own rows.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
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


_NAMED = 3
"""Tables with rows outside the range that a sentence names."""


def table_sizes(state: State) -> list[dict[str, Any]]:
    """Return the `schema`, `table`, `files`, `rows` and `bytes` of each table's live files, sorted by table."""
    groups = live_table(state, ["schema", "table", "path", "rows", "bytes"]).group_by(["schema", "table"])
    counted = groups.aggregate([("path", "count"), ("rows", "sum"), ("bytes", "sum")])
    sizes = counted.rename_columns(["schema", "table", "files", "rows", "bytes"]).to_pylist()
    return sorted(sizes, key=lambda size: (size["schema"], size["table"]))


def live_table(state: State, columns: Sequence[str]) -> pa.Table:
    """Return the live files of a state as a table of some of `file_columns.COLUMNS`."""
    import pyarrow as pa

    from snapshot_assets.catalog.state.file_columns import COLUMNS

    parts = (part.table.select(columns).filter(pa.array(live)) for part, live, _ in state.files.columns())
    empty = COLUMNS.empty_table().select(columns)
    return pa.concat_tables([empty, *parts]).unify_dictionaries()


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

    It names the tables with most of these rows, such as `main.orders 1,200, main.visits 7 and 2 more`.
    """
    rows = sum(each.rows for each in outside)
    if not rows:
        return ""
    where = f"outside {time_text(start)} … {time_text(end)}" if end is not None else f"before {time_text(start)}"
    tables = sorted((each for each in outside if each.rows), key=lambda each: -each.rows)
    named = ", ".join(f"{TableName(each.schema, each.table)} {number_text(each.rows)}" for each in tables[:_NAMED])
    more = f" and {number_text(len(tables) - _NAMED)} more" if len(tables) > _NAMED else ""
    return f"{counted(rows, 'row')} {where} {noun(rows, 'was', 'were')} not exported ({named}{more})"


def refuse_outside(outside: Sequence[act.RowsOutside], start: datetime, end: datetime | None) -> None:
    """Refuse rows outside a range, for a plan that allows none; the error's `tables` has the rows of every table."""
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
    """A readable revision, with its newest schema, 0 for none, and the totals of all its files.

    Rows deleted by a tombstone count until compaction drops them.
    """

    sealed: SealState
    schema_id: int
    rows: int
    files: int
    bytes: int


def revision_summaries(state: State) -> Mapping[int, RevisionSummary]:
    """Return a summary of each revision that the head can read, ascending, by one pass over the files."""
    import numpy as np

    seals = state.readable()
    revisions = np.array([seal.revision for seal in seals], dtype=np.int64)
    files = state.files.merged()
    values = (files.column("rows"), np.ones(files.table.num_rows, dtype=np.int64), files.column("bytes"))
    added, removed, closed = files.column("added"), files.column("removed")[~files.live], ~files.live
    totals = [
        (_sums_through(added, each, revisions) - _sums_through(removed, each[closed], revisions)).tolist()
        for each in values
    ]
    return {
        seal.revision: RevisionSummary(seal, schema_id, *counts)
        for seal, schema_id, *counts in zip(seals, schema_ids(state, revisions), *totals, strict=True)
    }


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


class _Exporter(Enum):
    """What exports a snapshot; a copy without windows is not continued once it is sealed, only replaced."""

    DATABASE = auto()
    COPY_OF_WINDOWS = auto()
    COPY = auto()
    ASSET = auto()


def _exporter(state: State) -> _Exporter:
    header = state.header
    if header is not None and header.asset:
        return _Exporter.ASSET
    if header is not None and header.query:
        return _Exporter.COPY if header.start is None else _Exporter.COPY_OF_WINDOWS
    return _Exporter.DATABASE


def exporter_text(state: State) -> str:
    """Return what exports the chunks of a snapshot."""
    header = state.header
    if header is not None and header.asset:
        return f"the Dagster asset `{header.asset}`"
    return "`snapshots copy`" if header is not None and header.query else "`snapshots export create`"


def finished_by(state: State, uri: str, replicated: str | None = None) -> str:
    """Return what finishes and seals the snapshot at a location; `replicated` is the URI of a replica's source."""
    if replicated is not None:
        command = f"`snapshots replicate --snapshot {shlex.quote(replicated)} --to {shlex.quote(uri)}`"
        return f"once its source is sealed, run {command}"
    match _exporter(state):
        case _Exporter.DATABASE:
            return f"run {exporter_text(state)} again"
        case _Exporter.ASSET:
            missing = f"the missing partitions of {exporter_text(state)}, then " if state.missing() else ""
            return f"materialise {missing}the asset `manifest`"
        case _:
            return f"run the same {exporter_text(state)} again"


def completed_by(state: State) -> str:
    """Return the sentence on what exports missing chunks, and seals then."""
    match _exporter(state):
        case _Exporter.DATABASE:
            return (
                "Materialise these partitions of the asset `chunks`, or the asset `untimed_tables` for chunk 0, then"
                f" seal again; {exporter_text(state)} does both."
            )
        case _Exporter.ASSET:
            return f"Materialise these partitions of {exporter_text(state)}, then seal again."
        case _:
            return f"The same {exporter_text(state)}, run again, copies and seals them."


def described_by(state: State) -> str:
    """Return the sentence on what writes a schema document again."""
    match _exporter(state):
        case _Exporter.ASSET:  # its runs read the documents
            return "Bring it back from a copy."
        case _Exporter.COPY if state.sealed:
            another = "`snapshots copy --overwrite`, run with the same query,"
            return f"Bring it back from a copy of this location; {another} replaces all of it."
        case _:
            text = f"{exporter_text(state)} writes it again from a source whose schema is as it was"
            return f"{text}; else bring it back from a copy."


def again_with(state: State, chunk: int) -> str:
    """Return what exports a completed chunk again."""
    exporter = _exporter(state)
    if exporter is _Exporter.COPY:
        return "with `snapshots copy --overwrite` of the same query"
    if chunk == UNTIMED_CHUNK:
        return "by materialising the asset `untimed_tables` with `replace: true`"
    window = state.window(chunk)
    if exporter is _Exporter.DATABASE:
        return f"with {replaced_by(state, window.start, window.end)}"
    return f"by materialising the partition {time_text(window.start)} of {_asset(state)} with `replace: true`"


def replaced_by(state: State, start: datetime, end: datetime) -> str:
    """Return what exports completed windows again; begins a sentence."""
    if _exporter(state) is _Exporter.DATABASE:
        return f"`snapshots export create --replace {time_text(start)}/{time_text(end)}`"
    return f"Materialising their partitions of {_asset(state)} with `replace: true`"


def _asset(state: State) -> str:
    """Return the Dagster asset whose partitions are the windows of a snapshot that no command exports again."""
    return exporter_text(state) if _exporter(state) is _Exporter.ASSET else "the asset `copy`"


def begun_with(state: State) -> str:
    """Return the sentence on what exports a snapshot again that began after a state, from the same source."""
    match _exporter(state):
        case _Exporter.DATABASE:
            return "Export it again with `snapshots export create --force`."
        case _Exporter.ASSET:
            return f"Give the plan another location, and materialise the partitions of {exporter_text(state)}."
        case _:
            return "Copy it again with `snapshots copy --overwrite`."
