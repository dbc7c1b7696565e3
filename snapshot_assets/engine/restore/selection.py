"""Which schemas, tables and views of a snapshot a restore selects."""

from __future__ import annotations

from collections.abc import Sequence

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.databases.selection import check_selection
from snapshot_assets.databases.source import Selection
from snapshot_assets.engine.restore.settings import Filters
from snapshot_assets.errors import RestoreError
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName, View


def select(schema: DatabaseSchema, filters: Filters) -> tuple[DatabaseSchema, list[str]]:
    """Return the documents that the filters choose, and a sentence for each view that reads something else.

    Raises:
        UnknownRelationError: A schema or table is not in the snapshot; names similar ones.
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
    views = [view for view in schema.views if chosen(view.table_name)]
    restored = {table.table_name for table in tables} | {view.table_name for view in views}
    lost: list[str] = []
    complete = _without_broken(views, restored, set(relations), lost)
    used = {name.schema for name in restored}
    narrowed = bool(filters.schemas or filters.tables)
    selected = {
        "schemas": tuple(item for item in schema.schemas if not narrowed or item.name in used),
        "tables": tables,
        "views": tuple(complete),
    }
    return schema.model_copy(update=selected), lost


def _without_broken(
    views: Sequence[View], restored: set[TableName], relations: set[TableName], lost: list[str]
) -> list[View]:
    """Return the views whose relations are all restored; removes the others from `restored` and explains it in `lost`.

    A relation that is no table or view of the snapshot, such as a partition, is left to the target's definition.
    """
    remaining = list(views)
    while broken := [view for view in remaining if set(view.depends_on) & relations - restored]:
        for view in broken:
            missing = ", ".join(sorted(map(str, set(view.depends_on) & relations - restored)))
            lost.append(f"View {view.table_name} is left out: it reads {missing}, which is not restored.")
            restored.discard(view.table_name)
        remaining = [view for view in remaining if view not in broken]
    return remaining


def check_complete(state: State, schema: DatabaseSchema) -> None:
    """Refuse a revision that has files of a table which its newest schema lacks.

    Raises:
        RestoreError: Names the tables.
    """
    tables = {table.table_name for table in schema.tables}
    unknown = {TableName(each.file.schema, each.file.table) for each in state.live_files()} - tables
    if unknown:
        names = ", ".join(sorted(map(str, unknown)))
        raise RestoreError(
            f"The snapshot holds rows of {names}, which its newest schema does not have any more: the table was dropped"
            " or renamed between chunks. Choose tables with --tables, or a version from before with --at.",
            tables=names,
        )
