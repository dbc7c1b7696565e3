"""What a restore does with each chunk, decided before anything is recorded or loaded: load, replace, renew, or nothing.

The windows give a chunk's number its meaning. So every restore records them, and other windows are refused.

A compaction writes the same rows into other files. Such rows need not be loaded again. They are known to be the same
if the chunk was exported before the revision that they were loaded from: then only compactions came after it.
Compactions and tombstones only remove rows, so the later rows are among the earlier ones; if there are as many, they
are the same. Every other chunk counts as changed, also one that was loaded from a newer revision than the restored one.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.databases.protocol.target import LoadedFile, RestoreRecord
from snapshot_assets.engine.restore.files import (
    ChunkFiles,
    FilePlan,
    TombstoneDeletions,
    as_carried,
    changed_carriers,
    parents_first,
)
from snapshot_assets.engine.restore.target import Renewal, TargetLedger
from snapshot_assets.errors import RestoreError
from snapshot_assets.format import actions as act
from snapshot_assets.format.documents import canonical_json
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import Table, TableName
from snapshot_assets.format.units import counted, duration_text, noun, number_text, parse_time, some_text, time_text
from snapshot_assets.format.windows import window_at

if TYPE_CHECKING:
    from snapshot_assets.engine.restore.plan import RestorePlan

_IMPORT_AGAIN = "Drop the tables, give --forget-ledger, and import again."


@dataclass(frozen=True)
class PinnedWindows:
    """The windows that a restore's chunks stand for.

    Attributes:
        start: Start of the first window; None if there are no windows.
        end: End of the last window, which may be shorter; None if it is open.
        zone: IANA zone of times without one.
        time_indexes: The time index of each table; None for an untimed table.
    """

    start: datetime | None
    length: timedelta
    end: datetime | None
    zone: str
    time_indexes: Mapping[TableName, str | None]

    @classmethod
    def of(cls, state: State, tables: Sequence[Table]) -> PinnedWindows:
        """Return the windows of a revision, with its selected tables by their names in the target."""
        header = state.header
        assert header is not None
        indexes = {table.table_name: table.time_index for table in tables}
        length = timedelta(microseconds=header.chunk_time_window)
        return cls(header.start, length, header.end, header.time_zone, indexes)

    @classmethod
    def parse(cls, text: str) -> PinnedWindows:
        """Return the windows that `text` wrote."""
        values = json.loads(text)
        start, end = (parse_time(values[name]) if values[name] else None for name in ("start", "end"))
        indexes = {TableName(schema, table): column for schema, table, column in values["time_indexes"]}
        return cls(start, timedelta(microseconds=values["length"]), end, values["zone"], indexes)

    def text(self) -> str:
        """Return the windows as canonical JSON, as the ledger holds them."""
        values = {
            "start": time_text(self.start) if self.start else None,
            "length": self.length // timedelta(microseconds=1),
            "end": time_text(self.end) if self.end else None,
            "zone": self.zone,
            "time_indexes": [[*name, column] for name, column in sorted(self.time_indexes.items())],
        }
        return canonical_json(values).decode()

    def __str__(self) -> str:
        """Return the windows for a message."""
        if self.start is None:
            return "no windows"
        return (
            f"windows of {duration_text(self.length)} from {time_text(self.start)} (times without a zone: {self.zone})"
        )


def check_windows(ledger: TargetLedger, now: PinnedWindows, chunks: Collection[int], revision: int) -> None:
    """Refuse a revision whose chunks stand for other windows than those that were loaded into the target.

    Raises:
        RestoreError: A chunk's number would mean other rows (names both windows, or both time indexes), or the target
            holds rows of chunks that the revision lacks.
    """
    by_id = {record.id: record for record in ledger.earlier}
    tables: dict[str, dict[int, set[TableName]]] = {}
    for entry in ledger.loaded:
        tables.setdefault(entry.import_id, {}).setdefault(entry.chunk, set()).add(entry.table)
    windows = {import_id: _windows_of(by_id.get(import_id), import_id) for import_id in sorted(tables)}
    for import_id, before in windows.items():
        _check_time_indexes(set().union(*tables[import_id].values()), before, now, revision)
        timed = set(tables[import_id]) != {UNTIMED_CHUNK}
        if timed and (now.start, now.length, now.zone) != (before.start, before.length, before.zone):
            raise RestoreError(
                f"The target's rows were loaded in {before}; revision {revision} has {now}, so its chunks are not"
                f" those that the target holds. {_IMPORT_AGAIN}",
                revision=revision,
            )
    if outside := [entry for entry in ledger.loaded if entry.chunk not in chunks]:
        names, left = sorted({str(each.table) for each in outside}), sorted({each.chunk for each in outside})
        raise RestoreError(
            f"{some_text(names)} in the target {noun(len(names), 'holds', 'hold')} rows of {numbered(left)}, which"
            f" revision {revision} does not have: they would be left over. Import a revision that has them. Or:"
            f" {_IMPORT_AGAIN[0].lower()}{_IMPORT_AGAIN[1:]}",
            chunks=left,
        )
    for import_id, before in windows.items():
        for chunk in sorted(set(tables[import_id]) - {UNTIMED_CHUNK}):
            _check_end(chunk, before, now, revision)


def _windows_of(record: RestoreRecord | None, import_id: str) -> PinnedWindows:
    if record is None or not record.windows:
        raise RestoreError(
            f"The target's ledger does not record the windows of import {import_id}, so its chunks cannot be compared"
            f" with those of another revision: an earlier version of this program recorded it. {_IMPORT_AGAIN}",
            import_id=import_id,
        )
    return PinnedWindows.parse(record.windows)


def _check_time_indexes(tables: set[TableName], before: PinnedWindows, now: PinnedWindows, revision: int) -> None:
    for name in sorted(tables):
        old, new = before.time_indexes.get(name), now.time_indexes.get(name)
        if old != new:
            raise RestoreError(
                f"The rows of {name} were loaded with the time index {old or 'none'}, which is now {new or 'none'} at"
                f" revision {revision}: other rows lie in each chunk. {_IMPORT_AGAIN}",
                table=table_text(name),
            )


def _check_end(chunk: int, before: PinnedWindows, now: PinnedWindows, revision: int) -> None:
    assert before.start is not None
    assert now.start is not None
    old = window_at(before.start, before.length, chunk, end=before.end).end
    new = window_at(now.start, now.length, chunk, end=now.end).end
    if old > new:
        raise RestoreError(
            f"Chunk {chunk} was loaded up to {time_text(old)}; at revision {revision} it ends at {time_text(new)}, so"
            f" the rows between would be left over. {_IMPORT_AGAIN}",
            chunk=chunk,
        )


def numbered(chunks: Sequence[int]) -> str:
    """Return chunk ids for a message."""
    return f"{noun(len(chunks), 'chunk')} {', '.join(map(str, chunks))}"


_OTHER_ROWS = (act.Begin, act.SchemaAdded, act.Rebuilt, act.Rollback)


@dataclass(frozen=True)
class ChunkLoad:
    """What is done with one chunk.

    Attributes:
        plans: The files to load.
        replace: Delete the chunk's rows first.
        renewal: The ledger rows to replace first, without touching table rows; None for none.
        left: Files that are left out, because they or others of their table and chunk are damaged.
    """

    chunk: ChunkFiles
    plans: tuple[FilePlan, ...]
    replace: bool = False
    renewal: Renewal | None = None
    left: tuple[FilePlan, ...] = ()

    def without(self, damaged: Collection[str]) -> ChunkLoad:
        """Return the load without the tables of damaged files, whose rows in the target then stay as they are."""
        tables = {plan.table.table_name for plan in self.plans if plan.file.path in damaged}
        if not tables:
            return self
        chunk = self.chunk.without(tables)
        whole = tuple(plan for plan in self.plans if plan.table.table_name not in tables)
        left = (*self.left, *(plan for plan in self.plans if plan.table.table_name in tables))
        return dataclasses.replace(
            self, chunk=chunk, plans=whole, replace=self.replace and bool(chunk.tables), left=left
        )

    @property
    def counted(self) -> bool:
        """Whether people count the chunk: each is counted, except chunk 0 if it is empty and nothing is replaced."""
        return self.chunk.chunk != UNTIMED_CHUNK or bool(self.chunk.files) or self.replace

    @property
    def bytes(self) -> int:
        """Bytes of the files to load."""
        return sum(plan.file.bytes for plan in self.plans)


def entry_of(plan: FilePlan, record: RestoreRecord, rows: int = 0) -> LoadedFile:
    """Return the ledger row of a file that a restore loads."""
    name, path = plan.key
    return LoadedFile(record.location_id, name, path, plan.file.chunk, plan.file.sha256, record.id, rows)


@dataclass(frozen=True)
class ChunkChange:
    """How a chunk's rows differ from those that were loaded.

    Attributes:
        reason: The difference, as the end of a sentence; "" if the rows are the same, or none were loaded.
        tables: The tables whose rows differ, or lie in other files now.
        renewal: See `ChunkLoad`.
    """

    reason: str = ""
    tables: frozenset[TableName] = frozenset()
    renewal: Renewal | None = None


@dataclass(frozen=True)
class ChunkChanges:
    """Compares chunks of the restored revision with their rows in a target's ledger; see `RestorePlan`."""

    head: State
    state: State
    ledger: TargetLedger
    deleted: TombstoneDeletions
    record: RestoreRecord

    def of(self, chunk: ChunkFiles) -> ChunkChange:
        """Return how a chunk's rows differ from those that were loaded."""
        loaded = self.ledger.by_chunk.get(chunk.chunk, frozenset())
        current = {plan.key for plan in chunk.files}
        moved = {table for table, _ in loaded - current}
        if outdated := {plan.key[0] for plan in chunk.files if plan.key in loaded and self._is_outdated(plan)}:
            why = f"was loaded when other rows of {_table_names(outdated)} were deleted"
            return ChunkChange(why, frozenset(outdated | moved))
        if not moved:
            return ChunkChange()
        old = [self.ledger.files[key] for key in sorted(loaded) if key[0] in moved]
        new = [plan for plan in chunk.files if plan.table.table_name in moved]
        reason = self._not_the_same(chunk.chunk, sorted(moved), old, new)
        if reason is not None:
            return ChunkChange(f"was loaded from other files of {_table_names(moved)}{reason}", frozenset(moved))
        entries = tuple(entry_of(plan, self.record, plan.file.rows) for plan in new)
        return ChunkChange("", frozenset(moved), Renewal(tuple(old), entries))

    def _is_outdated(self, plan: FilePlan) -> bool:
        """Return whether a file was loaded without rows that are live now, or with rows that are deleted now."""
        entry = self.ledger.files[plan.key]
        fewer = plan.whole and entry.rows != plan.file.rows  # also where the log lost the tombstone that deleted them
        return fewer or self.deleted.differ(plan.file, self.ledger.revisions.get(entry.import_id))

    def _not_the_same(
        self, chunk: int, moved: Iterable[TableName], old: list[LoadedFile], new: list[FilePlan]
    ) -> str | None:
        """Return why the rows of some tables may not be the same, as the end of a sentence; None if they are."""
        finished = {record.id: record.revision for record in self.ledger.earlier if record.finished}
        revisions = {finished.get(entry.import_id) for entry in old}
        compacted = self._only_compacted(chunk, {revision for revision in revisions if revision is not None})
        if compacted is None:
            return ""
        # An unfinished restore may have loaded only some of a chunk's files.
        if not compacted or None in revisions or not all(plan.whole for plan in new):
            return " (they were compacted, and nothing proves that they hold the same rows)"
        different = []
        for table in moved:
            there = sum(entry.rows for entry in old if entry.table == table)
            here = sum(plan.file.rows for plan in new if plan.table.table_name == table)
            if there != here:
                rows = counted(there, "row")
                different.append(f"the target has {rows} of {table}, this revision {number_text(here)}")
        return f" (compactions left out rows: {' and '.join(different)})" if different else None

    def _only_compacted(self, chunk: int, revisions: set[int]) -> bool | None:
        """Return whether only compactions changed a chunk since its rows were loaded; None if none is recorded."""
        known = self.state.chunks.get(chunk)
        if known is None or not known.chunk.exported:
            return None
        if not revisions or max(revisions) > self.state.revision:
            return False
        first = min(revisions)
        if any(first < revision <= self.state.revision for revision in self._other_rows):
            return False
        return known.exported <= first and self.head.rolled_back <= first

    @cached_property
    def _other_rows(self) -> list[int]:
        """The revisions after which any chunk may have rows or columns that it did not have before."""
        events = self.head.events
        return [each.revision for each in events if any(isinstance(action, _OTHER_ROWS) for action in each.actions)]


