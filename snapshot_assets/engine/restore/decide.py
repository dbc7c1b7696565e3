"""What a restore does with each chunk, decided before anything is recorded or loaded."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from snapshot_assets.engine.restore.changes import ChunkChange
from snapshot_assets.engine.restore.files import ChunkFiles, FilePlan
from snapshot_assets.engine.restore.ledger import Renewal
from snapshot_assets.errors import RestoreError
from snapshot_assets.format.counts import some_text
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.relations import Column, DatabaseSchema, Table, TableName


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
        """Return the load without the tables of damaged files, whose rows in the target then stay as they are.

        Args:
            damaged: Paths of damaged files.
        """
        tables = {plan.table.table_name for plan in self.plans if plan.file.path in damaged}
        if not tables:
            return self
        chunk, left = self.chunk.without(tables), [plan for plan in self.plans if plan.table.table_name in tables]
        return dataclasses.replace(
            self,
            chunk=chunk,
            plans=tuple(plan for plan in self.plans if plan.table.table_name not in tables),
            replace=self.replace and bool(chunk.tables),
            left=(*self.left, *left),
        )

    @property
    def counted(self) -> bool:
        """Whether people count the chunk: each is counted, except chunk 0 if it is empty and nothing is replaced."""
        return self.chunk.chunk != UNTIMED_CHUNK or bool(self.chunk.files) or self.replace

    @property
    def bytes(self) -> int:
        """Bytes of the files to load."""
        return sum(plan.file.bytes for plan in self.plans)


def check_replaceable(chunk: ChunkFiles, change: ChunkChange, *, allowed: bool, into_nonempty: bool) -> None:
    """Refuse to replace a chunk.

    Args:
        chunk: The chunk.
        change: How its rows differ from those that were loaded.
        allowed: Whether the user lets rows be replaced.
        into_nonempty: Whether the tables had rows of others before a restore.

    Raises:
        RestoreError: It is not allowed, or its rows cannot be identified.
    """
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


def check_files(
    loads: Iterable[ChunkLoad],
    tables: Mapping[TableName, Table],
    documents: Mapping[int, DatabaseSchema],
    *,
    any_carrier: bool,
) -> None:
    """Check that the target can read the columns of files, and filter their rows, without reading the files.

    Args:
        loads: What is loaded.
        tables: Tables as the target holds them.
        documents: Schemas by id.
        any_carrier: Whether the target can read a column whose carrier differs from that of the newest schema.

    Raises:
        RestoreError: The target cannot read a column's carrier; names file and columns.
        PlanError: Rows are to be filtered by a time that is carried as text.
    """
    checked = set()
    for plan in (plan for load in loads for plan in load.plans):
        name = plan.table.table_name
        kind = (plan.file.schema_id, name, plan.cut)
        if kind in checked:
            continue
        checked.add(kind)
        written = documents[plan.file.schema_id]
        changed = changed_carriers(written, plan.source, plan.table)
        if changed and not any_carrier:
            raise RestoreError(
                f"{plan.file.path} carries {', '.join(sorted(changed))} of {name} otherwise than the snapshot's newest"
                f" schema, and only a {written.database} database can read both. Restore into one.",
                object=plan.file.path,
            )
        if plan.cut is not None:
            table = as_carried(tables[name], changed)
            plan.cut.filter(pa.RecordBatch.from_pylist([], table.arrow_schema()), table)


def changed_carriers(written: DatabaseSchema, name: TableName, newest: Table) -> dict[str, Column]:
    """Return the columns, by name, that had another carrier when a file was written: a plan may change carriers.

    Args:
        written: The schema that the file was written with.
        name: The table's name in it.
        newest: The table as the snapshot's newest schema has it.

    Returns:
        Each column as it was when the file was written.
    """
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
