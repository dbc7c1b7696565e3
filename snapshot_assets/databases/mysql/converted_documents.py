"""Documents of another kind of database as those of MySQL.

A column that draws from a sequence gets AUTO_INCREMENT if MySQL can have that, and texts and bytes that belong to a key
get a length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from snapshot_assets.databases.convert.actions import ACTIONS, with_actions
from snapshot_assets.databases.convert.literals import NOW
from snapshot_assets.databases.mysql.texts import listed, quoted
from snapshot_assets.databases.mysql.write_forms import BYTES, TEXT
from snapshot_assets.format.relations import (
    Column,
    DatabaseSchema,
    ForeignKey,
    Index,
    Table,
    TableName,
    UniqueConstraint,
)

_KEY_BYTES = 3072
_LENGTH = re.compile(r"\([\d,]*\)")
_LONGEST = {"table": 2048, "column": 1024}
"""Characters of comments."""

_SIZED = {TEXT: ("varchar", "characters", 4), BYTES: ("varbinary", "bytes", 1)}
"""The types with a length, the units of that, and the most bytes of one."""


def adapt(schema: DatabaseSchema) -> tuple[DatabaseSchema, tuple[str, ...]]:
    """Return converted documents without what MySQL has not; see `Adapter.adapt`."""
    adapting = _Adapting(schema)
    return schema.model_copy(update={"tables": tuple(adapting.tables())}), tuple(adapting.lost)


class _Adapting:
    def __init__(self, schema: DatabaseSchema) -> None:
        self._schema = schema
        self._tables = {table.table_name: table for table in schema.tables}
        self._lengths = _lengths(schema)
        self.lost: list[str] = []

    def tables(self) -> Iterator[Table]:
        for table in self._schema.tables:
            name = table.table_name
            if not table.columns:
                self.lost.append(f"Table {name} is left out: it has no columns, and MySQL has no such tables.")
                continue
            numbered = self._numbered(table)
            yield table.model_copy(
                update={
                    "columns": tuple(self._column(table, column, numbered) for column in table.columns),
                    "sequences": tuple(each for each in table.sequences if each.column == numbered),
                    "foreign_keys": tuple(self._foreign_keys(table, numbered)),
                    "unique": tuple(each.model_copy(update=_key(each, unique=True)) for each in table.unique),
                    "indexes": tuple(each.model_copy(update=_key(each, unique=each.unique)) for each in table.indexes),
                    "comment": self._comment("table", str(name), table.comment),
                }
            )

    def _foreign_keys(self, table: Table, numbered: str | None) -> Iterator[ForeignKey]:
        for key in table.foreign_keys:
            if self._keeps(table, key):
                nullable = all(table.column(each).nullable and each != numbered for each in key.columns)
                unknown = {"SET DEFAULT"} if nullable else {"SET DEFAULT", "SET NULL"}
                yield with_actions(key, set(ACTIONS) - unknown)

    def _keeps(self, table: Table, key: ForeignKey) -> bool:
        """Return whether MySQL can have a foreign key; record one whose columns have other types than those there."""
        referred = self._tables.get(key.referenced)
        if referred is None or not referred.columns:
            return False
        sides = [map(of.column, names) for of, names in ((table, key.columns), (referred, key.referenced_columns))]
        same = all(_LENGTH.sub("", one.type) == _LENGTH.sub("", other.type) for one, other in zip(*sides, strict=True))
        if not same:
            what = f"Foreign key {key.name} of {table.table_name}"
            self.lost.append(f"{what} is left out: MySQL requires one type on both sides.")
        return same

    def _numbered(self, table: Table) -> str | None:
        """Return the column that gets AUTO_INCREMENT: one that draws from a sequence, and is the first of a key."""
        first = {key.columns[0] for key in table.unique}
        first |= {table.primary_key.columns[0]} if table.primary_key else set()
        found = None
        for sequence in table.sequences:
            column = sequence.column
            kind = table.column(column).type.removesuffix(" unsigned") if column is not None else ""
            if column in first and sequence.increment == 1 and kind.endswith("int") and found is None:
                found = column
            else:
                self.lost.append(
                    f"Column {table.table_name}.{column} no longer draws from sequence {sequence.table_name}: MySQL"
                    " numbers one column by 1, of integers, with a key of its own."
                )
        return found

    def _column(self, table: Table, column: Column, numbered: str | None) -> Column:
        where = f"{table.table_name}.{column.name}"
        update: dict[str, object] = {
            "default": _default(column),
            "comment": self._comment("column", where, column.comment),
        }
        if column.name == numbered:
            update |= {"identity": "by default", "nullable": False, "default": None}
        if column.arrow_type.endswith(", tz=UTC]"):
            self.lost.append(f"Column {where} holds instants as local times of UTC.")
        length = self._lengths.get((table.table_name, column.name))
        if length is not None and column.type in _SIZED:
            kind, units, _ = _SIZED[column.type]
            update["type"] = f"{kind}({length})"
            self.lost.append(f"Column {where} has at most {length} {units}: it belongs to a key.")
        return column.model_copy(update=update)

    def _comment(self, of: str, where: str, comment: str | None) -> str | None:
        if comment is not None and len(comment) > (longest := _LONGEST[of]):
            self.lost.append(f"Comment of {of} {where} is left out: it has more than {longest} characters.")
            return None
        return comment


def _default(column: Column) -> str | None:
    """Return a default that all kinds of database write so; in parentheses, texts may have one."""
    if column.default == NOW:
        return "(utc_timestamp(6))" if column.arrow_type.endswith(", tz=UTC]") else f"{NOW}(6)"
    text = column.default or ""
    return None if not text or text.startswith("nextval(") else f"({text})" if text.startswith("'") else text


def _key(key: UniqueConstraint | Index, *, unique: bool) -> dict[str, str]:
    return {"definition": f"{'UNIQUE ' if unique else ''}KEY {quoted(key.name)} {listed(key.columns)}"}


def _lengths(schema: DatabaseSchema) -> dict[tuple[TableName, str], int]:
    """Return the lengths of the texts and bytes in keys: columns of a foreign key have those that they refer to."""
    lengths: dict[tuple[TableName, str], int] = {}
    for table in schema.tables:
        name = table.table_name
        keys = [each.columns for each in table.unique] + [each.columns for each in table.indexes]
        keys += [each.columns for each in table.foreign_keys]
        keys += [table.primary_key.columns] if table.primary_key is not None else []
        for columns in keys:
            sized = [column for column in columns if table.column(column).type in _SIZED]
            fixed = 16 * (len(columns) - len(sized))  # more than any other type has
            for column in sized:
                length = (_KEY_BYTES - fixed) // len(sized) // _SIZED[table.column(column).type][2]
                lengths[name, column] = min(length, lengths.get((name, column), length))
    return lengths
