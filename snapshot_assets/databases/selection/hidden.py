"""Columns and tables that a plan hides: columns that it leaves out or masks, and tables that match its patterns.

A column cannot be hidden where something that is exported would reveal it, or where rows go by its values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from snapshot_assets.databases.protocol.query import split_tokens
from snapshot_assets.databases.protocol.refusals import Refusals
from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.databases.sql import identifier
from snapshot_assets.errors import DatabaseError, PlanError
from snapshot_assets.format.name_texts import printed_name, yaml_key, yaml_value
from snapshot_assets.format.names import ColumnPath, matches, table_text
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName, View

MASKS = "masks"
"""The option of a table's document that holds its masks, by column."""

_CLOSING = {")": "(", "]": "[", "}": "{"}


def parse_mask(text: object) -> str:
    """Return a mask's SQL; None, as YAML has it, is NULL.

    Raises:
        PlanError: It is no text, has several statements, or brackets or quotation marks without a partner.
    """
    if text is None:
        return "NULL"
    if not isinstance(text, str) or not text.strip():
        raise PlanError(f"{text!r} is not SQL; write an expression such as md5(email), and quote it")
    open_brackets: list[str] = []
    for kind, token in split_tokens(text):
        if kind != "other":
            continue
        if token in ("'", '"'):
            raise PlanError(f"{text!r} has a {token} that is not closed; write one expression")
        if token == ";":
            raise PlanError(f"{text!r} has a semicolon; write one expression")
        if token in _CLOSING.values():
            open_brackets.append(token)
        elif token in _CLOSING and (not open_brackets or open_brackets.pop() != _CLOSING[token]):
            raise PlanError(f"{text!r} has a {token} without its {_CLOSING[token]}; write one expression")
    if open_brackets:
        raise PlanError(f"{text!r} has a {open_brackets[-1]} that is not closed; write one expression")
    return text.strip()


def mask_of(table: Table, column: str) -> str | None:
    """Return the SQL that is exported in place of a column's values; None for the values themselves."""
    mask: str | None = table.options.get(MASKS, {}).get(column)
    return mask


def without_masks(table: Table) -> Table:
    """Return a table whose columns are read as they are, such as that of a target, which holds the masked values."""
    return table.model_copy(update={"options": {key: each for key, each in table.options.items() if key != MASKS}})


def masked(mask: str, type_text: str) -> str:
    """Return the SQL expression of a mask in the type of its column."""
    return f"CAST((\n{mask}\n) AS {type_text})"


def check_masks(
    schema: DatabaseSchema,
    run: Callable[[Table, str], None],
    refusals: Refusals,
    cast_type: Callable[[str], str] = str,
) -> None:
    """Check that the database computes each mask from one row, and that it is of the column's type.

    Args:
        schema: The documents.
        run: Lets the database plan a query on a table with a condition, which may not have aggregates and the like.
        refusals: Collects masks that the database refuses.
        cast_type: Returns the type that CAST takes for a column's.
    """
    for table in schema.tables:
        types = {column.name: column.type for column in table.columns}
        for name, sql in table.options.get(MASKS, {}).items():
            if name not in types:
                continue  # noted as a column that does not exist
            try:
                run(table, f"{masked(sql, cast_type(types[name]))} IS NULL")
            except DatabaseError as error:
                path = ColumnPath(table.table_name, name)
                text = f"The mask of {path} is refused: {error} Write an expression of one row's"
                refused = PlanError(
                    f"{text} columns that yields {types[name]}.", table=table_text(table.table_name), column=name
                )
                refusals.note(refused)


_STAR = re.compile(r"(?:\bSELECT|\bDISTINCT|[,.])\s*\*|^\s*FROM\b", re.IGNORECASE)


@dataclass(frozen=True)
class Hidden:
    """The columns of one table whose values are not exported.

    Attributes:
        excluded: Columns that are left out.
        masks: SQL of columns whose values are replaced, by column.
    """

    excluded: frozenset[str] = frozenset()
    masks: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> frozenset[str]:
        """All these columns."""
        return self.excluded | frozenset(self.masks)

    def options(self) -> dict[str, Any]:
        """Return the options that a table's document has for them."""
        return {MASKS: dict(sorted(self.masks.items()))} if self.masks else {}

    def not_carried(self) -> list[str]:
        """Return what of the columns themselves is not in the snapshot."""
        excluded = [f"column {identifier(name)} (the plan excludes it)" for name in sorted(self.excluded)]
        return excluded + [f"column {identifier(name)} in the clear (the plan masks it)" for name in sorted(self.masks)]

    def why(self, columns: Iterable[str]) -> str | None:
        """Return why an object that needs some columns is left out; None if it is not."""
        for name in columns:
            if name in self.names:
                what = "is not exported" if name in self.excluded else "is masked"
                return f"column {identifier(name)} {what}"
        return None


def hidden_of(selection: Selection, name: TableName) -> Hidden:
    """Return the hidden columns of a table."""
    return Hidden(
        frozenset(column for table, column in selection.exclude_columns if table == name),
        {column: sql for (table, column), sql in selection.masks.items() if table == name},
    )


def hides(selection: Selection) -> bool:
    """Return whether a selection leaves out or masks anything."""
    return bool(selection.exclude_columns or selection.masks or selection.exclude_tables)


def excludes(selection: Selection, name: TableName) -> bool:
    """Return whether a pattern leaves a table or view out."""
    return any(matches(pattern, name, selection.names) for pattern in selection.exclude_tables)


def mentioned(text: str, columns: Collection[str]) -> list[str]:
    """Return the columns whose names occur in SQL text, quoted or not, in any case."""
    return [
        name
        for name in columns
        if re.search(rf"(?<![\w$]){re.escape(name)}(?![\w$])", text, re.IGNORECASE) or identifier(name) in text
    ]


def has_star(sql: str) -> bool:
    """Return whether a query takes all columns of what it reads."""
    return _STAR.search(sql) is not None


def column_name(name: TableName, column: str) -> str:
    """Return a column as messages name it."""
    return str(ColumnPath(name, column))


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def refuse_revealing(
    name: TableName, hidden: Hidden, time_index: str | None, generated: Mapping[str, Sequence[str]]
) -> None:
    """Refuse to hide a column that decides the windows, or that a generated column would reveal.

    `generated` has, by generated column, the columns that it is computed from.

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
    """Return the error for a view whose rows are exported and may show what the plan hides, for the reason `why`.

    `undecided` are its columns that the plan neither excludes nor masks.
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
    """Return the error for a column of the row type of another table, of which the plan hides what `why` says."""
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
