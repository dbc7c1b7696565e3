"""What an import restores: which revision, which tables, which files. Pure: nothing here touches a target."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.databases.selection import check_selection
from snapshot_assets.databases.source import AllRows, Rows, Selection, TimelessRows, WindowRows
from snapshot_assets.engine.restore.deleted_rows import TombstoneDeletions
from snapshot_assets.engine.time_range import TimeFilter
from snapshot_assets.errors import RestoreError
from snapshot_assets.format.checksums import canonical_json
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.predicates import Predicate
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName, View
from snapshot_assets.format.units import time_text


@dataclass(frozen=True)
class Filters:
    """What restricts an import; empty means all.

    Attributes:
        start: Rows from this time on; None for all.
        end: Rows before this time; None for all.
        expressions: Whether SQL text of the snapshot (defaults, checks, views) is restored.
    """

    schemas: tuple[str, ...] = ()
    tables: tuple[TableName, ...] = ()
    start: datetime | None = None
    end: datetime | None = None
    expressions: bool = True

    def text(self) -> str:
        """Return the filters as canonical JSON: equal filters have equal text."""
        facts = {
            "schemas": sorted(self.schemas),
            "tables": [list(name) for name in sorted(self.tables)],
            "start": time_text(self.start) if self.start else None,
            "end": time_text(self.end) if self.end else None,
            "expressions": self.expressions,
        }
        return canonical_json(facts).decode()


def described(filters: str) -> str:
    """Return what filters, in their canonical JSON, let through, for people."""
    facts = json.loads(filters)
    names = {"schemas": facts["schemas"], "tables": [str(TableName(*each)) for each in facts["tables"]]}
    parts = [f"{what} {', '.join(chosen)}" for what, chosen in names.items() if chosen]
    if facts["start"] or facts["end"]:
        parts.append(f"times from {facts['start'] or 'the first'} to {facts['end'] or 'the last'}")
    if not facts["expressions"]:
        parts.append("no expressions")
    return ", ".join(parts) or "everything"


@dataclass(frozen=True)
class Selected:
    """The part of a snapshot that is restored.

    Attributes:
        schema: Documents of what is selected, of the newest schema at the revision.
        lost: What refers to things that are not selected and is left out, a sentence each.
    """

    schema: DatabaseSchema
    lost: tuple[str, ...] = ()


def select(schema: DatabaseSchema, filters: Filters) -> Selected:
    """Return the documents that the filters choose.

    Raises:
        UnknownRelationError: A schema or table is not in the snapshot; names near ones.
        PlanError: A table lies outside the chosen schemas.
    """
    relations: dict[TableName, list[str]] = {}
    items: list[Table | View] = [*schema.tables, *schema.views]
    for item in items:
        relations[item.table_name] = [column.name for column in item.columns]
    schemas = [item.name for item in schema.schemas]
    check_selection(Selection(schemas=filters.schemas, tables=filters.tables), schemas, relations)

    def chosen(name: TableName) -> bool:
        in_schemas = not filters.schemas or name.schema in filters.schemas
        return in_schemas and (not filters.tables or name in filters.tables)

    tables = tuple(table for table in schema.tables if chosen(table.table_name))
    kept = {table.table_name for table in tables}
    views: list[View] = []
    lost: list[str] = []
    for view in schema.views:
        name = view.table_name
        if not chosen(name):
            continue
        views.append(view)
        kept.add(name)
    complete = _without_broken(views, kept, set(relations), lost)
    used = {name.schema for name in kept}
    narrowed = bool(filters.schemas or filters.tables)
    return Selected(
        schema.model_copy(
            update={
                "schemas": tuple(item for item in schema.schemas if not narrowed or item.name in used),
                "tables": tables,
                "views": tuple(complete),
            }
        ),
        tuple(lost),
    )


def _without_broken(views: Sequence[View], kept: set[TableName], known: set[TableName], lost: list[str]) -> list[View]:
    """Return the views whose relations are all restored; removes the others from `kept` and says so in `lost`.

    What is no table or view of the snapshot, such as a partition, is the target's definition to judge.
    """
    remaining = list(views)
    while broken := [view for view in remaining if set(view.depends_on) & known - kept]:
        for view in broken:
            missing = ", ".join(sorted(map(str, set(view.depends_on) & known - kept)))
            lost.append(f"View {view.table_name} is left out: it reads {missing}, which is not restored.")
            kept.discard(view.table_name)
        remaining = [view for view in remaining if view not in broken]
    return remaining


@dataclass(frozen=True)
class FilePlan:
    """One data file and what of it goes where.

    Attributes:
        table: The table as the newest schema has it.
        zone: IANA zone of times without one.
        cut: Range that its rows are filtered by; None where all of them are wanted.
        deleted: Predicates of tombstones: rows of which one is true are not restored.
    """

    file: DataFile
    table: Table
    zone: str = "UTC"
    cut: TimeFilter | None = None
    deleted: tuple[Predicate, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether all rows of the file are wanted."""
        return self.cut is None and not self.deleted


@dataclass(frozen=True)
class ChunkFiles:
    """The files of one chunk that are restored.

    Attributes:
        files: None where the window holds no row of the chosen tables.
        tables: Tables that the chunk holds rows of, and which rows of the target those are: what a replace deletes.
    """

    chunk: int
    files: tuple[FilePlan, ...] = ()
    tables: tuple[tuple[Table, Rows], ...] = ()

    @property
    def unbounded(self) -> set[TableName]:
        """Tables whose rows of this chunk nothing tells from those of others: they have no time index in the target.

        Such are tables that a user's own DataFrames made, and those whose times are text in another kind of database.
        """
        return {plan.table.table_name for plan in self.files} - {table.table_name for table, _ in self.tables}


