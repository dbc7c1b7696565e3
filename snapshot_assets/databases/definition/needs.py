"""Objects that a target must have before an import can create tables, because a snapshot does not contain them."""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Iterator
from dataclasses import dataclass, replace

from snapshot_assets.format.options import NeedEntry
from snapshot_assets.format.relations import DatabaseSchema, TableName

AVAILABLE_EXTENSION = "available extension"
"""Kind of an extension whose files a server has, installed in the database or not."""


_AFTER_ROWS = re.compile(r"(?:constraint|foreign key|index|statistics|view|materialized view) ")
"""Parts of a schema that an import creates after the rows, and that say nothing about a row's values."""


@dataclass(frozen=True)
class Need:
    """An object that tables depend on.

    Attributes:
        kind: Its kind, such as `function`.
        name: Its name as the source's server prints it, such as `public.f(integer)`.
        tables: The tables that cannot be created without it.
        used_by: What depends on it: parts of these tables, or other needs.
        sql: The statements that create it, in order; none if the export could not write them.
    """

    kind: str
    name: str
    tables: tuple[TableName, ...] = ()
    used_by: tuple[str, ...] = ()
    sql: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Kind and name, as the text of an `ObjectKey` has them."""
        return f"{self.kind} {self.name}"


def merged(needs: Iterable[Need]) -> tuple[Need, ...]:
    """Return the needs of several tables, each object once, in the order of its first table."""
    by_label: dict[str, Need] = {}
    for need in needs:
        known = by_label.get(need.label, need)
        tables = tuple(dict.fromkeys((*known.tables, *need.tables)))
        used_by = tuple(dict.fromkeys((*known.used_by, *need.used_by)))
        by_label[need.label] = replace(known, tables=tables, used_by=used_by)
    return tuple(by_label.values())


def recorded(table: TableName, entries: Iterable[NeedEntry], *, expressions: bool = True) -> Iterator[Need]:
    """Yield what a table's document records as needed, each object after those that it needs itself.

    Args:
        table: The table.
        entries: The entries in its options.
        expressions: Whether SQL text of the document is restored, such as defaults and checks.
    """
    for entry in entries:
        if expressions or not entry.text:
            yield Need(entry.kind, entry.name, (table,), entry.used_by, entry.sql)


def of_rows(needs: Collection[Need]) -> set[str]:
    """Return the labels of needs without which rows have no table: what only keys, indexes and views need is not."""
    users = {need.label: need.used_by for need in needs}
    found: set[str] = set()
    while True:
        more = {label for label, parts in users.items() if any(_holds_rows(part, users, found) for part in parts)}
        if more == found:
            return found
        found = more


def _holds_rows(part: str, labels: Container[str], found: Container[str]) -> bool:
    if part in labels:
        return part in found
    return _AFTER_ROWS.match(part) is None


def carried_types(schema: DatabaseSchema) -> set[str]:
    """Return the labels of types that a schema's documents contain: those of columns, and those of tables' rows."""
    types = {kind.table_name for table in schema.tables for kind in table.types}
    return {f"type {name.dotted}" for name in (*types, *(table.table_name for table in schema.tables))}
