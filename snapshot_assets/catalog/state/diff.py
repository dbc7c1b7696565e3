"""Compares two versions: header, schemas, tombstones, chunks and files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from snapshot_assets.catalog.state.file_columns import FileColumns
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.format import actions as act
from snapshot_assets.format.predicate_text import predicate_text
from snapshot_assets.format.units import duration_text, time_text

_COUNTS = ("files_added", "files_removed", "rows_added", "rows_removed", "bytes_added", "bytes_removed")
_Place = tuple[Any, Any, Any]
"""A chunk, and the schema and name of a table."""


class Kind(StrEnum):
    """The kind of object that a row of a difference describes."""

    HEADER = "header"
    SCHEMA = "schema"
    TOMBSTONE = "tombstone"
    CHUNK = "chunk"
    FILE = "file"


class Change(StrEnum):
    """What happened to that object."""

    ADDED = "added"
    REMOVED = "removed"
    REWRITTEN = "rewritten"
    DELETED = "deleted"
    UNDELETED = "undeleted"
    CHANGED = "changed"


@dataclass(frozen=True)
class DiffRow:
    """One change; the columns of `$diff`.

    Attributes:
        kind: What changed. The row of a chunk counts the same files as the rows of its files.
        change: For a file `added` or `removed`. For a chunk also `rewritten` if files were added and removed. Without
            changed files: `deleted` if tombstones now delete rows of the chunk, `undeleted` if they no longer do.
        schema: As is `table`, None for a chunk without files.
        detail: For the header, the field and its values; for a schema, its id; for a tombstone, its revision and
            predicate; for a chunk without files, its status.
        rows_added: Rows of the added files; None (unknown) for a chunk where tombstones are undone.
        rows_removed: Rows of the removed files; None (unknown) for a chunk where tombstones delete rows.
    """

    kind: Kind
    change: Change
    chunk: int | None = None
    schema: str | None = None
    table: str | None = None
    path: str | None = None
    detail: str | None = None
    files_added: int | None = None
    files_removed: int | None = None
    rows_added: int | None = None
    rows_removed: int | None = None
    bytes_added: int | None = None
    bytes_removed: int | None = None


def difference(state: State, first: int, second: int) -> list[DiffRow]:
    """Return the changes from one readable revision, or the head, to another, older or newer.

    They are sorted by kind; chunks by number and table, those without files last; files by chunk and path.
    """
    before, after = (state if each == state.revision else state.without_files_at(each) for each in (first, second))
    columns = state.files.merged()
    files, kept = _files(columns, columns.in_state(first), columns.in_state(second))
    common = columns.table.filter(pa.array(kept))
    chunks = _chunks(files, _places(common, _only(after, before)), _places(common, _only(before, after)))
    listed = {row.chunk for row in chunks}
    for number in sorted({*before.chunks, *after.chunks} - listed):
        if before.completed(number) != after.completed(number):  # only one version completed it
            change = Change.ADDED if after.completed(number) else Change.REMOVED
            detail = f"{before.status(number).value} → {after.status(number).value}"
            chunks.append(DiffRow(Kind.CHUNK, change, number, None, None, None, detail, 0, 0, 0, 0, 0, 0))
    return [*_header(before, after), *_schemas_and_tombstones(before, after), *chunks, *files]


def _files(columns: FileColumns, before: np.ndarray, after: np.ndarray) -> tuple[list[DiffRow], np.ndarray]:
    """Return the files that only one revision has, by chunk and path, and a mask of the files that both have."""
    # A file that a rollback returned has several rows, and each revision may have another of them.
    removed, added = before & ~after, after & ~before
    returned = columns.among(columns.paths(removed) & columns.paths(added))
    changes = [
        *_changes(columns.table, removed & ~returned, Change.REMOVED),
        *_changes(columns.table, added & ~returned, Change.ADDED),
    ]
    return sorted(changes, key=lambda row: (row.chunk, row.path)), after & ~(added & ~returned)


def _changes(table: pa.Table, rows: np.ndarray, change: Change) -> Iterator[DiffRow]:
    for row in table.filter(pa.array(rows)).select(["chunk", "schema", "table", "path", "rows", "bytes"]).to_pylist():
        counts = (1, row["rows"], row["bytes"])
        numbers = [number * (change is each) for number in counts for each in (Change.ADDED, Change.REMOVED)]
        yield DiffRow(Kind.FILE, change, row["chunk"], row["schema"], row["table"], row["path"], None, *numbers)


def _only(state: State, other: State) -> dict[int, act.Tombstone]:
    """Return the tombstones by revision that a state has and another one lacks."""
    return {at: each for at, each in state.tombstones.items() if other.tombstones.get(at) != each}


def _places(files: pa.Table, tombstones: Mapping[int, act.Tombstone]) -> set[_Place]:
    """Return the chunks and tables that tombstones apply to, without regard to statistics."""
    places = set()
    for revision, tombstone in tombstones.items():
        of_table = pc.and_(pc.equal(files["schema"], tombstone.schema), pc.equal(files["table"], tombstone.table))
        chunks = files.filter(pc.and_(of_table, pc.less(files["tombstones_through"], revision)))["chunk"]
        places |= {(chunk, tombstone.schema, tombstone.table) for chunk in pc.unique(chunks).to_pylist()}
    return places


def _chunks(files: list[DiffRow], deleted: set[_Place], undeleted: set[_Place]) -> list[DiffRow]:
    """Return the changes by chunk and table."""
    groups: dict[_Place, list[DiffRow]] = {place: [] for place in deleted | undeleted}
    for file in files:
        groups.setdefault((file.chunk, file.schema, file.table), []).append(file)
    rows = []
    for place, changed in sorted(groups.items(), key=itemgetter(0)):
        changes = {file.change for file in changed}
        change = changes.pop() if len(changes) == 1 else Change.REWRITTEN
        if not changed:
            change = Change.DELETED if place in deleted else Change.UNDELETED
        counts: dict[str, Any] = {name: sum(getattr(file, name) for file in changed) for name in _COUNTS}
        if place in undeleted:
            counts["rows_added"] = None
        if place in deleted:
            counts["rows_removed"] = None
        rows.append(DiffRow(Kind.CHUNK, change, *place, **counts))
    return rows


def _header(before: State, after: State) -> Iterator[DiffRow]:
    """Yield the header's changed fields, such as the end of its range."""
    old, new = (
        {"snapshot_id": each.snapshot_id} | ({} if each.header is None else vars(each.header))
        for each in (before, after)
    )
    for name in new:
        if old.get(name) != new[name]:
            detail = f"{name}: {_text(name, old.get(name))} → {_text(name, new[name])}"
            yield DiffRow(Kind.HEADER, Change.CHANGED, detail=detail)


def _text(name: str, value: object) -> str:
    if name in ("chunk_time_window", "grace") and isinstance(value, int):
        return duration_text(timedelta(microseconds=value))
    if isinstance(value, datetime):
        return time_text(value)
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return "none" if value in (None, "") else str(value)


def _schemas_and_tombstones(before: State, after: State) -> Iterator[DiffRow]:
    both = ((Change.REMOVED, before, after), (Change.ADDED, after, before))
    for change, state, other in both:
        for number in sorted(state.schemas):
            if other.schemas.get(number) != state.schemas[number]:
                yield DiffRow(Kind.SCHEMA, change, detail=str(number))
    for change, state, other in both:
        for revision, each in _only(state, other).items():
            detail = f"revision {revision}: {predicate_text(each.predicate)}"
            yield DiffRow(Kind.TOMBSTONE, change, schema=each.schema, table=each.table, detail=detail)
