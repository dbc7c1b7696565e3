"""The order in which types, tables and code are created: each object after those that it needs.

Code that needs a view is created after the rows, with the views. A default may call a function of its table's row type,
or one that reads a view of the table. Then the table is created without its defaults, and they are set as soon as the
code exists, as pg_dump does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain

from snapshot_assets.databases.definition import ObjectKey, Statement
from snapshot_assets.databases.postgresql.code.needs import everything_needed
from snapshot_assets.databases.postgresql.ddl import checked_sql as text
from snapshot_assets.databases.postgresql.ddl import types
from snapshot_assets.databases.postgresql.ddl.code import CodeObject, needed_first
from snapshot_assets.databases.postgresql.ddl.columns import calls
from snapshot_assets.databases.postgresql.ddl.inheritance import parents_of
from snapshot_assets.databases.postgresql.ddl.statements import (
    HAS_DEFAULT,
    Relation,
    RestoreContext,
    all_checked,
    column_of,
    with_text,
)
from snapshot_assets.databases.sql import identifier, qualified
from snapshot_assets.format.relations import Table, TableName, UserType


def _relation_key(name: TableName) -> str:
    """Return a table or view as `needs` has it."""
    return f"relation {name.dotted}"


def _type_key(kind: UserType) -> str:
    return f"type {kind.table_name.dotted}"


def with_code(
    context: RestoreContext, items: Iterable[UserType | Table], needed_tables: Mapping[TableName, Iterable[TableName]]
) -> Iterator[UserType | Table | CodeObject]:
    """Yield types and tables, given in an order without code, and the code that comes before the rows."""
    needs = {key: list(wanted) for key, wanted in context.needs.items()}
    for table, circle in _circular_defaults(context).items():
        needs[_relation_key(table)] = [each for each in needs[_relation_key(table)] if each not in circle]
    # Two objects may have one key: a table "b.c" of schema a, and a table c of schema "a.b".
    nodes: dict[str, dict[TableName | None, UserType | Table | CodeObject]] = {}
    late = set(_late_code(context))
    for each in context.code:
        if each.on is None and each.key not in late:
            nodes.setdefault(each.key, {})[each.type.table_name if each.type else None] = each.type or each
    for schema in context.schemas.values():
        for kind in schema.types:
            nodes.setdefault(_type_key(kind), {})[kind.table_name] = kind
    for item in items:
        if isinstance(item, UserType):
            nodes.setdefault(_type_key(item), {}).setdefault(item.table_name, item)
            continue
        key = _relation_key(item.table_name)
        nodes.setdefault(key, {})[item.table_name] = item
        wanted = [*map(_type_key, item.types), *map(_relation_key, needed_tables[item.table_name])]
        needs[key] = [*needs.get(key, ()), *wanted]
    return chain.from_iterable(each.values() for each in needed_first(nodes, needs))


def _late_code(context: RestoreContext) -> dict[str, CodeObject]:
    """Return the code that needs a view, directly or through others, by kind and name."""
    needed_by: dict[str, list[str]] = {}
    for key, wanted in context.needs.items():
        for each in wanted:
            needed_by.setdefault(each, []).append(key)
    late, waiting = set[str](), [_relation_key(view.table_name) for view in context.schema.views]
    while waiting:
        key = waiting.pop()
        if key not in late:
            late.add(key)
            waiting += needed_by.get(key, ())
    return {each.key: each for each in context.code if each.on is None and each.key in late}


def _circular_defaults(context: RestoreContext) -> dict[TableName, set[str]]:
    """Return the tables that code needs which they need themselves, with that code.

    Such are tables with a default that calls a function of their own row type; it can only be set later.
    """
    needs = {key: set(wanted) for key, wanted in context.needs.items()}
    for view in context.schema.views:
        needs.setdefault(_relation_key(view.table_name), set()).update(map(_relation_key, view.depends_on))
    code = {each.key for each in context.code}
    circular: dict[TableName, set[str]] = {}
    for name in context.tables:
        key = _relation_key(name)
        circle = {each for each in needs.get(key, ()) if each in code and key in everything_needed((each,), needs)}
        if circle:
            circular[name] = circle
    return circular


def views_and_code(context: RestoreContext, views: Mapping[TableName, list[Statement]]) -> Iterator[Statement]:
    """Yield the statements of views, given by view, and of the code that needs views."""
    nodes: dict[str, list[Statement]] = {}
    for key, each in _late_code(context).items():
        made = types.create(context, each.type) if each.type else each.statements()
        nodes[key] = all_checked(each.made, None, made)
    needs = {key: list(wanted) for key, wanted in context.needs.items()}
    depends_on = {view.table_name: view.depends_on for view in context.schema.views}
    for name, statements in views.items():
        nodes.setdefault(_relation_key(name), []).extend(statements)
        needs.setdefault(_relation_key(name), []).extend(map(_relation_key, depends_on[name]))
    return chain.from_iterable(needed_first(nodes, needs))


def late_defaults(context: RestoreContext) -> tuple[set[TableName], set[TableName]]:
    """Return the tables whose defaults are set later: with code that comes before the rows, and with the views."""
    circular = _circular_defaults(context) if context.code else {}
    if not circular:
        return set(), set()
    with_views = _late_code(context)
    after = {name for name, circle in circular.items() if circle & set(with_views)}
    before = set(circular) - after
    parents = {name: set(parents_of(context, table)) for name, table in context.tables.items()}
    for names in (before, after):  # the tables that inherit from those take over defaults only when they are created
        while heirs := {name for name, own in parents.items() if name not in names and names & own}:
            names |= heirs
    return before - after, after


def without_defaults(table: Table) -> Table:
    """Return a table without its own defaults; generated columns and sequences stay as they are."""
    columns = tuple(
        column.model_copy(update={"default": None}) if calls(column.default) else column for column in table.columns
    )
    return table.model_copy(update={"columns": columns})


def set_defaults(
    context: RestoreContext, restored: Mapping[TableName, Table], names: Iterable[TableName]
) -> Iterator[Statement]:
    """Yield the statements that set the defaults of some of the tables, as they are restored."""
    for name in sorted(names):
        table = restored[name]
        yield from _set(context.relation(table), {each.name: each.default for each in table.columns})
        for part in context.partitions(table):
            yield from _set(part, part.options.defaults if context.expressions else {})


def _set(relation: Relation, expressions: Mapping[str, str | None]) -> Iterator[Statement]:
    for column, expression in expressions.items():
        if expression is not None and calls(expression):
            alter = f"ALTER TABLE ONLY {qualified(relation.name)} ALTER COLUMN {identifier(column)} SET DEFAULT"
            key = ObjectKey("default", of=relation.column(column))
            made = with_text(key, relation.of, alter, expression, text.expression)
            yield replace(made, there=column_of(relation.name, column, HAS_DEFAULT))
