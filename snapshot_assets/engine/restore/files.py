"""Which files a restore loads, without which rows, and which of the target's rows belong to each chunk. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from snapshot_assets.catalog.state.file_pruning import deletions, written_schemas
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.databases.protocol.source import AllRows, Rows, TimelessRows, WindowRows
from snapshot_assets.databases.protocol.target import Reference, parents_first
from snapshot_assets.engine.files.read import TextSchema, text_schemas
from snapshot_assets.engine.restore.settings import Filters
from snapshot_assets.engine.restore.source import RestoreSource
from snapshot_assets.engine.time_range import TimeFilter
from snapshot_assets.format.actions import DataFile, Tombstone
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.predicates import Predicate
from snapshot_assets.format.relations import Column, DatabaseSchema, Table, TableName
from snapshot_assets.format.units import time_text
from snapshot_assets.format.windows import TimeRange

if TYPE_CHECKING:
    from snapshot_assets.engine.restore.target import TargetLedger

FileKey = tuple[TableName, str]
"""Identifies a file in the ledger: its table and its path."""


class TombstoneDeletions:
    """What tombstones delete of a revision's files. A tombstone that a file's statistics exclude deletes nothing of it.

    Args:
        source: The restored revision.
        ledger: The target's ledger, for the tombstones of the revisions that it names, older or newer than this one.
    """

    def __init__(self, source: RestoreSource, ledger: TargetLedger) -> None:
        state, own = source.state, source.head.location_id
        before = tombstones_at(source.head, [each.revision for each in ledger.records if each.location_id == own])
        every = {number: each for some in (*before.values(), state.tombstones) for number, each in some.items()}
        names = {TableName(each.schema, each.table) for each in every.values()}
        documents = source.documents
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


def chunk_files(
    source: RestoreSource, target_tables: Sequence[Table], deleted: TombstoneDeletions
) -> tuple[ChunkFiles, ...]:
    """Return the files to load of each chunk, in order of chunks; parents stand before children.

    A time range leaves untimed tables whole. Rows without a time lie in no range. Only tables of `target_tables`, as
    the target will hold them, are loaded.
    """
    state, filters, header = source.state, source.filters, source.state.header
    assert header is not None
    zone, time_range = header.time_zone, None
    if filters.start is not None or filters.end is not None:
        time_range = TimeFilter(filters.start, filters.end, zone)
    target = {table.table_name: table for table in target_tables}
    names = (table.table_name for table in source.schema.tables)
    restored = {name: table for name, table in zip(names, source.tables, strict=True) if table.table_name in target}
    timed = {name for name, table in restored.items() if target[table.table_name].time_index is not None}
    windowed = {
        TableName(each.file.schema, each.file.table) for each in state.live_files() if each.file.chunk != UNTIMED_CHUNK
    }
    text_of = text_schemas(header, source.documents)
    chunks = []
    for chunk in sorted(state.chunks):
        window = state.window(chunk) if chunk != UNTIMED_CHUNK else None
        if window is not None and time_range is not None and not time_range.overlaps(window.start, window.end):
            continue
        rows: dict[TableName, Rows]
        if window is not None:
            rows = dict.fromkeys(timed, WindowRows(window.start, window.end, zone))
        else:
            # A table without a time index does not show which of its rows belong to windows, and which to this chunk.
            rows = dict.fromkeys(restored.keys() - timed - windowed, AllRows())
            rows |= dict.fromkeys(timed if time_range is None else (), TimelessRows())
        covered = window is None or time_range is None or time_range.covers(window.start, window.end)
        files, live = [], [each.file for each in state.live_files(chunk)]
        for file in live:
            table = restored.get(TableName(file.schema, file.table))
            in_time = table is not None and table.time_index is not None
            if table is None or (window is None and in_time and time_range is not None):
                continue
            cut = time_range if in_time and not covered else None
            text = text_of(file) if file.schema_id in source.documents else None  # one whose schema is damaged: unread
            files.append(FilePlan(file, table, zone, cut, deleted.predicates(file), text))
        bounded = tuple((table, rows[name]) for name, table in restored.items() if name in rows)
        without_files = "left_out" if len(files) < len(live) else "empty"
        chunks.append(ChunkFiles(chunk, _parents_first(files), bounded, without_files))
    return tuple(chunks)


def _parents_first(files: Sequence[FilePlan]) -> tuple[FilePlan, ...]:
    """Return the files of a chunk in the order of foreign keys, in which tables accept their rows."""
    tables = {plan.table.table_name: plan.table for plan in files}
    references = [
        Reference(key.name, name, name, key.referenced, key.referenced, match="")
        for name, table in tables.items()
        for key in table.foreign_keys
    ]
    places = {name: place for place, name in enumerate(parents_first(sorted(tables), references))}
    return tuple(sorted(files, key=lambda plan: places[plan.table.table_name]))


def outside(state: State, filters: Filters) -> tuple[str, ...]:
    """Return warnings about the part of a time range of which a snapshot has no window; none without a range."""
    if filters.start is None and filters.end is None:
        return ()
    windows = sorted((state.window(chunk) for chunk in state.chunks if chunk != UNTIMED_CHUNK), key=lambda w: w.start)
    if not windows:
        return ("The snapshot has no windows: the time range selects no row of it, and tables without a time whole.",)
    start, end = filters.start or windows[0].start, filters.end or windows[-1].end
    gaps, reached = list[TimeRange](), start
    for window in windows:
        if window.start >= end:
            break
        if window.start > reached:
            gaps.append(TimeRange(reached, window.start))
        reached = max(reached, window.end)
    if reached < end:
        gaps.append(TimeRange(reached, end))
    if not gaps:
        return ()
    has = f"it has rows from {time_text(windows[0].start)} to {time_text(windows[-1].end)}"
    texts = [f"{time_text(gap.start)}/{time_text(gap.end)}" for gap in gaps]
    if gaps == [TimeRange(start, end)]:
        return (f"The time range {texts[0]} lies outside the snapshot, so it selects no row with a time: {has}.",)
    parts = ", ".join(texts[:3]) + (f" and {len(gaps) - 3} more" if len(gaps) > 3 else "")
    return (f"The snapshot has no window for a part of the time range, {parts}: {has}.",)


def changed_carriers(documents: Mapping[int, DatabaseSchema], plan: FilePlan) -> dict[str, Column]:
    """Return the columns, as they were when a file was written, whose carrier changed since, as plans may ask for."""
    document = documents[plan.file.schema_id]
    try:
        written = document.table(TableName(plan.file.schema, plan.file.table))
    except KeyError:  # an older schema without the table
        return {}
    old = {column.name: column for column in written.columns}
    return {
        column.name: old[column.name]
        for column in plan.table.columns
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
