"""What changed between two versions: files and chunks, rows that tombstones delete, schemas, the snapshot's range."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.format import actions as act
from snapshot_assets.format.predicate_text import predicate_text
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.units import duration_text, time_text

_WINDOWS = ("chunk_time_window", "grace")
_Place = tuple[int, TableName]
_Places = set[_Place]


class Kind(StrEnum):
    """What a row of a difference is about."""

    HEADER = "header"
    SCHEMA = "schema"
    TOMBSTONE = "tombstone"
    CHUNK = "chunk"
    FILE = "file"


class Change(StrEnum):
    """What happened to it."""

    ADDED = "added"
    REMOVED = "removed"
    REWRITTEN = "rewritten"
    DELETED = "deleted"
    UNDELETED = "undeleted"
    CHANGED = "changed"


@dataclass(frozen=True)
class DiffRow:
    """One thing that changed; the columns of `$diff`.

    Attributes:
        kind: What it is. A chunk's row counts the same files as those of its files.
        change: A file is `added` or `removed`. A chunk is that, or `rewritten` where files went and others came; where
            no file did, `deleted` if tombstones delete rows of it now, `undeleted` if they do no longer.
        chunk: Of a chunk or file.
        schema: Of a tombstone, chunk or file; None of a chunk that no table has files in.
        table: Likewise.
        path: Of a file.
        detail: Of the header what it says; of a schema its id; of a tombstone its revision and predicate; of a chunk
            that no table has files in, its status.
        rows_added: Rows of the files that came; None, for unknown, of a chunk where tombstones are undone.
        rows_removed: Rows of the files that went; None of a chunk where tombstones delete rows of the others.
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


@dataclass(frozen=True)
class Difference:
    """All that changed from one revision to another.

    Attributes:
        rows: By kind; chunks by number and table, those without files last; files by chunk and path. None only if
            both have the same tombstones and the same snapshot checksum.
    """

    first: int
    second: int
    rows: tuple[DiffRow, ...]

    def of(self, kind: Kind) -> list[DiffRow]:
        """Return the rows of one kind."""
        return [row for row in self.rows if row.kind is kind]


def difference(state: State, first: int, second: int) -> Difference:
    """Return what changed from one revision to another.

    Args:
        state: The head's state.
        first: A readable revision, or the head.
        second: Another one, before it or after it.
    """
    before, after = (state if each == state.revision else state.without_files_at(each) for each in (first, second))
    table = state.files.merged().table
    files, kept = _files(table, _there(table, first), _there(table, second))
    chunks = _chunks(files, _touched(table.filter(pa.array(kept)), before, after))
    told = {row.chunk for row in chunks}
    chunks += [row for row in _statuses(before, after) if row.chunk not in told]
    rows = (*_header(before, after), *_schemas(before, after), *_tombstones(before, after), *chunks, *files)
    return Difference(first, second, rows or tuple(_checksums(state, first, second)))


def _there(table: pa.Table, revision: int) -> np.ndarray:
    added, removed = np.asarray(table["added"]), np.asarray(table["removed"])
    return np.asarray((added <= revision) & ((removed == 0) | (removed > revision)))


def _files(table: pa.Table, before: np.ndarray, after: np.ndarray) -> tuple[list[DiffRow], np.ndarray]:
    """Return the files that only one revision has, by chunk and path, and which rows of a table are files of both.

    A file that went and came back has several rows, of which each revision may have another.
    """
    went, came = before & ~after, after & ~before
    again = pa.array(sorted(_paths(table, went) & _paths(table, came)), pa.string())
    twice = pc.is_in(table["path"], again).to_numpy(zero_copy_only=False)
    changes = [*_changes(table, went & ~twice, Change.REMOVED), *_changes(table, came & ~twice, Change.ADDED)]
    return sorted(changes, key=lambda row: (row.chunk, row.path)), after & ~(came & ~twice)


def _paths(table: pa.Table, rows: np.ndarray) -> set[str]:
    return set(table.filter(pa.array(rows))["path"].to_pylist())


def _changes(table: pa.Table, rows: np.ndarray, change: Change) -> Iterator[DiffRow]:
    for row in table.filter(pa.array(rows)).select(["chunk", "schema", "table", "path", "rows", "bytes"]).to_pylist():
        counts = (1, row["rows"], row["bytes"])
        numbers = [number * (change is each) for number in counts for each in (Change.ADDED, Change.REMOVED)]
        yield DiffRow(Kind.FILE, change, row["chunk"], row["schema"], row["table"], row["path"], None, *numbers)