def decide(chunk: ChunkFiles, changes: ChunkChanges, *, again: bool, replace: bool) -> ChunkLoad:
    """Decide what a restore does with a chunk.

    A changed chunk is replaced; of any other, the files are loaded that the ledger lacks. If the same rows lie in other
    files now, only ledger rows are replaced.

    Args:
        chunk: The chunk, without tables that could not be made.
        changes: Compares it with what was loaded before.
        again: Whether to replace it, whatever the ledger lists.
        replace: Whether the user lets changed chunks be replaced.

    Raises:
        RestoreError: It changed, and replacing it is not allowed, or its rows cannot be identified.
    """
    change = changes.of(chunk)
    if change.renewal is not None and not again:
        renewed = changes.ledger.renewed([change.renewal])
        return ChunkLoad(chunk, renewed.missing(chunk), renewal=change.renewal)
    ordered = parents_first(chunk)
    if again or change.reason:
        _check_replaceable(chunk, change, allowed=again or replace, into_nonempty=changes.record.into_nonempty)
        return ChunkLoad(ordered, ordered.files, replace=True)
    return ChunkLoad(chunk, changes.ledger.missing(ordered))


def _check_replaceable(chunk: ChunkFiles, change: ChunkChange, *, allowed: bool, into_nonempty: bool) -> None:
    if not allowed:
        raise RestoreError(
            f"Chunk {chunk.chunk} {change.reason}, at another revision. Give --replace to delete its rows from the"
            " target and load those of this revision.",
            chunk=chunk.chunk,
        )
    if into_nonempty:
        raise RestoreError(
            f"Chunk {chunk.chunk} cannot be replaced in {some_text(chunk.table_names)}: tables held rows of others"
            " before an import (--into-nonempty), and deleting the chunk's window would delete those too.",
            chunk=chunk.chunk,
        )
    if chunk.unbounded:
        names = ", ".join(sorted(map(str, chunk.unbounded)))
        raise RestoreError(
            f"Chunk {chunk.chunk} cannot be replaced: {names} has no time index, so its rows of this window cannot"
            " be identified. Drop the tables, give --forget-ledger, and import them again.",
            chunk=chunk.chunk,
        )


def check_files(plan: RestorePlan) -> None:
    """Check that the target can read the columns of the files to load, and filter their rows, without reading them.

    Raises:
        RestoreError: The target cannot read a column's carrier; names file and columns.
        PlanError: Rows are to be filtered by a time that is carried as text.
    """
    checked = set()
    for file in (file for load in plan.loads for file in load.plans):
        name = file.table.table_name
        kind = (file.file.schema_id, name, file.cut)
        if kind in checked:
            continue
        checked.add(kind)
        written = plan.source.documents[file.file.schema_id]
        changed = changed_carriers(written, file.source, file.table)
        if changed and not plan.same_kind:
            raise RestoreError(
                f"{file.file.path} carries {', '.join(sorted(changed))} of {name} otherwise than the snapshot's newest"
                f" schema, and only a {written.database} database can read both. Restore into one.",
                object=file.file.path,
            )
        if file.cut is not None:
            table = as_carried(plan.tables[name], changed)
            file.cut.filter(pa.RecordBatch.from_pylist([], table.arrow_schema()), table)


def _table_names(tables: Iterable[TableName]) -> str:
    return some_text([str(table) for table in sorted(tables)])
