"""Which files a restore loads, without which rows, and which of the target's rows belong to each chunk. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from snapshot_assets.catalog.state.file_pruning import deletions, written_schemas
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.databases.protocol.source import AllRows, Rows, TimelessRows, WindowRows
from snapshot_assets.databases.protocol.target import Reference
from snapshot_assets.databases.protocol.target import parents_first as tables_parents_first
from snapshot_assets.engine.files.read import TextOf, TextSchema
from snapshot_assets.engine.restore.settings import Filters
from snapshot_assets.engine.time_range import TimeFilter
from snapshot_assets.format.actions import DataFile, Tombstone
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.predicates import Predicate
from snapshot_assets.format.relations import Column, DatabaseSchema, Table, TableName
from snapshot_assets.format.units import time_text
from snapshot_assets.format.windows import TimeRange, Window

FileKey = tuple[TableName, str]
"""Identifies a file in the ledger: its table and its path."""


class TombstoneDeletions:
    """What tombstones delete of a revision's files. A tombstone that a file's statistics exclude deletes nothing of it.

    Args:
        state: The state at the restored revision.
        documents: Every schema that a file was written with, by id.
        before: Tombstones by number, for each revision that the target's ledger names; older or newer than this one.
    """

    def __init__(
        self,
        state: State,
        documents: Mapping[int, DatabaseSchema],
        before: Mapping[int, Mapping[int, Tombstone]],
    ) -> None:
        every = {number: each for some in (*before.values(), state.tombstones) for number, each in some.items()}
        names = {TableName(each.schema, each.table) for each in every.values()}
        self._deletions = {name: deletions(state, name, written_schemas(documents, name), every) for name in names}
        self._now = frozenset(state.tombstones)
        self._before = {revision: frozenset(some) for revision, some in before.items()} | {state.revision: self._now}

    def predicates(self, file: DataFile) -> tuple[Predicate, ...]:
        """Return the predicates of a file's deleted rows: a row of which one is true is not restored."""
        return tuple(predicate for number, predicate in self._of(file).items() if number in self._now)

    def differ(self, file: DataFile, revision: int | None) -> bool:
        """Return whether other tombstones apply to a file now than when it was loaded from another revision.

        The ledger may have lost that restore, so that its revision is None.
        """
        then = self._before.get(revision, frozenset()) if revision is not None else frozenset()
        applying = self._of(file).keys()
        return applying & then != applying & self._now

    def _of(self, file: DataFile) -> Mapping[int, Predicate]:
        found = self._deletions.get(TableName(file.schema, file.table))
        return found.predicates.get(file.path, {}) if found else {}


def tombstones_at(head: State, revisions: Iterable[int]) -> dict[int, Mapping[int, Tombstone]]:
    """Return the tombstones of older revisions, as the head's log has them; nothing where the log has no tombstone."""
    if not any(isinstance(action, Tombstone) for event in head.events for action in event.actions):
        return {}
    return {revision: head.without_files_at(revision).tombstones for revision in set(revisions)}


@dataclass(frozen=True)
class FilePlan:
    """One data file, and which of its rows are restored.

    Attributes:
        table: The table as the newest schema has it, with its name in the target.
        zone: IANA zone of times without one.
        cut: Time range that its rows are filtered by; None to restore them all.
        deleted: Predicates of tombstones: a row of which one is true is not restored.
        text: What a text file does not say about itself; None for Parquet.
    """

    file: DataFile
    table: Table
    zone: str = "UTC"
    cut: TimeFilter | None = None
    deleted: tuple[Predicate, ...] = ()
    text: TextSchema | None = None

    @property
    def source(self) -> TableName:
        """The table's name in the snapshot."""
        return TableName(self.file.schema, self.file.table)

    @property
    def key(self) -> FileKey:
        """What identifies the file in the ledger."""
        return self.table.table_name, self.file.path

    @property
    def whole(self) -> bool:
        """Whether all rows of the file are restored."""
        return self.cut is None and not self.deleted


