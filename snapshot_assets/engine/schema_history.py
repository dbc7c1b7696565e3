"""How the schemas of exported windows differ from the newest one, so that rows or values are not where one looks.

A closed window is exported once. A table that is added later with older rows, or a column that is filled for them, is
in the windows that follow only. One that went later is in older windows only, and whatever reads the newest schema
leaves it out (FORMAT.md, section 5). Nobody would see either in a sealed snapshot.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial

from snapshot_assets.catalog.schemas import read_schema
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.totals import replaced_by, schema_ids
from snapshot_assets.databases.partitions import partitions_of, relation_names
from snapshot_assets.errors import ObjectNotFoundError
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.name_texts import shell_word, written_name
from snapshot_assets.format.names import ColumnPath
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName
from snapshot_assets.format.units import counted, noun, time_text
from snapshot_assets.storage.base import ObjectStore

_Tables = Mapping[TableName, Table]


def history_warnings(store: ObjectStore, state: State) -> list[str]:
    """Return a sentence for each timed table, and each column of the others, that only some of the windows have."""
    windows = _windows_by_schema(state)
    if not windows.keys() - {state.schema_id}:
        return []
    found = {schema_id: read_kept_schema(store, state, schema_id) for schema_id in {*windows, state.schema_id}}
    documents = {schema_id: schema for schema_id, schema in found.items() if schema is not None}
    names = {schema_id: relation_names(schema) for schema_id, schema in documents.items()}
    gone = sorted(set().union(*names.values()) - names.get(state.schema_id, set()))
    added = _differing(state, documents, _added, partial(_lacking, gone))
    return [*added, *left_out(state, documents)]


def left_out(
    state: State, documents: Mapping[int, DatabaseSchema], tables: Collection[TableName] | None = None
) -> list[str]:
    """Return a sentence for each timed table, and each column of the others, that the newest schema lacks.

    Documents by schema id that are not there are not compared.
    """
    if documents.keys() <= {state.schema_id}:
        return []

    def gone(newest: _Tables, older: _Tables) -> Iterator[str]:
        chosen = older if tables is None else {name: table for name, table in older.items() if name in tables}
        return _more(chosen, newest)

    return _differing(state, documents, gone, _left_out)


def dropped_table(name: TableName) -> str:
    """Return the sentence of an import that leaves out a table which the newest schema lacks."""
    return (
        f"Table {name} is not in the newest schema, so its rows are left out. To restore them too, import"
        f" again with --tables {shell_word(written_name(*name))}: it gets the definition that it had last. If its name"
        " is taken by now, also give --map-table."
    )


def former_partition(name: TableName) -> str:
    """Return the sentence of an import that brings back a partition which the newest schema lacks."""
    return (
        f"Partition {name} is not in the newest schema. The import makes it unless it is there, because"
        " windows that were exported before may have rows that no other partition takes."
    )


def _differing(
    state: State,
    documents: Mapping[int, DatabaseSchema],
    compare: Callable[[_Tables, _Tables], Iterator[str]],
    sentence: Callable[[State, str, list[int]], str],
) -> list[str]:
    """Return a sentence on each name that a comparison of the newest schema with older ones finds, and its windows."""
    if state.schema_id not in documents:
        return []
    newest, found = _timed(documents[state.schema_id]), defaultdict[str, list[int]](list)
    for schema_id, chunks in _windows_by_schema(state).items():
        if schema_id != state.schema_id and schema_id in documents:
            for name in compare(newest, _timed(documents[schema_id])):
                found[name] += chunks
    return [sentence(state, name, sorted(chunks)) for name, chunks in sorted(found.items())]


def _windows_by_schema(state: State) -> dict[int, list[int]]:
    """Return the completed windows by the schema that they were exported with."""
    windows: dict[int, list[int]] = defaultdict(list)
    for chunk, schema_id in exported_with(state).items():
        if chunk != UNTIMED_CHUNK:
            windows[schema_id].append(chunk)
    return windows


def exported_with(state: State) -> dict[int, int]:
    """Return the id of the schema that each completed chunk was exported with; 0 where the log does not tell."""
    import numpy as np

    exported = sorted((known.exported, chunk) for chunk, known in state.chunks.items() if state.completed(chunk))
    ids = schema_ids(state, np.array([revision for revision, _ in exported], dtype=np.int64))
    return {chunk: schema_id for schema_id, (_, chunk) in zip(ids, exported, strict=True)}


def read_kept_schema(store: ObjectStore, state: State, schema_id: int) -> DatabaseSchema | None:
    """Return a schema; None if nothing keeps its documents any more."""
    try:
        return read_schema(store, state.schemas[schema_id])
    except (KeyError, ObjectNotFoundError):
        return None


def _timed(schema: DatabaseSchema) -> _Tables:
    return {table.table_name: table for table in schema.tables if table.time_index is not None}


def _more(tables: _Tables, others: _Tables) -> Iterator[str]:
    """Yield the names of what tables have and others lack: tables, or columns of the tables that both have."""
    for name, table in tables.items():
        if name not in others:
            yield f"Table {name}"
            continue
        known = {column.name for column in others[name].columns}
        for column in table.columns:
            if column.name not in known:
                yield f"Column {ColumnPath(name, column.name)}"


def _added(newest: _Tables, older: _Tables) -> Iterator[str]:
    """Yield what `_more` does, without tables that were partitions: their rows were exported with their table."""
    parts = {f"Table {part}" for table in older.values() for part in partitions_of(table)}
    return (name for name in _more(newest, older) if name not in parts)


def _lacking(gone: Sequence[TableName], state: State, name: str, chunks: list[int]) -> str:
    first, last = state.window(chunks[0]).start, state.window(chunks[-1]).end
    lost = f" It leaves out what the database does not have any more, such as {gone[0]}." if gone else ""
    return (
        f"{name} was not exported with {_windows(state, chunks)}, which {noun(len(chunks), 'was', 'were')} exported"
        f" before it was there: what it holds for {noun(len(chunks), 'it', 'them')} is not in the snapshot."
        f" {replaced_by(state, first, last)} exports {noun(len(chunks), 'it', 'them')} again.{lost}"
    )


def _left_out(state: State, name: str, chunks: list[int]) -> str:
    unless = ", except imports that name it under --tables" if name.startswith("Table ") else ""
    return (
        f"{name} was exported with {_windows(state, chunks)}, and is not in the newest schema: restores and reads of"
        f" this version leave out what it holds{unless}. Versions from before it went have it."
    )


def _windows(state: State, chunks: list[int]) -> str:
    first, last = state.window(chunks[0]).start, state.window(chunks[-1]).end
    return f"{counted(len(chunks), 'window')} from {time_text(first)} to {time_text(last)}"
