"""Refuses to hide a column where something that is exported would reveal it, or where rows go by its values."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from snapshot_assets.databases.protocol.refusals import Refusals
from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.databases.selection.hidden import Hidden, column_name, excludes, hidden_of
from snapshot_assets.databases.sql import identifier
from snapshot_assets.errors import PlanError
from snapshot_assets.format.name_texts import printed_name, yaml_key, yaml_value
from snapshot_assets.format.names import ColumnPath, table_text
from snapshot_assets.format.relations import TableName, View

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


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


def hides_of(selection: Selection, name: TableName) -> str | None:
    """Return what a plan hides of a table or view, in words; None for nothing. All of an excluded table is hidden."""
    if excludes(selection, name):
        return f"it reads {name}, which the plan excludes"
    return f"it reads {name}, of which the plan hides columns" if hidden_of(selection, name).names else None


def revealing_view_error(view: TableName, undecided: Sequence[str], why: str, quote: str = '"') -> PlanError:
    """Return the error for a view whose rows are exported and may show what the plan hides.

    Args:
        view: The view.
        undecided: Its columns that the plan neither excludes nor masks.
        why: Why it may show something hidden.
        quote: The quotation mark of identifiers.
    """
    column = undecided[0]
    safe = yaml_key(ColumnPath(view, column).written)
    sql = yaml_value(column if _PLAIN.fullmatch(column) else identifier(column, quote))
    return PlanError(
        f"{view} is a view whose rows are exported, and {why}. Name all its columns under exclude_columns or mask"
        f" ({', '.join(map(printed_name, undecided))} are not), or leave the view out. A column that shows nothing may"
        f" be masked by itself: mask: {{{safe}: {sql}}}.",
        table=table_text(view),
    )


def revealing_row_type_error(table: TableName, column: str, other: TableName, why: str) -> PlanError:
    """Return the error for a column of the row type of a table that the plan hides, or hides columns of.

    Args:
        table: The table with the column.
        column: The column.
        other: The table or view whose rows it holds.
        why: What the plan hides of that.
    """
    return PlanError(
        f"Column {column_name(table, column)} holds rows of {other}: {why}. Name {column_name(table, column)} under"
        " exclude_columns or mask too.",
        table=table_text(table),
        column=column,
    )


def refuse_views(selection: Selection, views: Collection[TableName], refusals: Refusals) -> None:
    """Refuse to hide columns of a view whose query is exported, and not its rows."""
    for name, column in (*selection.exclude_columns, *selection.masks):
        if name in views:
            error = PlanError(
                f"{name} is exported as the view that it is, so its column {identifier(column)} cannot be hidden. Hide"
                " the columns of the tables that it reads, or name it under tables, which exports its rows.",
                table=table_text(name),
                column=column,
            )
            refusals.note(error)


def refuse_revealing_views(
    views: Sequence[View],
    exported: Mapping[TableName, Sequence[str]],
    doubts: Mapping[TableName, str],
    selection: Selection,
    refusals: Refusals,
    quote: str = '"',
) -> None:
    """Note views whose rows are exported and that read, directly or through other views, what the plan hides.

    For databases that do not record which columns a view uses.

    Args:
        views: All views of the source.
        exported: The columns of the relations whose rows are exported, without the excluded ones.
        doubts: Views that may read more than they name, and why.
        selection: The plan's selection.
        refusals: Collects the errors.
        quote: The quotation mark of identifiers.
    """
    why: dict[TableName, str] = dict(doubts)
    changed = True
    while changed:
        changed = False
        for view in views:
            reasons = (hides_of(selection, read) or why.get(read) for read in view.depends_on)
            reason = next(filter(None, reasons), None)
            if view.table_name not in why and reason is not None:
                why[view.table_name], changed = reason, True
    for name in sorted(why.keys() & exported.keys()):
        undecided = [each for each in exported[name] if each not in hidden_of(selection, name).masks]
        if undecided:
            refusals.note(revealing_view_error(name, undecided, why[name], quote))
