"""What is to be done with each chunk of an import, decided before anything is recorded or loaded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

import pyarrow as pa

from snapshot_assets.databases.target import LoadedFile
from snapshot_assets.engine.restore.compactions import Renewal
from snapshot_assets.engine.restore.plan import ChunkFiles, FilePlan
from snapshot_assets.errors import RestoreError
from snapshot_assets.format.relations import Column, DatabaseSchema, Table, TableName

FileKey = tuple[TableName, str]
"""What a ledger knows a file by: its table and its path."""


@dataclass(frozen=True)
class ChunkLoad:
    """What is to be done with one chunk.

    Attributes:
        missing: Files that the ledger lacks.
        replace: Delete the chunk's rows first, and load all its files.
        renewal: What the ledger knows the same rows by from now on; None for no change.
    """

    chunk: ChunkFiles
    missing: tuple[FilePlan, ...]
    replace: bool = False
    renewal: Renewal | None = None

    @property
    def plans(self) -> tuple[FilePlan, ...]:
        """The files to be loaded."""
        return self.chunk.files if self.replace else self.missing


def key_of(plan: FilePlan) -> FileKey:
    """Return what the ledger knows a file by."""
    return plan.table.table_name, plan.file.path


def expected_rows(plan: FilePlan, done: Mapping[FileKey, LoadedFile]) -> int:
    """Return how many rows a file brings to the target: only the ledger knows of one that is not loaded whole."""
    entry = done.get(key_of(plan))
    return plan.file.rows if plan.whole or entry is None else entry.rows


def decide(
    chunk: ChunkFiles,
    known: Set[FileKey],
    *,
    change: str = "",
    again: bool,
    replace: bool,
    into_nonempty: bool,
) -> ChunkLoad:
    """Return what is to be done with a chunk: nothing, load what is missing, or replace it whole.

    Args:
        chunk: Its files of now.
        known: Its files that the ledger has, of other revisions too.
        change: Why its rows of now are not those that were loaded, as the end of a sentence; "" if they are.
        again: Replace its rows whatever the ledger says.
        replace: Replace its rows if they changed since they were loaded.
        into_nonempty: Whether the tables held rows of others before an import.

    Raises:
        RestoreError: Its rows changed and may not be replaced, or cannot be told from others.
    """
    if change and not (replace or again):
        raise RestoreError(
            f"Chunk {chunk.chunk} {change}, at another revision. Give --replace to delete its rows from the target and"
            " load those of this revision.",
            chunk=chunk.chunk,
        )
    if change or again:
        _check_replaceable(chunk, into_nonempty=into_nonempty)
    missing = tuple(plan for plan in chunk.files if key_of(plan) not in known)
    return ChunkLoad(chunk, missing, replace=bool(change) or again)


def _check_replaceable(chunk: ChunkFiles, *, into_nonempty: bool) -> None:
    if into_nonempty:
        raise RestoreError(
            f"Chunk {chunk.chunk} cannot be replaced: the tables held rows of others before an import"
            " (--into-nonempty), and deleting the chunk's window would delete those too.",
            chunk=chunk.chunk,
        )
    if chunk.unbounded:
        names = ", ".join(sorted(map(str, chunk.unbounded)))
        raise RestoreError(
            f"Chunk {chunk.chunk} cannot be replaced: {names} has no time index, so its rows of this window cannot"
            " be told from others. Drop the tables, give --forget-ledger, and import them anew.",
            chunk=chunk.chunk,
        )


def check_files(
    loads: Iterable[ChunkLoad],
    tables: Mapping[TableName, Table],
    documents: Mapping[int, DatabaseSchema],
    *,
    any_carrier: bool,
) -> None:
    """Make sure that what the files carry can be loaded and filtered, without reading them.

    Args:
        loads: What is to be loaded.
        tables: Tables as the target holds them.
        documents: Schemas by id.
        any_carrier: Whether the target can read a column that is carried otherwise than in the newest schema.

    Raises:
        RestoreError: A file carries a column in a way that the target cannot read; names file and columns.
        PlanError: Rows are to be filtered by a time that travelled as text.
    """
    seen = set()
    for plan in (plan for load in loads for plan in load.plans):
        name = plan.table.table_name
        kind = (plan.file.schema_id, name, plan.cut)
        if kind in seen:
            continue
        seen.add(kind)
        written = documents[plan.file.schema_id]
        changed = changed_carriers(written, plan.table)
        if changed and not any_carrier:
            raise RestoreError(
                f"{plan.file.path} carries {', '.join(sorted(changed))} of {name} otherwise than the snapshot's newest"
                f" schema, and only a {written.database} database can read both. Restore into one.",
                object=plan.file.path,
            )
        if plan.cut is not None:
            table = as_carried(tables[name], changed)
            plan.cut.filter(pa.RecordBatch.from_pylist([], table.arrow_schema()), table)


def changed_carriers(written: DatabaseSchema, newest: Table) -> dict[str, Column]:
    """Return the columns, by name, whose carrier was another when a file was written: a plan may change it.

    Args:
        written: The schema that the file was written with.
        newest: The table as the snapshot's newest schema has it.

    Returns:
        Each column as it was when the file was written.
    """
    try:
        old = {column.name: column for column in written.table(newest.table_name).columns}
    except KeyError:
        return {}
    return {
        column.name: old[column.name]
        for column in newest.columns
        if column.name in old and old[column.name].carrier is not column.carrier
    }


def as_carried(target: Table, changed: Mapping[str, Column]) -> Table:
    """Return a target's table with some columns carried as in a file that was written otherwise."""
    columns = [
        column.model_copy(update={"carrier": before.carrier, "arrow_type": before.arrow_type})
        if (before := changed.get(column.name))
        else column
        for column in target.columns
    ]
    return target.model_copy(update={"columns": tuple(columns)})
