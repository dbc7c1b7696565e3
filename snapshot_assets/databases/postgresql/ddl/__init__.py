"""Builds the statements that create a PostgreSQL schema from its documents, which may be hostile; see `checked_sql`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain

from snapshot_assets.databases.convert.renaming import LONGEST, too_long
from snapshot_assets.databases.definition import (
    AVAILABLE_EXTENSION,
    Definition,
    Need,
    ObjectKey,
    Statement,
    merge_needs,
    recorded_needs,
)
from snapshot_assets.databases.postgresql import KIND
from snapshot_assets.databases.postgresql.ddl import checked_sql as text
from snapshot_assets.databases.postgresql.ddl import columns, keys, tables, types, views
from snapshot_assets.databases.postgresql.ddl.code import CodeObject
from snapshot_assets.databases.postgresql.ddl.inheritance import parents_of
from snapshot_assets.databases.postgresql.ddl.order import late_defaults, set_defaults, with_code, without_defaults
from snapshot_assets.databases.postgresql.ddl.statements import RestoreContext, all_checked, in_order
from snapshot_assets.databases.postgresql.large_objects import LARGE_OBJECTS, is_large_objects
from snapshot_assets.databases.protocol.target import LEDGER_SCHEMA
from snapshot_assets.errors import RestoreError
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName, UserType

__all__ = ["define"]


def define(schema: DatabaseSchema, *, expressions: bool = True, code: bool = False) -> Definition:
    """Return how to create a schema of PostgreSQL; see `DatabaseModule`."""
    context = RestoreContext(schema, expressions, code)
    for name in sorted(context.relations):
        if name.schema == LEDGER_SCHEMA:
            raise RestoreError(
                f"Table {name} is refused: its schema is reserved for the ledger of imports. Restore without it.",
                object=str(name),
            )
    for table in schema.tables:
        if table.table_name == LARGE_OBJECTS and not is_large_objects(table):
            raise RestoreError(
                f"Table {LARGE_OBJECTS} is refused: the name is reserved for large objects. Restore without it.",
                object=str(LARGE_OBJECTS),
            )
    for options in context.schemas.values():
        context.lose_uncarried(options.not_carried)
    context.lose_code()
    items = list(_creation_order(context))
    restored = {each.table_name: tables.as_restored(context, each) for each in items if isinstance(each, Table)}
    used = columns.sequence_uses(context)
    before = list(types.schemas_and_extensions(context))
    for use in used:
        before += columns.create_sequence(use)
    late_before, late_after = late_defaults(context)
    context.late_defaults = late_before | late_after
    unvalidated: list[Statement] = []
    for item in items:
        if isinstance(item, CodeObject):
            before += all_checked(item.made, None, item.statements())
        elif isinstance(item, UserType):
            before += all_checked(ObjectKey("type", item.table_name), None, types.create(context, item))
            unvalidated += types.unvalidated_checks(context, item)
        elif not is_large_objects(item):
            table = restored[item.table_name]
            table = without_defaults(table) if item.table_name in context.late_defaults else table
            before += all_checked(ObjectKey("table", item.table_name), item.table_name, tables.create(context, table))
    before += set_defaults(context, restored, late_before)
    for table in restored.values():
        before += tables.settings(context, table)
    for use in used:
        before += columns.own_sequence(use)
    if not context.code:  # else they are in the order
        before += types.create_unused_types(context)
    after = [*unvalidated, *_after(context, list(restored.values()), used)]
    after += set_defaults(context, restored, late_after)
    documented = tuple(restored[name] for name in context.tables)
    lost, needed = tuple(context.lost), _needs(context, (*before, *after))
    drawn = tuple((use.name, table) for use in used if not use.identity for table in sorted(use.tables))
    refused = too_long(schema, KIND.title, LONGEST)
    return Definition(documented, tuple(before), tuple(after), lost, needed, refused, drawn)


def _after(
    context: RestoreContext, restored: list[Table], used: Collection[columns.SequenceUse]
) -> Iterator[Statement]:
    # A table's own check comes before that of its parent: one that is not validated would be passed on to it first.
    children_first = list(reversed(restored))
    for part, ordered in (
        (keys.keys, restored),
        (keys.checks, children_first),
        (tables.inherit, restored),
        (keys.indexes, restored),
    ):
        for table in ordered:
            yield from part(context, table)
    for use in used:
        yield from columns.advance_sequence(use)
    for table in restored:
        yield from columns.advance_own(context, table)
    for table in restored:
        yield from keys.foreign_keys(context, table)
    yield from views.create(context)
    owners = {part.name: part.of for table in restored for part in context.partitions(table)}
    for each in context.code:
        if each.on in context.relations:
            of = owners.get(each.on, each.on)
            yield from all_checked(each.made, of, each.statements(of))


def _needed_tables(context: RestoreContext, table: Table, owners: Mapping[TableName, TableName]) -> list[TableName]:
    """Return the tables to create before a table; `owners` are those of the sequences of identity columns."""
    name = table.table_name
    # A table creates the sequence of its identity column; another table's default may draw from it too.
    used = (each.table_name for each in table.sequences)
    drawn_from = [owners[each] for each in used if owners.get(each, name) != name]
    views = {view.table_name for view in context.schema.views}
    row_types = _row_types_of(context, table)
    for needed in row_types:
        if needed in views:
            types_of = {each.name: text.qualified_name(each.type.removesuffix("[]")) for each in table.columns}
            holding = [f"{name}.{column}" for column, row_type in types_of.items() if row_type == needed]
            context.refused[name] = RestoreError(  # deeper inside a column's type, the table itself is named
                f"{' and '.join(holding) or name} holds rows of the type of view {needed}, and views are created after"
                f" all rows. Create {name} yourself, with a type of your own there, or restore only other tables with"
                " --tables.",
                table=table_text(name),
            )
    created = [each for each in row_types if each in context.tables]
    return [*created, *parents_of(context, table), *drawn_from]


def _creation_order(context: RestoreContext) -> Iterable[UserType | Table | CodeObject]:
    """Yield every type and table once, each after those that it depends on, and code where it is restored."""
    owners = {
        sequence.table_name: table.table_name
        for table in context.schema.tables
        for sequence in context.identity_sequences(table).values()
    }
    needed = {name: _needed_tables(context, table, owners) for name, table in context.tables.items()}
    items: dict[tuple[str, TableName], UserType | Table] = {}
    for name in in_order(needed, "tables"):
        for kind in context.tables[name].types:
            items.setdefault(("type", kind.table_name), kind)
        items["table", name] = context.tables[name]
    for options in context.views.values():
        for kind in options.types:
            items.setdefault(("type", kind.table_name), kind)
    return with_code(context, items.values(), needed) if context.code else items.values()


_WITH_ROW_TYPE = ("table", "partition", "view", "materialized view")
"""Statements that also create the type of a relation's rows."""