def chunk_files(
    state: State, schema: DatabaseSchema, filters: Filters, held: Sequence[Table], deleted: TombstoneDeletions
) -> list[ChunkFiles]:
    """Return what is loaded, chunk by chunk in order.

    Untimed tables have no time: a time range leaves them whole. Rows without a time lie in no range.

    Args:
        state: The state at the restored revision.
        schema: What is selected.
        filters: What restricts the import.
        held: The tables that the target will hold, as it will hold them.
        deleted: What tombstones delete of the files.

    Raises:
        RestoreError: A file belongs to a table that the snapshot's schema does not have.
    """
    header = state.header
    assert header is not None
    time_range = None
    if filters.start is not None or filters.end is not None:
        time_range = TimeFilter(filters.start, filters.end, header.time_zone)
    chosen = _chosen(state, schema, held)
    found = []
    for chunk in sorted(state.chunks):
        if chunk != UNTIMED_CHUNK and time_range is not None:
            window = state.window(chunk)
            if not time_range.overlaps(window.start, window.end):
                continue
        found.append(_chunk_files(state, chosen, chunk, time_range, deleted))
    return found


@dataclass(frozen=True)
class _Chosen:
    """A table that is restored.

    Attributes:
        table: As the newest schema has it.
        timed: Whether the target's table has a time index too.
        windowed: Whether windows hold rows of it.
    """

    table: Table
    timed: bool
    windowed: bool


def _chosen(state: State, schema: DatabaseSchema, held: Sequence[Table]) -> dict[TableName, _Chosen]:
    timed = {table.table_name: table.time_index is not None for table in held}
    windowed = {
        TableName(known.file.schema, known.file.table)
        for known in state.live_files()
        if known.file.chunk != UNTIMED_CHUNK
    }
    return {
        table.table_name: _Chosen(table, timed[table.table_name], table.table_name in windowed)
        for table in schema.tables
        if table.table_name in timed
    }


def _chunk_files(
    state: State,
    chosen: Mapping[TableName, _Chosen],
    chunk: int,
    time_range: TimeFilter | None,
    deleted: TombstoneDeletions,
) -> ChunkFiles:
    rows = {name: _rows_of(state, each, chunk, time_range) for name, each in chosen.items()}
    files = []
    zone = state.header.time_zone if state.header else "UTC"
    for known in state.live_files(chunk):
        each = chosen.get(TableName(known.file.schema, known.file.table))
        if each is None:
            continue
        has_time = each.table.time_index is not None
        if not (chunk == UNTIMED_CHUNK and has_time and time_range is not None):
            cut = _cut(state, chunk, time_range) if has_time else None
            files.append(FilePlan(known.file, each.table, zone, cut, deleted.predicates(known.file)))
    bounded = tuple((chosen[name].table, which) for name, which in rows.items() if which is not None)
    return ChunkFiles(chunk, tuple(files), bounded)


def _rows_of(state: State, each: _Chosen, chunk: int, time_range: TimeFilter | None) -> Rows | None:
    """Return which of a table's rows a chunk holds; None for none, or where nothing tells them from others."""
    if not each.timed:
        return AllRows() if chunk == UNTIMED_CHUNK and not each.windowed else None
    if chunk != UNTIMED_CHUNK:
        window, zone = state.window(chunk), state.header.time_zone if state.header else "UTC"
        return WindowRows(window.start, window.end, zone)
    return None if time_range is not None else TimelessRows()


def _cut(state: State, chunk: int, time_range: TimeFilter | None) -> TimeFilter | None:
    if chunk == UNTIMED_CHUNK or time_range is None:
        return None
    window = state.window(chunk)
    return None if time_range.covers(window.start, window.end) else time_range


def parents_first(chunk: ChunkFiles) -> ChunkFiles:
    """Return a chunk whose files stand in the order of foreign keys, those of a circle as they come."""
    tables = {plan.table.table_name: plan.table for plan in chunk.files}
    parents = {
        name: {TableName(key.referenced_schema, key.referenced_table) for key in table.foreign_keys} & set(tables)
        for name, table in tables.items()
    }
    order: dict[TableName, int] = {}

    def place(name: TableName, above: frozenset[TableName]) -> None:
        if name in order:
            return
        for parent in sorted(parents[name] - above - {name}):
            place(parent, above | {name})
        order.setdefault(name, len(order))

    for name in sorted(tables):
        place(name, frozenset())
    return replace(chunk, files=tuple(sorted(chunk.files, key=lambda plan: order[plan.table.table_name])))


def check_complete(state: State, schema: DatabaseSchema) -> None:
    """Make sure that no file of the revision belongs to a table that nobody knows any more.

    Raises:
        RestoreError: One does.
    """
    known = {table.table_name for table in schema.tables}
    unknown = {TableName(each.file.schema, each.file.table) for each in state.live_files()} - known
    if unknown:
        names = ", ".join(sorted(map(str, unknown)))
        raise RestoreError(
            f"The snapshot holds rows of {names}, which its newest schema does not have any more: the table was dropped"
            " or renamed between chunks. Choose tables with --tables, or a version from before with --at.",
            tables=names,
        )
