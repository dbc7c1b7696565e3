"""Creates views, each after the relations that it reads; materialized views are populated at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from snapshot_assets.databases.definition import ObjectKey, Statement, comment
from snapshot_assets.databases.postgresql.ddl import checked_sql as text
from snapshot_assets.databases.postgresql.ddl.columns import column_settings
from snapshot_assets.databases.postgresql.ddl.keys import index, properties
from snapshot_assets.databases.postgresql.ddl.order import views_and_code
from snapshot_assets.databases.postgresql.ddl.statements import (
    HAS_DEFAULT,
    Relation,
    RestoreContext,
    checked,
    column_of,
    with_text,
)
from snapshot_assets.databases.sql import identifier, literal, qualified
from snapshot_assets.format.kinds import calls_lacking
from snapshot_assets.format.relations import TableName, View


def _restorable(context: RestoreContext) -> list[View]:
    """Return the views that can be created, each after those that it reads; record the others as lost."""
    waiting = {view.table_name: view for view in context.schema.views if context.allows(f"View {view.table_name}")}
    created = context.relations - {view.table_name for view in context.schema.views}
    ordered: list[View] = []
    while ready := [view for view in waiting.values() if created.issuperset(view.depends_on)]:
        for view in ready:
            ordered.append(view)
            created.add(view.table_name)
            del waiting[view.table_name]
    for name, view in waiting.items():
        missing = sorted(set(view.depends_on) - context.relations)
        # If no relation is missing, views read each other in a circle, or a view that is left out.
        reads = ", ".join(map(str, missing or sorted(set(view.depends_on) - created)))
        context.lose(f"View {name} is left out: it reads {reads}, which is not restored.")
    return ordered


def create(context: RestoreContext) -> Iterator[Statement]:
    """Yield the statements that create views, and code that needs them; record views that cannot be created as lost."""
    created: dict[TableName, list[Statement]] = {}
    functions: dict[TableName, list[str]] = {}
    empty: set[TableName] = set()
    for view in _restorable(context):
        name = view.table_name
        called = [each for read in view.depends_on for each in functions.get(read, ())]
        called += _functions(context, view)
        functions[name] = called
        unpopulated = view.materialized and not context.views[name].populated
        if empty.intersection(view.depends_on) or unpopulated:
            empty.add(name)
        if view.materialized and name in empty and not unpopulated:
            context.lose(f"Materialized view {name} is created empty: it reads one that is empty. Refresh both.")
        unless = " UNION ALL ".join(
            f"SELECT 1 AS one WHERE pg_catalog.to_regprocedure({literal(each)}) IS NULL"
            for each in dict.fromkeys(called)
        )
        created[name] = []
        for statement in _create(context, view, filled=name not in empty):
            either = " UNION ALL ".join(filter(None, (statement.unless, unless)))
            created[name].append(replace(statement, table=name, unless=either))
    return views_and_code(context, created)


def _functions(context: RestoreContext, view: View) -> list[str]:
    """Return the functions that a view calls, which the snapshot does not carry; record every uncarried object."""
    functions: list[str] = []
    name, not_carried = view.table_name, context.views[view.table_name].not_carried
    for each in not_carried:
        called = each.removeprefix("function ")
        # Without a function that is restored, creating the view fails, and the failure is reported.
        if called != each and not any(context.restores(f"{kind} {called}") for kind in ("function", "aggregate")):
            functions.append(called)
            context.lose(calls_lacking(name, each))
    context.lose_uncarried([each for each in not_carried if not each.startswith("function ")], name)
    return functions


def _create(context: RestoreContext, view: View, *, filled: bool) -> Iterator[Statement]:
    name, options = view.table_name, context.views[view.table_name]
    relation = Relation(name, options, name)
    kind = "materialized view" if view.materialized else "view"
    key = ObjectKey(kind, name)
    what = str(key)
    data = f" WITH{'' if filled else ' NO'} DATA" if view.materialized else ""
    create = f"CREATE {kind.upper()} {qualified(name)}"
    creation = checked(
        key,
        name,
        lambda: f"{create}{relation.storage(what)} AS {text.query(view.definition, what)}{data}",
        f"{create} AS {view.definition.strip().removesuffix(';')}{data}",
    )
    yield replace(creation, reads=view.depends_on if filled and view.materialized else ())
    if tablespace := options.tablespace:
        context.lose(f"View {name} was in tablespace {tablespace} and is created in the default one.")
    for column in view.columns:
        if column.default is not None:
            alter = f"ALTER VIEW {qualified(name)} ALTER COLUMN {identifier(column.name)} SET DEFAULT"
            of_column = ObjectKey("default", of=relation.column(column.name))
            made = with_text(of_column, name, alter, column.default, text.expression)
            yield replace(made, there=column_of(name, column.name, HAS_DEFAULT))
    yield from comment(f"{kind.upper()} {qualified(name)}", view.comment, key, name)
    yield from relation.column_comments({column.name: column.comment for column in view.columns})
    if view.materialized:
        yield from column_settings(relation)
        for each in options.indexes:
            yield from index(context, relation, each.name, each.definition)
        yield from properties(context, relation)