def _needs(context: RestoreContext, statements: Iterable[Statement]) -> tuple[Need, ...]:
    """Return what must exist before the tables are created, each object after those that it needs.

    What the restore's statements make need not exist, unless a function needs it too.
    """
    keys = {statement.key for statement in statements}
    made = set(map(str, keys))
    tables, expressions = context.schema.tables, context.expressions
    listed = (
        each
        for table in tables
        for each in recorded_needs(table.table_name, context.options(table).needs, expressions=expressions)
    )
    row_types = (  # of relations that are not restored, such as foreign tables
        Need("type", each.dotted, (table.table_name,), (f"table {table.table_name.dotted}",))
        for table in tables
        for each in _row_types_of(context, table)
        if each not in context.tables
    )
    every = merge_needs(chain(listed, row_types))
    others = {need.label for need in every} - made
    kept = [need for need in every if need.label in others or others.intersection(need.used_by)]
    rows = {str(ObjectKey("type", key.name)) for key in keys if key.kind in _WITH_ROW_TYPE}
    # The import itself installs extensions in the database, if the server has their files.
    users = [("table", name, context.options(table).extensions) for name, table in context.tables.items()]
    users += [("view", name, options.extensions) for name, options in context.views.items()]
    extensions = merge_needs(
        Need(AVAILABLE_EXTENSION, extension, (name,), (f"{kind} {name.dotted}",))
        for kind, name, extensions in users
        for extension in extensions
    )
    by_name = sorted(extensions, key=lambda need: need.name)
    return (*by_name, *(need for need in kept if need.label not in rows))


def _row_types_of(context: RestoreContext, table: Table) -> list[TableName]:
    """Return the relations whose row types a table has, for partitions their table; without those of the system."""
    named = context.options(table).row_types
    every = context.tables.items() if named else ()
    owner_of = {part.name: owner for owner, each in every for part in context.partitions(each)}
    system = ("pg_catalog", "information_schema")
    return [owner_of.get(each, each) for each in named if each.schema not in system]