@dataclass(frozen=True)
class ChunkFiles:
    """The files of one chunk that are restored.

    Attributes:
        files: Empty where the window has no row of the selected tables.
        tables: Each table, with the target's rows that belong to the chunk: a replace deletes these.
        without_files: The status of a chunk of which there is no file to restore; see `ChunkOutcome`.
    """

    chunk: int
    files: tuple[FilePlan, ...] = ()
    tables: tuple[tuple[Table, Rows], ...] = ()
    without_files: str = "empty"

    def without(self, absent: Collection[TableName]) -> ChunkFiles:
        """Return the chunk without the files and rows of some tables."""
        files = tuple(each for each in self.files if each.table.table_name not in absent)
        return replace(
            self,
            files=files,
            without_files=self.without_files if len(files) == len(self.files) else "incomplete",
            tables=tuple(each for each in self.tables if each[0].table_name not in absent),
        )

    @property
    def table_names(self) -> list[str]:
        """The names of its tables in the target."""
        names = {plan.table.table_name for plan in self.files} | {table.table_name for table, _ in self.tables}
        return [str(name) for name in sorted(names)]

    @property
    def unbounded(self) -> set[TableName]:
        """Tables without a time index in the target, whose rows cannot be assigned to this chunk.

        Such are tables that a user's own DataFrames made, and those whose times are text in another kind of database.
        """
        return {plan.table.table_name for plan in self.files} - {table.table_name for table, _ in self.tables}


def chunk_files(
    state: State,
    tables: Mapping[TableName, Table],
    filters: Filters,
    target_tables: Sequence[Table],
    deleted: TombstoneDeletions,
    text_of: TextOf,
) -> list[ChunkFiles]:
    """Return the files to load of each chunk, in order of chunks.

    A time range leaves untimed tables whole. Rows without a time lie in no range.

    Args:
        state: The state at the restored revision.
        tables: The selected tables, as the newest schema has them with their names in the target, by those that they
            have in the snapshot.
        filters: What restricts the restore.
        target_tables: The tables as the target will hold them; those that are left out are not loaded.
        deleted: What tombstones delete of the files.
        text_of: What text files do not say about themselves.
    """
    header = state.header
    assert header is not None
    time_range = None
    if filters.start is not None or filters.end is not None:
        time_range = TimeFilter(filters.start, filters.end, header.time_zone)
    timed = {table.table_name: table.time_index is not None for table in target_tables}
    windowed = {
        TableName(known.file.schema, known.file.table)
        for known in state.live_files()
        if known.file.chunk != UNTIMED_CHUNK
    }
    restored = {
        name: _RestoredTable(table, timed[table.table_name], name in windowed)
        for name, table in tables.items()
        if table.table_name in timed
    }
    chunks = []
    for chunk in sorted(state.chunks):
        window = state.window(chunk) if chunk != UNTIMED_CHUNK else None
        if window is None or time_range is None or time_range.overlaps(window.start, window.end):
            chunks.append(_chunk_files(state, restored, chunk, window, time_range, deleted, text_of))
    return chunks


@dataclass(frozen=True)
class _RestoredTable:
    """A table that is restored.

    Attributes:
        table: As the newest schema has it.
        timed: Whether the target's table has a time index too.
        windowed: Whether windows have rows of it.
    """

    table: Table
    timed: bool
    windowed: bool


def _chunk_files(
    state: State,
    restored: Mapping[TableName, _RestoredTable],
    chunk: int,
    window: Window | None,
    time_range: TimeFilter | None,
    deleted: TombstoneDeletions,
    text_of: TextOf,
) -> ChunkFiles:
    assert state.header is not None
    zone = state.header.time_zone
    rows = {name: _rows_of(each, window, zone, time_range) for name, each in restored.items()}
    covered = window is None or time_range is None or time_range.covers(window.start, window.end)
    files, live = [], list(state.live_files(chunk))
    for known in live:
        each = restored.get(TableName(known.file.schema, known.file.table))
        if each is None:
            continue
        has_time = each.table.time_index is not None
        if not (window is None and has_time and time_range is not None):
            cut = time_range if has_time and not covered else None
            gone = deleted.predicates(known.file)
            files.append(FilePlan(known.file, each.table, zone, cut, gone, text_of(known.file)))
    bounded = tuple((restored[name].table, which) for name, which in rows.items() if which is not None)
    return ChunkFiles(chunk, tuple(files), bounded, "left_out" if len(files) < len(live) else "empty")


