"""Views, each after what it reads; materialized ones are filled as they are made."""

from __future__ import annotations

from collections.abc import Iterator

from snapshot_assets.databases.postgresql.ddl import checked_sql as text
from snapshot_assets.databases.postgresql.ddl.columns import column_settings
from snapshot_assets.databases.postgresql.ddl.keys import indexes, properties
from snapshot_assets.databases.postgresql.ddl.statements import Making, capital, column_comments, comment, storage
from snapshot_assets.databases.postgresql.sql import identifier, literal, qualified
from snapshot_assets.databases.target import Statement
from snapshot_assets.format.relations import Index, TableName, View


def restorable(making: Making) -> list[View]:
    """Return the views that can be made, each after those it reads; notes the others."""
    waiting = {view.table_name: view for view in making.schema.views if making.allows(f"View {view.table_name}")}
    there = making.relations - {view.table_name for view in making.schema.views}
    found: list[View] = []
    while ready := [view for view in waiting.values() if there.issuperset(view.depends_on)]:
        for view in ready:
            found.append(view)
            there.add(view.table_name)
            del waiting[view.table_name]
    for name, view in waiting.items():
        missing = sorted(set(view.depends_on) - making.relations)
        # Without a missing relation: views that read each other in a circle, or one that is left out itself.
        reads = ", ".join(map(str, missing or sorted(set(view.depends_on) - there)))
        making.lose(f"View {name} is left out: it reads {reads}, which is not restored.")
    return found


def create(making: Making, views: list[View]) -> Iterator[Statement]:
    """Yield what makes views.

    Args:
        making: What is restored.
        views: The views in order.
    """
    functions: dict[TableName, list[str]] = {}
    empty: set[TableName] = set()
    for view in views:
        name = view.table_name
        called = [each for read in view.depends_on for each in functions.get(read, ())]
        called += _functions(making, view)
        functions[name] = called
        unpopulated = view.materialized and not view.options.get("populated")
        if empty.intersection(view.depends_on) or unpopulated:
            empty.add(name)
        if view.materialized and name in empty and not unpopulated:
            making.lose(f"Materialized view {name} is made empty: it reads one that is empty. Refresh both.")
        unless = " UNION ALL ".join(map(_missing, dict.fromkeys(called)))
        for statement in _create(making, view, filled=name not in empty):
            either = " UNION ALL ".join(filter(None, (statement.unless, unless)))
            yield Statement(statement.makes, statement.sql, name, unless=either)


def _functions(making: Making, view: View) -> list[str]:
    """Return the functions that a view calls and the snapshot does not have."""
    found = []
    for each in map(str, view.options.get("not_carried", ())):
        if each.startswith("function "):
            found.append(each.removeprefix("function "))
            making.lose(
                f"View {view.table_name} calls {each}, which is not in a snapshot: where the target does not have it by"
                " then, the view and those that read it are left out."
            )
        else:
            making.lose(f"{capital(each)} of {view.table_name} is not in a snapshot.")
    return found


def _missing(function: str) -> str:
    return f"SELECT 1 AS one WHERE pg_catalog.to_regprocedure({literal(function)}) IS NULL"


def _create(making: Making, view: View, *, filled: bool) -> Iterator[Statement]:
    name, options = view.table_name, view.options
    kind = "materialized view" if view.materialized else "view"
    what = f"{kind} {name}"
    inner = text.relation_parameters(options, what)
    body = f"{qualified(name)}{storage(options, inner)} AS {text.query(view.definition, what)}"
    data = f" WITH{'' if filled else ' NO'} DATA" if view.materialized else ""
    yield Statement(what, f"CREATE {kind.upper()} {body}{data}", name)
    if options.get("tablespace"):
        making.lose(f"View {name} lay in tablespace {options['tablespace']} and is made in the default one.")
    for column in view.columns:
        if column.default is not None:
            default = text.expression(column.default, f"default of column {name}.{column.name}")
            sql = f"ALTER VIEW {qualified(name)} ALTER COLUMN {identifier(column.name)} SET DEFAULT {default}"
            yield Statement(f"default of column {name}.{column.name}", sql, name)
    yield from comment(kind.upper(), qualified(name), view.comment, what, name)
    yield from column_comments({column.name: column.comment for column in view.columns}, name, name)
    if view.materialized:
        yield from column_settings(options.get("columns", {}), name, name)
        own = [Index.model_validate(index) for index in options.get("indexes", ())]
        yield from indexes(making, name, own, options.get("comments", {}).get("indexes", {}))
        yield from properties(making, name, options, name)
