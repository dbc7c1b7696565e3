"""Code that needs what a restore does not make: tables that are not chosen, foreign tables, languages, transforms.

Such code is created only where the target has what it needs. It is named, and does not fail an import for ever.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from snapshot_assets.databases.postgresql.code.needs import everything_needed
from snapshot_assets.databases.postgresql.ddl.code import CodeObject
from snapshot_assets.databases.sql import literal
from snapshot_assets.format.relations import TableName, View

_THERE = {
    "relation": "pg_catalog.pg_class o JOIN pg_catalog.pg_namespace n ON n.oid = o.relnamespace"
    " WHERE pg_catalog.format('%s.%s', n.nspname, o.relname)",
    "language": "pg_catalog.pg_language o WHERE pg_catalog.quote_ident(o.lanname)",
    "transform": "pg_catalog.pg_transform o JOIN pg_catalog.pg_language l ON l.oid = o.trflang"
    " WHERE pg_catalog.format('for %s language %I', pg_catalog.format_type(o.trftype, NULL), l.lanname)",
}
"""By the kind of an object that may be lacking: FROM item and expression of its name."""


def with_lacking(
    code: Iterable[CodeObject], needs: Mapping[str, Iterable[str]], made: Collection[str]
) -> Iterator[tuple[CodeObject, tuple[str, ...]]]:
    """Yield code, each with the queries for what it needs that a restore does not make, and with the names of that.

    Args:
        code: The code of a snapshot.
        needs: What objects need directly, by kind and name.
        made: The relations that a restore makes, as `needs` has them.
    """
    wanted = {key: set(each) for key, each in needs.items()}
    for each in code:
        needed = everything_needed((each.key,), wanted) if each.on is None else ()
        missing = tuple(sorted(key for key in needed if key.partition(" ")[0] in _THERE and key not in made))
        yield each.model_copy(update={"lacking": tuple(map(_lacking, missing))}), missing


def _lacking(key: str) -> str:
    kind, _, name = key.partition(" ")
    return f"SELECT 1 AS one WHERE NOT EXISTS (SELECT FROM {_THERE[kind]} = {literal(name)})"


def restored_relations(views: Iterable[View], relations: Collection[TableName]) -> set[TableName]:
    """Return relations without the views that read something else."""
    waiting = {view.table_name: set(view.depends_on) for view in views}
    made = set(relations) - set(waiting)
    while ready := {name for name, read in waiting.items() if read <= made}:
        made |= ready
        waiting = {name: read for name, read in waiting.items() if name not in ready}
    return made
