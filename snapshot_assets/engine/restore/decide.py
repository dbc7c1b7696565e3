"""What a restore does with each chunk, decided before anything is recorded or loaded: load, replace, renew, or nothing.

A compaction writes the same rows into other files. Such rows need not be loaded again. They are known to be the same
if the chunk was exported before the revision that they were loaded from: then only compactions came after it.
Compactions and tombstones only remove rows, so the later rows are among the earlier ones; if there are as many, they
are the same. Every other chunk counts as changed, also one that was loaded from a newer revision than the restored one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from snapshot_assets.databases.protocol.target import LoadedFile, RestoreRecord
from snapshot_assets.engine.restore.files import ChunkFiles, FilePlan, changed_carriers
from snapshot_assets.engine.restore.target import Renewal
from snapshot_assets.errors import RestoreError
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.units import counted, number_text, some_text

if TYPE_CHECKING:
    from snapshot_assets.engine.restore.plan import RestorePlan


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


def change_of(plan: RestorePlan, chunk: ChunkFiles) -> ChunkChange:
    """Return how a chunk's rows at the restored revision differ from those that the target's ledger lists."""
    ledger = plan.ledger
    loaded = ledger.by_chunk.get(chunk.chunk, frozenset())
    moved = {table for table, _ in loaded - {each.key for each in chunk.files}}
    outdated = set()  # tables with files that were loaded without rows that are live now, or with deleted ones
    for file in chunk.files:
        if file.key in loaded:
            entry = ledger.files[file.key]
            fewer = file.whole and entry.rows != file.file.rows  # also where the log lost a tombstone
            if fewer or plan.deleted.differ(file.file, ledger.revisions.get(entry.import_id)):
                outdated.add(file.table.table_name)
    if outdated:
        why = f"was loaded when other rows of {_table_names(outdated)} were deleted"
        return ChunkChange(why, frozenset(outdated | moved))
    if not moved:
        return ChunkChange()
    old = [ledger.files[key] for key in sorted(loaded) if key[0] in moved]
    new = [file for file in chunk.files if file.table.table_name in moved]
    reason = _not_the_same(plan, chunk.chunk, sorted(moved), old, new)
    if reason is not None:
        return ChunkChange(f"was loaded from other files of {_table_names(moved)}{reason}", frozenset(moved))
    entries = tuple(entry_of(file, plan.record, file.file.rows) for file in new)
    return ChunkChange("", frozenset(moved), Renewal(tuple(old), entries))


def _not_the_same(
    plan: RestorePlan, chunk: int, moved: Iterable[TableName], old: Sequence[LoadedFile], new: Sequence[FilePlan]
) -> str | None:
    """Return why the rows of some tables may not be the same, as the end of a sentence; None if they are."""
    known, restored = plan.state.chunks.get(chunk), plan.state.revision
    if known is None or not known.chunk.exported:
        return ""
    finished = {record.id: record.revision for record in plan.ledger.earlier if record.finished}
    revisions = [finished[entry.import_id] for entry in old if entry.import_id in finished]
    # An unfinished restore may have loaded only some of a chunk's files.
    proved = len(revisions) == len(old) and all(file.whole for file in new)
    if proved:
        first = min(revisions)
        altered = any(first < revision <= restored for revision in plan.source.altering)
        only_compacted = known.exported <= first and plan.source.head.rolled_back <= first and not altered
        proved = only_compacted and max(revisions) <= restored
    if not proved:
        return " (they were compacted, and nothing proves that they hold the same rows)"
    different = []
    for table in moved:
        there = sum(entry.rows for entry in old if entry.table == table)
        here = sum(file.file.rows for file in new if file.table.table_name == table)
        if there != here:
            rows = counted(there, "row")
            different.append(f"the target has {rows} of {table}, this revision {number_text(here)}")
    return f" (compactions left out rows: {' and '.join(different)})" if different else None


def decide(plan: RestorePlan, chunk: ChunkFiles) -> ChunkLoad:
    """Decide what a restore does with a chunk, which is without tables that could not be made.

    A changed chunk is replaced; of any other, the files are loaded that the ledger lacks. If the same rows lie in other
    files now, only ledger rows are replaced.

    Raises:
        RestoreError: It changed, and replacing it is not allowed, or its rows cannot be identified.
    """
    change, again = change_of(plan, chunk), chunk.chunk in plan.again
    if not again and change.renewal is not None:
        renewed = plan.ledger.renewed([change.renewal])
        return ChunkLoad(chunk, renewed.missing(chunk), renewal=change.renewal)
    if not again and not change.reason:
        return ChunkLoad(chunk, plan.ledger.missing(chunk))
    if not again and not plan.settings.replace:
        raise RestoreError(
            f"Chunk {chunk.chunk} {change.reason}, at another revision. Give --replace to delete its rows from the"
            " target and load those of this revision.",
            chunk=chunk.chunk,
        )
    loaded, bounded = {file.table.table_name for file in chunk.files}, {table.table_name for table, _ in chunk.tables}
    if plan.record.into_nonempty:
        raise RestoreError(
            f"Chunk {chunk.chunk} cannot be replaced in {_table_names(loaded | bounded)}: tables held rows of others"
            " before an import (--into-nonempty), and deleting the chunk's window would delete those too.",
            chunk=chunk.chunk,
        )
    # Tables that a user's own DataFrames made, and those whose times are text in another kind of database.
    if unbounded := loaded - bounded:
        names = ", ".join(sorted(map(str, unbounded)))
        raise RestoreError(
            f"Chunk {chunk.chunk} cannot be replaced: {names} has no time index, so its rows of this window cannot"
            " be identified. Drop the tables, give --forget-ledger, and import them again.",
            chunk=chunk.chunk,
        )
    return ChunkLoad(chunk, chunk.files, replace=True)


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
        changed = changed_carriers(plan.source.documents, file)
        if changed and not plan.same_kind:
            raise RestoreError(
                f"{file.file.path} carries {', '.join(sorted(changed))} of {name} otherwise than the snapshot's newest"
                f" schema, and only a {plan.source.schema.database} database can read both. Restore into one.",
                object=file.file.path,
            )
        if file.cut is not None:
            table = plan.table_of(file)
            file.cut.filter(pa.RecordBatch.from_pylist([], table.arrow_schema()), table)


def _table_names(tables: Iterable[TableName]) -> str:
    return some_text([str(table) for table in sorted(tables)])
