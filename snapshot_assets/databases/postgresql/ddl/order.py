"""The order in which types, tables and code are created: each object after those that it needs.

Code that needs a view is created after the rows, with the views.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from snapshot_assets.databases.definition.statements import Statement
from snapshot_assets.databases.postgresql.code.needs import everything_needed
from snapshot_assets.databases.postgresql.ddl import types
from snapshot_assets.databases.postgresql.ddl.code import CodeObject, needed_first
from snapshot_assets.databases.postgresql.ddl.statements import RestoreContext, all_checked
from snapshot_assets.format.relations import Table, TableName, UserType


def relation_key(name: TableName) -> str:
    """Return a table or view as `needs` has it."""
    return f"relation {name.dotted}"


def type_key(kind: UserType) -> str:
    """Return a type as `needs` has it."""
    return f"type {kind.table_name.dotted}"


def with_code(
    context: RestoreContext, items: Iterable[UserType | Table], needed_tables: Mapping[TableName, Iterable[TableName]]
) -> Iterator[UserType | Table | CodeObject]:
    """Yield types, tables and the code that comes before the rows.

    Args:
        context: The restore.
        items: Types and tables in an order without code.
        needed_tables: The tables that each table needs.
    """
    needs = {key: list(wanted) for key, wanted in context.needs.items()}
    for table, circle in circular_defaults(context).items():
        needs[relation_key(table)] = [each for each in needs[relation_key(table)] if each not in circle]
    # Two objects may have one key: a table "b.c" of schema a, and a table c of schema "a.b".
    nodes: dict[str, dict[TableName | None, UserType | Table | CodeObject]] = {}
    late = set(late_code(context))
    for each in context.code:
        if each.on is None and each.key not in late:
            nodes.setdefault(each.key, {})[each.type.table_name if each.type else None] = each.type or each
    for schema in context.schemas.values():
        for kind in schema.types:
            nodes.setdefault(type_key(kind), {})[kind.table_name] = kind
    for item in items:
        if isinstance(item, UserType):
            nodes.setdefault(type_key(item), {}).setdefault(item.table_name, item)
            continue
        key = relation_key(item.table_name)
        nodes.setdefault(key, {})[item.table_name] = item
        wanted = [*map(type_key, item.types), *map(relation_key, needed_tables[item.table_name])]
        needs[key] = [*needs.get(key, ()), *wanted]
    return chain.from_iterable(each.values() for each in needed_first(nodes, needs))


def late_code(context: RestoreContext) -> dict[str, CodeObject]:
    """Return the code that needs a view, directly or through others, by kind and name."""
    needed_by: dict[str, list[str]] = {}
    for key, wanted in context.needs.items():
        for each in wanted:
            needed_by.setdefault(each, []).append(key)
    late, waiting = set[str](), [relation_key(view.table_name) for view in context.schema.views]
    while waiting:
        key = waiting.pop()
        if key not in late:
            late.add(key)
            waiting += needed_by.get(key, ())
    return {each.key: each for each in context.code if each.on is None and each.key in late}


def circular_defaults(context: RestoreContext) -> dict[TableName, set[str]]:
    """Return the tables that code needs which they need themselves, with that code.

    Such are tables with a default that calls a function of their own row type. The server has no other way to make
    these than to set the default later; a table that inherits from one of them takes the default over in vain.
    """
    needs = {key: set(wanted) for key, wanted in context.needs.items()}
    for view in context.schema.views:
        needs.setdefault(relation_key(view.table_name), set()).update(map(relation_key, view.depends_on))
    code = {each.key for each in context.code}
    circular: dict[TableName, set[str]] = {}
    for name in context.tables:
        key = relation_key(name)
        circle = {each for each in needs.get(key, ()) if each in code and key in everything_needed((each,), needs)}
        if circle:
            circular[name] = circle
    return circular


def views_and_code(context: RestoreContext, views: Mapping[TableName, list[Statement]]) -> Iterator[Statement]:
    """Yield the statements of views, given by view, and of the code that needs views."""
    late = late_code(context)
    nodes: dict[str, list[Statement]] = {key: list(created(context, each)) for key, each in late.items()}
    needs = {key: list(wanted) for key, wanted in context.needs.items()}
    depends_on = {view.table_name: view.depends_on for view in context.schema.views}
    for name, statements in views.items():
        nodes.setdefault(relation_key(name), []).extend(statements)
        needs.setdefault(relation_key(name), []).extend(map(relation_key, depends_on[name]))
    return chain.from_iterable(needed_first(nodes, needs))


def created(context: RestoreContext, each: CodeObject) -> Iterator[Statement]:
    """Yield the statements of an object that belongs to no relation."""
    made = types.create(context, each.type) if each.type else each.statements()
    return iter(all_checked(each.made, None, made))
