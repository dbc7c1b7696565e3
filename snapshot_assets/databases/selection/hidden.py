"""Columns and tables that a plan hides: columns that it leaves out or masks, and tables that match its patterns."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from snapshot_assets.databases.protocol.query import split_tokens
from snapshot_assets.databases.protocol.refusals import Refusals
from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.databases.sql import identifier
from snapshot_assets.errors import DatabaseError, PlanError
from snapshot_assets.format.names import ColumnPath, matches, table_text
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName

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


def masked(mask: str, type_text: str) -> str:
    """Return the SQL expression of a mask in the type of its column."""
    return f"CAST((\n{mask}\n) AS {type_text})"


def check_masks(schema: DatabaseSchema, run: Callable[[Table, str], None], refusals: Refusals) -> None:
    """Check that the database computes each mask from one row, and that it is of the column's type.

    Args:
        schema: The documents.
        run: Lets the database plan a query on a table with a condition, which may not have aggregates and the like.
        refusals: Collects masks that the database refuses.
    """
    for table in schema.tables:
        types = {column.name: column.type for column in table.columns}
        for name, sql in table.options.get(MASKS, {}).items():
            if name not in types:
                continue  # noted as a column that does not exist
            try:
                run(table, f"{masked(sql, types[name])} IS NULL")
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
