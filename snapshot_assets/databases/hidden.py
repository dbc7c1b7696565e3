"""Columns and tables that a plan hides: columns that it leaves out or masks, and tables that match its patterns."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from snapshot_assets.databases.masks import MASKS
from snapshot_assets.databases.source import Selection
from snapshot_assets.databases.sql import identifier
from snapshot_assets.format.names import ColumnPath
from snapshot_assets.format.patterns import matches
from snapshot_assets.format.relations import TableName

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
