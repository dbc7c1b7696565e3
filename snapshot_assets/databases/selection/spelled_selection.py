"""Gives the names of a selection the spelling of the database's catalog, and refuses two that mean one thing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from snapshot_assets.databases.protocol.refusals import Refusals
from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.errors import PlanError
from snapshot_assets.format.name_texts import printed_name
from snapshot_assets.format.names import ColumnPath, NameRule, Spellings, pattern_of, table_of_pattern
from snapshot_assets.format.relations import TableName

_Column = tuple[TableName, str]


class SpelledNames:
    """The names of a database's catalog, of schemas and of relations with columns, by the names that users write."""

    def __init__(
        self, rule: NameRule, schemas: Collection[str], relations: Mapping[TableName, Collection[str]]
    ) -> None:
        self._rule, self._relations = rule, relations
        self._schemas, self._tables = Spellings(rule, schemas), Spellings(rule, relations)
        self._columns: dict[TableName, Spellings[str]] = {}

    def schema(self, name: str) -> str:
        """Return a schema's name as the catalog spells it; see `Spellings.of`."""
        return self._schemas.of(name)

    def table(self, name: TableName) -> TableName:
        """Return a table's name as the catalog spells it, or at least its schema's."""
        found = self._tables.of(name)
        return TableName(self.schema(found.schema), found.table)

    def _column(self, path: _Column) -> _Column:
        table = self.table(path[0])
        if table not in self._columns:
            self._columns[table] = Spellings(self._rule, self._relations.get(table, ()))
        return table, self._columns[table].of(path[1])

    def pattern(self, pattern: str) -> str:
        """Return a pattern of one table as the catalog spells that; any other pattern as it is."""
        named = table_of_pattern(pattern)
        if named is None or self.table(named) == named:
            return pattern
        return pattern_of(self.table(named))

    def selection(self, given: Selection) -> Selection:
        """Return a selection with the catalog's names; names that the catalog lacks stay as they are."""
        if self._rule is NameRule.EXACT:
            return given
        times = ((self._column((name, column or "")), column) for name, column in given.time_columns.items())
        return replace(
            given,
            schemas=tuple(dict.fromkeys(map(self.schema, given.schemas))),
            tables=tuple(dict.fromkeys(map(self.table, given.tables))),
            time_columns={path[0]: None if column is None else path[1] for path, column in times},
            carriers={self._column(path): carrier for path, carrier in given.carriers.items()},
            exclude_tables=tuple(dict.fromkeys(map(self.pattern, given.exclude_tables))),
            exclude_columns=tuple(dict.fromkeys(map(self._column, given.exclude_columns))),
            masks={self._column(path): sql for path, sql in given.masks.items()},
            names=self._rule,
        )


def refuse_equal_names(selection: Selection, rule: NameRule, refusals: Refusals) -> None:
    """Note names of a selection that mean one schema, table or column, where a database ignores case."""
    for where, what, names in _named(selection):
        for one, other in Spellings(rule, names).equal():
            error = PlanError(
                f"{where} names {_text(one)} and {_text(other)}, which are one {what}: the database ignores case in"
                " names. Name it once.",
                names=(_text(one), _text(other)),
            )
            refusals.note(error)


def _named(selection: Selection) -> Iterator[tuple[str, str, Collection[Any]]]:
    """Yield the names of a selection by where the plan has them, and what they are."""
    patterns = [name for each in selection.exclude_tables if (name := table_of_pattern(each)) is not None]
    yield "schemas", "schema", selection.schemas
    yield "tables", "table", selection.tables
    yield "time_columns", "table", selection.time_columns
    yield "exclude_tables", "table", patterns
    yield "carriers", "column", selection.carriers
    # A column is either left out or masked.
    yield "exclude_columns or mask", "column", [*selection.exclude_columns, *selection.masks]


def _text(name: Any) -> str:
    if isinstance(name, str):
        return printed_name(name)
    return str(name if isinstance(name, TableName) else ColumnPath(*name))
