"""Sets defaults after their table, where the code that they call needs the table itself.

A default may call a function of its table's row type, or one that reads a view of the table. The table is created
without its defaults, and they are set as soon as the code exists, as pg_dump does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from snapshot_assets.databases.definition.statements import ObjectKey, Statement
from snapshot_assets.databases.postgresql.ddl.columns import calls, default
from snapshot_assets.databases.postgresql.ddl.inheritance import parents_of
from snapshot_assets.databases.postgresql.ddl.order import circular_defaults, late_code
from snapshot_assets.databases.postgresql.ddl.statements import (
    HAS_DEFAULT,
    Relation,
    RestoreContext,
    checked,
    column_of,
)
from snapshot_assets.databases.sql import identifier, qualified
from snapshot_assets.format.relations import Table, TableName


@dataclass(frozen=True)
class LateDefaults:
    """The tables whose defaults are set later.

    Attributes:
        context: The restore.
        before: Those whose code is created before the rows.
        after: Those whose code is created with the views.
    """

    context: RestoreContext
    before: frozenset[TableName]
    after: frozenset[TableName]

    @property
    def every(self) -> frozenset[TableName]:
        """All these tables."""
        return self.before | self.after

    def statements(self, restored: Mapping[TableName, Table], names: Iterable[TableName]) -> Iterator[Statement]:
        """Yield the statements that set the defaults of some of the tables, as they are restored."""
        for name in sorted(names):
            table = restored[name]
            own = {each.name: each.default for each in table.columns}
            yield from _set(self.context.relation(table), own)
            for part in self.context.partitions(table):
                yield from _set(part, part.options.defaults if self.context.expressions else {})


def late(context: RestoreContext) -> LateDefaults:
    """Return the tables of a restore whose defaults are set later."""
    circular = circular_defaults(context) if context.code else {}
    if not circular:
        return LateDefaults(context, frozenset(), frozenset())
    with_views = late_code(context)
    after = {name for name, circle in circular.items() if circle & set(with_views)}
    before = set(circular) - after
    for names in (before, after):
        _add_heirs(context, names)
    return LateDefaults(context, frozenset(before - after), frozenset(after))


def _add_heirs(context: RestoreContext, names: set[TableName]) -> None:
    """Add the tables that inherit from those, because they take over defaults only when they are created."""
    while more := {
        name for name, table in context.tables.items() if name not in names and names & set(parents_of(context, table))
    }:
        names |= more


def without(table: Table) -> Table:
    """Return a table without its own defaults; generated columns and sequences stay as they are."""
    columns = tuple(
        column.model_copy(update={"default": None}) if calls(column.default) else column for column in table.columns
    )
    return table.model_copy(update={"columns": columns})


def _set(relation: Relation, expressions: Mapping[str, str | None]) -> Iterator[Statement]:
    for column, expression in expressions.items():
        if expression is not None and calls(expression):
            alter = f"ALTER TABLE ONLY {qualified(relation.name)} ALTER COLUMN {identifier(column)} SET DEFAULT"
            made = _default(relation, alter, expression, relation.column(column))
            yield replace(made, there=column_of(relation.name, column, HAS_DEFAULT))


def _default(relation: Relation, alter: str, expression: str, column: ObjectKey) -> Statement:
    by_hand = f"{alter} {expression}"
    key = ObjectKey("default", of=column)
    return checked(key, relation.of, lambda: f"{alter} {default(expression, str(column))}", by_hand)