def _rows_of(each: _RestoredTable, window: Window | None, zone: str, time_range: TimeFilter | None) -> Rows | None:
    """Return which of a table's rows belong to a chunk; None for none, or where they cannot be identified."""
    if not each.timed:
        return AllRows() if window is None and not each.windowed else None
    if window is not None:
        return WindowRows(window.start, window.end, zone)
    return None if time_range is not None else TimelessRows()


def parents_first(chunk: ChunkFiles) -> ChunkFiles:
    """Return a chunk whose files stand in the order of foreign keys, parents before children."""
    tables = {plan.table.table_name: plan.table for plan in chunk.files}
    references = []
    for name, table in tables.items():
        for key in table.foreign_keys:
            parent = key.referenced
            references.append(Reference(key.name, name, name, parent, parent, match=""))
    places = {name: place for place, name in enumerate(tables_parents_first(sorted(tables), references))}
    return replace(chunk, files=tuple(sorted(chunk.files, key=lambda plan: places[plan.table.table_name])))


def outside(state: State, filters: Filters) -> tuple[str, ...]:
    """Return warnings about the part of a time range of which a snapshot has no window; none without a range."""
    if filters.start is None and filters.end is None:
        return ()
    windows = sorted((state.window(chunk) for chunk in state.chunks if chunk != UNTIMED_CHUNK), key=lambda w: w.start)
    if not windows:
        return ("The snapshot has no windows: the time range selects no row of it, and tables without a time whole.",)
    start, end = filters.start or windows[0].start, filters.end or windows[-1].end
    gaps = list(_gaps(start, end, [TimeRange(window.start, window.end) for window in windows]))
    if not gaps:
        return ()
    has = f"it has rows from {time_text(windows[0].start)} to {time_text(windows[-1].end)}"
    if gaps == [TimeRange(start, end)]:
        return (f"The time range {_text(gaps[0])} lies outside the snapshot, so it selects no row with a time: {has}.",)
    parts = ", ".join(map(_text, gaps[:3])) + (f" and {len(gaps) - 3} more" if len(gaps) > 3 else "")
    return (f"The snapshot has no window for a part of the time range, {parts}: {has}.",)


def _gaps(start: datetime, end: datetime, covered: list[TimeRange]) -> Iterator[TimeRange]:
    """Yield the parts of a range that are not covered, which are in order."""
    for each in covered:
        if each.start >= end:
            break
        if each.start > start:
            yield TimeRange(start, each.start)
        start = max(start, each.end)
    if start < end:
        yield TimeRange(start, end)


def _text(span: TimeRange) -> str:
    return f"{time_text(span.start)}/{time_text(span.end)}"


def changed_carriers(written: DatabaseSchema, name: TableName, newest: Table) -> dict[str, Column]:
    """Return the columns, as they were when a file was written, whose carrier changed since, as plans may ask for."""
    try:
        old = {column.name: column for column in written.table(name).columns}
    except KeyError:
        return {}
    return {
        column.name: old[column.name]
        for column in newest.columns
        if column.name in old and old[column.name].carrier is not column.carrier
    }


def as_carried(target: Table, changed: Mapping[str, Column]) -> Table:
    """Return a target's table with some columns carried as in a file that was written with other carriers."""
    columns = [
        column.model_copy(update={"carrier": before.carrier, "arrow_type": before.arrow_type})
        if (before := changed.get(column.name))
        else column
        for column in target.columns
    ]
    return target.model_copy(update={"columns": tuple(columns)})
