"""Refuses to hide a column where something that is exported would reveal it, or where rows go by its values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from snapshot_assets.databases.hidden import Hidden, column_name, has_star, hidden_of, mentioned
from snapshot_assets.databases.refusals import Refusals
from snapshot_assets.databases.source import Selection
from snapshot_assets.databases.sql import identifier
from snapshot_assets.errors import PlanError
from snapshot_assets.format.relations import TableName, View


def refuse_revealing(
    name: TableName, hidden: Hidden, time_index: str | None, generated: Mapping[str, Sequence[str]]
) -> None:
    """Refuse to hide a column that decides the windows, or that a generated column would reveal.

    Args:
        name: The table.
        hidden: Its hidden columns.
        time_index: Its time index.
        generated: By generated column, the columns that it is computed from.

    Raises:
        PlanError: The plan has to hide more columns, or other ones.
    """
    if time_index in hidden.masks:
        raise PlanError(
            f"Column {column_name(name, str(time_index))} is the time index, which decides the windows of rows, so it"
            " cannot be masked. Name another column under time_columns, or null to export the table untimed.",
            column=time_index,
        )
    for column, sources in generated.items():
        used = next((each for each in sources if each in hidden.names), None)
        if column in hidden.masks:
            raise PlanError(
                f"Column {column_name(name, column)} is generated, so a restore computes its values again. Name it"
                " under exclude_columns, or mask the columns that it is computed from.",
                column=column,
            )
        if used is not None and column not in hidden.excluded:
            raise PlanError(
                f"Column {column_name(name, column)} is generated from {column_name(name, used)} and would reveal its"
                f" values. Name {column_name(name, column)} under exclude_columns too.",
                column=column,
            )


def refuse_revealing_view(view: TableName, hidden: Hidden, table: TableName, column: str) -> None:
    """Refuse a view whose rows are exported and may show a column that the plan hides.

    Args:
        view: The view.
        hidden: What the plan hides of the view itself; if anything, its author has thought of it.
        table: The table that it reads.
        column: The hidden column that it uses.

    Raises:
        PlanError: The plan hides no column of the view.
    """
    if not hidden.names:
        raise PlanError(
            f"{view} is a view whose rows are exported, and it uses {column_name(table, column)}, which the plan hides."
            " Name its own columns under exclude_columns or mask, or leave the view out. A column that shows nothing"
            " may be masked by itself.",
            table=str(view),
        )


def refuse_revealing_row_types(
    name: TableName, types: Iterable[TableName], selection: Selection, hidden: Hidden
) -> None:
    """Refuse a column of the row type of a table that has hidden columns, whose values would hold them.

    Args:
        name: The table with the column.
        types: The tables whose row types its columns have.
        selection: The plan's selection.
        hidden: What the plan hides of the table itself.

    Raises:
        PlanError: There is such a column.
    """
    for other in types:
        if hidden_of(selection, other).names and not hidden.names:
            raise PlanError(
                f"A column of {name} has the row type of {other}, of which the plan hides columns. Name that column"
                " under exclude_columns or mask too.",
                table=str(name),
            )


def refuse_views(selection: Selection, views: Collection[TableName], refusals: Refusals) -> None:
    """Refuse to hide columns of a view whose query is exported, and not its rows."""
    for name, column in (*selection.exclude_columns, *selection.masks):
        if name in views:
            error = PlanError(
                f"{name} is exported as the view that it is, so its column {identifier(column)} cannot be hidden. Hide"
                " the columns of the tables that it reads, or name it under tables, which exports its rows.",
                table=str(name),
                column=column,
            )
            refusals.note(error)


def revealing_views(
    views: Sequence[View], exported: Collection[TableName], selection: Selection, refusals: Refusals
) -> None:
    """Note views whose rows are exported and may show a hidden column, directly or through other views.

    Names in SQL text decide.

    Args:
        views: All views of the source.
        exported: Those whose rows are exported.
        selection: The plan's selection.
        refusals: Collects the errors.
    """
    tables = {table for table, _ in (*selection.exclude_columns, *selection.masks)}
    shown = {table: {column: (table, column) for column in hidden_of(selection, table).names} for table in tables}
    remaining = [view for view in views if view.table_name not in shown]
    while reading := [(view, found) for view in remaining if (found := _first_used(view, shown))]:
        for view, (table, column) in reading:
            shown[view.table_name] = dict.fromkeys((each.name for each in view.columns), (table, column))
            if view.table_name in exported:
                with refusals.noting():
                    refuse_revealing_view(view.table_name, Hidden(), table, column)
        remaining = [view for view in remaining if view.table_name not in shown]


def _first_used(
    view: View, shown: Mapping[TableName, Mapping[str, tuple[TableName, str]]]
) -> tuple[TableName, str] | None:
    for read in view.depends_on:
        columns = shown.get(read, {})
        used = [*mentioned(view.definition, list(columns)), *(columns if has_star(view.definition) else ())]
        if used:
            return columns[used[0]]
    return None
