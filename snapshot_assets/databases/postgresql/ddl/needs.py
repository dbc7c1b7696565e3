"""Which objects a restored schema needs that a snapshot does not contain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from snapshot_assets.databases.definition.needs import AVAILABLE_EXTENSION, Need, merged, recorded
from snapshot_assets.databases.definition.statements import ObjectKey, Statement
from snapshot_assets.databases.postgresql.ddl.statements import RestoreContext
from snapshot_assets.format.relations import Table, TableName, View

_WITH_ROW_TYPE = ("table", "partition", "view", "materialized view")
"""Statements that also create the type of a relation's rows."""


def needs(context: RestoreContext, statements: Iterable[Statement]) -> tuple[Need, ...]:
    """Return what must exist before the tables are created, each object after those that it needs.

    Args:
        context: The schema.
        statements: The restore's statements: what they make need not exist, unless a function needs it too.
    """
    keys = {statement.key for statement in statements}
    made = set(map(str, keys))
    tables, expressions = context.schema.tables, context.expressions
    listed = (
        each
        for table in tables
        for each in recorded(table.table_name, context.options(table).needs, expressions=expressions)
    )
    every = merged(chain(listed, _row_types(context)))
    others = {need.label for need in every} - made
    kept = [need for need in every if need.label in others or others.intersection(need.used_by)]
    rows = {str(ObjectKey("type", key.name)) for key in keys if key.kind in _WITH_ROW_TYPE}
    return (*_extensions(context), *(need for need in kept if need.label not in rows))


def row_types_of(context: RestoreContext, table: Table) -> list[TableName]:
    """Return the relations whose row types a table has, for partitions their table; without those of the system."""
    named = context.options(table).row_types
    every = context.tables.items() if named else ()
    owner_of = {part.name: owner for owner, each in every for part in context.partitions(each)}
    system = ("pg_catalog", "information_schema")
    return [owner_of.get(each, each) for each in named if each.schema not in system]


def _row_types(context: RestoreContext) -> Iterator[Need]:
    """Yield the row types of relations that are not restored, such as foreign tables."""
    for table in context.schema.tables:
        for each in row_types_of(context, table):
            if each not in context.tables:
                yield Need("type", each.dotted, (table.table_name,), (f"table {table.table_name.dotted}",))


def _extensions(context: RestoreContext) -> Iterator[Need]:
    """Yield the extensions whose files the server must have: the import itself installs them in the database."""
    users: dict[str, list[Table | View]] = {}
    for table in context.schema.tables:
        for name in context.options(table).extensions:
            users.setdefault(name, []).append(table)
    for view in context.schema.views:
        for name in context.views[view.table_name].extensions:
            users.setdefault(name, []).append(view)
    for name, those in sorted(users.items()):
        used_by = (f"{'table' if isinstance(each, Table) else 'view'} {each.table_name.dotted}" for each in those)
        yield Need(AVAILABLE_EXTENSION, name, tuple(each.table_name for each in those), tuple(used_by))
