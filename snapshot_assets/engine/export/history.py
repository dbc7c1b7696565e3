"""What exported windows lack, because a table or a column was not there, or not selected, when they were exported.

A closed window is exported once, so a table that is added later with older rows, or a column that is filled for them,
is in the windows that follow. Nobody would see that in a sealed snapshot.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from snapshot_assets.catalog.schemas import read_schema
from snapshot_assets.catalog.state.exporter import replaced_by
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.totals import schema_ids
from snapshot_assets.errors import ObjectNotFoundError
from snapshot_assets.format.counts import counted, noun
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.names import ColumnPath, column_text, table_text
from snapshot_assets.format.relations import Table, TableName
from snapshot_assets.format.units import time_text
from snapshot_assets.storage.base import ObjectStore

_Tables = Mapping[TableName, Table]


def history_warnings(store: ObjectStore, state: State) -> list[str]:
    """Return a sentence for each timed table, and each of their columns, that exported windows lack.

    Args:
        store: The location.
        state: Its newest state.
    """
    windows = _windows_by_schema(state)
    if not windows.keys() - {state.schema_id}:
        return []
    newest = _timed(store, state, state.schema_id)
    lacking: dict[str, list[int]] = defaultdict(list)
    for schema_id in sorted(windows.keys() - {state.schema_id}):
        for name in _lacks(newest, _timed(store, state, schema_id)):
            lacking[name] += windows[schema_id]
    return [_sentence(state, name, sorted(chunks)) for name, chunks in sorted(lacking.items())]


def _windows_by_schema(state: State) -> dict[int, list[int]]:
    """Return the completed windows by the schema that they were exported with."""
    import numpy as np

    exported = sorted(
        (known.exported, chunk)
        for chunk, known in state.chunks.items()
        if chunk != UNTIMED_CHUNK and state.completed(chunk)
    )
    ids = schema_ids(state, np.array([revision for revision, _ in exported], dtype=np.int64))
    windows: dict[int, list[int]] = defaultdict(list)
    for schema_id, (_, chunk) in zip(ids, exported, strict=True):
        windows[schema_id].append(chunk)
    return windows


def _timed(store: ObjectStore, state: State, schema_id: int) -> _Tables | None:
    """Return the timed tables of a schema; None if nothing keeps its documents any more."""
    try:
        schema = read_schema(store, state.schemas[schema_id])
    except (KeyError, ObjectNotFoundError):
        return None
    return {table.table_name: table for table in schema.tables if table.time_index is not None}


def _lacks(newest: _Tables | None, older: _Tables | None) -> Iterator[str]:
    """Yield the names of what the newest schema has and an older one lacks: tables, or columns of the others."""
    if newest is None or older is None:
        return
    for name, table in newest.items():
        if name not in older:
            yield f"Table {table_text(name)}"
            continue
        known = {column.name for column in older[name].columns}
        for column in table.columns:
            if column.name not in known:
                yield f"Column {column_text(ColumnPath(name, column.name))}"


def _sentence(state: State, name: str, chunks: list[int]) -> str:
    first, last = state.window(chunks[0]).start, state.window(chunks[-1]).end
    found = counted(len(chunks), "window")
    return (
        f"{name} was not exported with {found} from {time_text(first)} to {time_text(last)}, which"
        f" {noun(len(chunks), 'was', 'were')} exported before it was there: what it holds for"
        f" {noun(len(chunks), 'it', 'them')} is not in the snapshot. {replaced_by(state, first, last)} exports"
        f" {noun(len(chunks), 'it', 'them')} again."
    )