def _touched(kept: pa.Table, before: State, after: State) -> dict[Change, _Places]:
    """Return the chunks and tables with files, here and there, of which tombstones delete rows in one version only.

    Statistics are not looked at, as for what is pending (see `pending_tombstones`).
    """
    found: dict[Change, _Places] = {Change.DELETED: set(), Change.UNDELETED: set()}
    for change, tombstones in ((Change.DELETED, _only(after, before)), (Change.UNDELETED, _only(before, after))):
        for revision, tombstone in tombstones.items():
            of_table = pc.and_(pc.equal(kept["schema"], tombstone.schema), pc.equal(kept["table"], tombstone.table))
            chunks = pc.unique(kept.filter(pc.and_(of_table, pc.less(kept["tombstones_through"], revision)))["chunk"])
            found[change] |= {(chunk, TableName(tombstone.schema, tombstone.table)) for chunk in chunks.to_pylist()}
    return found


def _only(state: State, other: State) -> dict[int, act.Tombstone]:
    """Return the tombstones by revision that a state has and another one lacks."""
    return {at: each for at, each in state.tombstones.items() if other.tombstones.get(at) != each}


def _chunks(files: list[DiffRow], touched: Mapping[Change, _Places]) -> list[DiffRow]:
    """Return what changed by chunk and table."""
    groups: dict[_Place, list[DiffRow]] = {place: [] for places in touched.values() for place in places}
    for file in files:
        groups.setdefault(_place(file), []).append(file)
    deleted, undeleted = touched[Change.DELETED], touched[Change.UNDELETED]
    return [_chunk(place, groups[place], place in deleted, place in undeleted) for place in sorted(groups)]


def _place(file: DiffRow) -> _Place:
    assert file.chunk is not None
    assert file.schema is not None
    assert file.table is not None
    return file.chunk, TableName(file.schema, file.table)


def _chunk(place: _Place, files: list[DiffRow], deleted: bool, undeleted: bool) -> DiffRow:
    changes = {file.change for file in files}
    without_files = Change.DELETED if deleted else Change.UNDELETED
    change = Change.REWRITTEN if len(changes) > 1 else changes.pop() if changes else without_files
    chunk, (schema, table) = place
    return DiffRow(
        Kind.CHUNK,
        change,
        chunk,
        schema,
        table,
        files_added=_sum(files, "files_added"),
        files_removed=_sum(files, "files_removed"),
        rows_added=None if undeleted else _sum(files, "rows_added"),
        rows_removed=None if deleted else _sum(files, "rows_removed"),
        bytes_added=_sum(files, "bytes_added"),
        bytes_removed=_sum(files, "bytes_removed"),
    )


def _sum(files: list[DiffRow], name: str) -> int:
    return sum(getattr(file, name) for file in files)


def _statuses(before: State, after: State) -> Iterator[DiffRow]:
    """Yield the chunks that are completed in one version only."""
    for number in sorted({*before.chunks, *after.chunks}):
        if before.completed(number) != after.completed(number):
            change = Change.ADDED if after.completed(number) else Change.REMOVED
            detail = f"{before.status(number).value} → {after.status(number).value}"
            yield DiffRow(Kind.CHUNK, change, number, None, None, None, detail, 0, 0, 0, 0, 0, 0)


def _header(before: State, after: State) -> Iterator[DiffRow]:
    """Yield what the snapshot's header says otherwise, such as the end of its range."""
    said, says = ({"snapshot_id": state.snapshot_id} | _vars(state.header) for state in (before, after))
    for name in says:
        if said.get(name) != says[name]:
            yield _changed(name, _text(name, said.get(name)), _text(name, says[name]))


def _vars(header: act.Header | None) -> dict[str, object]:
    return {} if header is None else vars(header)


def _changed(name: str, old: str, new: str) -> DiffRow:
    return DiffRow(Kind.HEADER, Change.CHANGED, detail=f"{name}: {old} → {new}")


def _text(name: str, value: object) -> str:
    if name in _WINDOWS and isinstance(value, int):
        return duration_text(timedelta(microseconds=value))
    if isinstance(value, datetime):
        return time_text(value)
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return "none" if value in (None, "") else str(value)


def _schemas(before: State, after: State) -> Iterator[DiffRow]:
    for change, state, other in ((Change.REMOVED, before, after), (Change.ADDED, after, before)):
        for number in sorted(state.schemas):
            if other.schemas.get(number) != state.schemas[number]:
                yield DiffRow(Kind.SCHEMA, change, detail=str(number))


def _tombstones(before: State, after: State) -> Iterator[DiffRow]:
    for change, state, other in ((Change.REMOVED, before, after), (Change.ADDED, after, before)):
        for revision, each in _only(state, other).items():
            detail = f"revision {revision}: {predicate_text(each.predicate)}"
            yield DiffRow(Kind.TOMBSTONE, change, schema=each.schema, table=each.table, detail=detail)


def _checksums(state: State, first: int, second: int) -> Iterator[DiffRow]:
    """Yield that the snapshot checksums differ, where nothing else tells two versions apart."""
    old, new = (_checksum(state, revision) for revision in (first, second))
    if old != new:
        yield _changed("checksum", old, new)


def _checksum(state: State, revision: int) -> str:
    if revision == state.revision and not state.sealed:
        return "none, not sealed"
    return next(known.seal.checksum for known in reversed(state.seals) if known.revision <= revision)
