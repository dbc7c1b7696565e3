"""Masks: SQL expressions of a plan that are exported in place of a column's values, in the column's own type."""

from __future__ import annotations

from collections.abc import Callable

from snapshot_assets.databases.query import split_tokens
from snapshot_assets.databases.refusals import Refusals
from snapshot_assets.errors import DatabaseError, PlanError
from snapshot_assets.format.names import ColumnPath, table_text
from snapshot_assets.format.relations import DatabaseSchema, Table

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
