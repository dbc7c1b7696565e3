"""Parses and writes names of tags, tables (`schema.table`) and columns (`schema.table.column`).

A part that contains a dot is quoted as in SQL: `"a.b"."c"`, with quotes inside doubled. Case is preserved.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from snapshot_assets.errors import PlanError
from snapshot_assets.format.layout import TAG_NAME
from snapshot_assets.format.name_texts import printed_name, written_name
from snapshot_assets.format.relations import TableName

_TAG_NAME = re.compile(TAG_NAME, re.ASCII)
_PART = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')
_NAME = r'(?:"(?:[^"]|"")+"|[^\s".(),;\']+)'
_TABLE = re.compile(rf"{_NAME}\.{_NAME}")


class ColumnPath(NamedTuple):
    """A column of a table. As a text it is for people; see `printed_name`."""

    table: TableName
    column: str

    def __str__(self) -> str:
        return printed_name(*self.table, self.column)

    @property
    def written(self) -> str:
        """The column as plans and options take it."""
        return written_name(*self.table, self.column)


def parse_table(value: object) -> TableName:
    """Return the table that a text names.

    Args:
        value: `schema.table`, `"sche.ma"."ta.ble"`, or a mapping of `schema` and `table`.

    Raises:
        PlanError: The value does not name a schema and a table.
    """
    if isinstance(value, TableName):
        return value
    if isinstance(value, Mapping) and set(value) == {"schema", "table"}:
        parts: list[object] | None = [value["schema"], value["table"]]
    else:
        parts = [*_parts(value)] if isinstance(value, str) else None
    match parts:
        case [str(schema), str(table)] if schema and table:
            return TableName(schema, table)
    raise PlanError(
        f"{value!r} is not a schema and a table; write one such as public.trips, or "
        '"my.schema"."my.table" where a name holds a dot'
    )


def table_text(name: TableName) -> str:
    """Return the text that `parse_table` reads as this table."""
    return ".".join(map(_quoted, name))


def table_of(query: str) -> TableName | None:
    """Return the table that a query names in place of SQL, `schema.table`; None for SQL."""
    return parse_table(query) if _TABLE.fullmatch(query) else None


def parse_column(value: object) -> ColumnPath:
    """Return the column that a text such as `schema.table.column` names.

    Raises:
        PlanError: The value does not name a schema, a table and a column.
    """
    if isinstance(value, ColumnPath):
        return value
    match _parts(value) if isinstance(value, str) else ():
        case [schema, table, column]:
            return ColumnPath(TableName(schema, table), column)
    raise PlanError(
        f"{value!r} is not a schema, a table and a column; write one such as public.trips.fare, "
        'quoting a part that holds a dot: public."my.table".fare'
    )


def column_text(path: ColumnPath) -> str:
    """Return the text that `parse_column` reads as this column."""
    return f"{table_text(path.table)}.{_quoted(path.column)}"


def check_tag_name(name: str) -> str:
    """Return `name` if it is a valid tag name.

    Raises:
        PlanError: It is invalid.
    """
    if _TAG_NAME.fullmatch(name) is None:
        raise PlanError(
            f"{name[:200]!r} cannot name a tag; a name starts with a letter or _ and goes on with letters, digits, "
            "_ . - up to 100 characters, such as before-migration",
            name=name,
        )
    return name


def _parts(text: str) -> tuple[str, ...]:
    """Return the dotted parts of a name, unquoted; an empty tuple for an invalid name."""
    parts: list[str] = []
    position = 0
    while match := _PART.match(text, position):
        parts.append(match[1].replace('""', '"') if match[1] is not None else match[2])
        position = match.end() + 1
        if match.end() == len(text):
            return tuple(parts)
        if text[match.end()] != ".":
            break
    return ()


def _quoted(part: str) -> str:
    return part if part and not set('."') & set(part) else '"' + part.replace('"', '""') + '"'
