"""Whether a chunk's rows changed since they were loaded into a target.

A compaction writes the same rows into other files. Such rows need not be loaded again. They are known to be the same
if the chunk was exported before the revision that they were loaded from: then only compactions came after it.
Compactions and tombstones only remove rows, so the later rows are among the earlier ones; if there are as many, they
are the same. Every other chunk counts as changed, also one that was loaded from a newer revision than the restored one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.databases.target import LoadedFile, RestoreRecord
from snapshot_assets.engine.restore.files import ChunkFiles, FilePlan, TombstoneDeletions
from snapshot_assets.engine.restore.ledger import Renewal, TargetLedger
from snapshot_assets.format import actions as act
from snapshot_assets.format.counts import counted, number_text, some_text
from snapshot_assets.format.relations import TableName

_OTHER_ROWS = (act.Begin, act.SchemaAdded, act.Rebuilt, act.Rollback)


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
        renewal: The ledger rows to replace, where the same rows lie in other files now; None for none.
    """

    reason: str = ""
    tables: frozenset[TableName] = frozenset()
    renewal: Renewal | None = None


@dataclass(frozen=True)
class ChunkChanges:
    """Compares chunks of the restored revision with their rows in a target's ledger.

    Attributes:
        head: The newest state.
        state: The state at the restored revision.
        deleted: What tombstones delete, at this revision and at those of the ledger.
        record: The restore that the comparison is for.
    """

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
        if outdated := {plan.key[0] for plan in chunk.files if plan.key in loaded and self._outdated(plan)}:
            why = f"was loaded when other rows of {_named(outdated)} were deleted"
            return ChunkChange(why, frozenset(outdated | moved))
        if not moved:
            return ChunkChange()
        old = [self.ledger.files[key] for key in sorted(loaded) if key[0] in moved]
        new = [plan for plan in chunk.files if plan.table.table_name in moved]
        reason = self._not_the_same(chunk.chunk, sorted(moved), old, new)
        if reason is not None:
            return ChunkChange(f"was loaded from other files of {_named(moved)}{reason}", frozenset(moved))
        entries = tuple(entry_of(plan, self.record, plan.file.rows) for plan in new)
        return ChunkChange("", frozenset(moved), Renewal(tuple(old), entries))

    def _outdated(self, plan: FilePlan) -> bool:
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
        compacted = self._compacted(chunk, {revision for revision in revisions if revision is not None})
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

    def _compacted(self, chunk: int, revisions: set[int]) -> bool | None:
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


def _named(tables: Iterable[TableName]) -> str:
    return some_text([str(table) for table in sorted(tables)])
