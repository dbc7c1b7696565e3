"""Tables that inherit from others: which of their columns are their own, and in which way they become heirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from snapshot_assets.databases.postgresql.ddl.statements import Making
from snapshot_assets.format.relations import Column, Table, TableName


@dataclass(frozen=True)
class Family:
    """What a table has of its parents.

    Attributes:
        parents: Tables that it is made as an heir of.
        later: Parents that it is tied to after it was made as a table of its own, because of its columns' order.
        inherited: Columns that it does not declare itself, as the parent has them.
        forbidding: Columns that a parent forbids NULL in, for it and its heirs.
        own_not_null: Columns whose NOT NULL is the table's own beside the parents'.
    """

    parents: tuple[TableName, ...] = ()
    later: tuple[TableName, ...] = ()
    inherited: Mapping[str, Column] = field(default_factory=dict)
    forbidding: frozenset[str] = frozenset()
    own_not_null: frozenset[str] = frozenset()

    def declares_not_null(self, column: Column) -> bool:
        """Tell whether the table itself forbids NULL in a column."""
        return not column.nullable and (column.name not in self.forbidding or column.name in self.own_not_null)


def parents_of(making: Making, table: Table) -> tuple[TableName, ...]:
    """Return the parents that are restored too; if any is not, none."""
    named = tuple(TableName(schema, name) for schema, name in table.options.get("inherits", ()))
    missing = [str(parent) for parent in named if parent not in making.tables]
    if not missing:
        return named
    making.lose(
        f"Table {table.table_name} is restored as a table of its own, with all its columns: it inherits from"
        f" {', '.join(missing)}, which is not restored."
    )
    return ()


def family(making: Making, table: Table) -> Family:
    """Return what a table has of its parents."""
    parents = parents_of(making, table)
    if not parents:
        return Family()
    settings = table.options.get("columns", {})
    from_parents: dict[str, Column] = {}
    forbidding = set()
    for parent in parents:
        theirs = making.tables[parent].options.get("columns", {})
        for column in making.tables[parent].columns:
            from_parents.setdefault(column.name, column)
            if not column.nullable and not theirs.get(column.name, {}).get("not_null_no_inherit"):
                forbidding.add(column.name)
    own = [column.name for column in table.columns if column.name not in from_parents]
    if [*from_parents, *own] != [column.name for column in table.columns]:
        return Family(later=parents)
    flagged = {name for name, options in settings.items() if options.get("not_null_inherited")}
    named = {name for name, options in settings.items() if "not_null_name" in options}
    inherited = {name for name, options in settings.items() if options.get("inherited")}
    return Family(
        parents,
        inherited={name: column for name, column in from_parents.items() if name in inherited},
        forbidding=frozenset(forbidding | flagged),
        own_not_null=frozenset(named - flagged),
    )
