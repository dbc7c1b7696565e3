"""Creates tables with their columns and partitions, before the data is loaded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from snapshot_assets.databases.definition import Create, ObjectKey, Statement, comment
from snapshot_assets.databases.postgresql.ddl import checked_sql as text
from snapshot_assets.databases.postgresql.ddl.columns import calls, column_settings, identity, not_null, typed, value
from snapshot_assets.databases.postgresql.ddl.inheritance import (
    Inheritance,
    Way,
    create_through_helper,
    forbids_itself,
    has_identity_inline,
    inheritance,
    inherits_not_null,
    own_expressions,
    own_not_nulls,
    own_properties,
)
from snapshot_assets.databases.postgresql.ddl.inheritance import inherit as inherit_from
from snapshot_assets.databases.postgresql.ddl.statements import (
    Partition,
    Relation,
    RestoreContext,
    before_version,
    from_version,
    has_checks,
    partition_of,
)
from snapshot_assets.databases.sql import identifier, qualified
from snapshot_assets.errors import RestoreError
from snapshot_assets.format.kinds import capital
from snapshot_assets.format.names import table_text
from snapshot_assets.format.options import ColumnOptions, RelationOptions
from snapshot_assets.format.relations import Column, Table


def as_restored(context: RestoreContext, table: Table) -> Table:
    """Return a table's document for the target.

    Without expressions, a generated column becomes a plain one: its values are in the files.
    """
    columns = []
    sequences = {sequence.table_name for sequence in table.sequences}
    for column in table.columns:
        where = f"{table.table_name.dotted}.{column.name}"
        plain = text.drawn_from(column.default) in sequences
        if column.generated is not None and not context.expressions:
            context.lose(
                f"Column {where} is restored with its values and no longer generated: no SQL text is restored."
            )
            column = column.model_copy(update={"generated": None, "generated_kind": None})
        elif column.default is not None and not context.allows(f"Default of column {where}", plain):
            column = column.model_copy(update={"default": None})
        columns.append(column)
    return table.model_copy(update={"columns": tuple(columns)})


def create(context: RestoreContext, table: Table) -> Iterator[Statement]:
    """Yield the statements that create a table, from `as_restored`, its partitions, and their comments."""
    relation, name = context.relation(table), table.table_name
    key = ObjectKey("table", name)
    if name in context.refused:
        raise context.refused[name]
    _record_lost(context, table)
    kin, identities = inheritance(context, table), context.identity_sequences(table)
    elements = dict(_elements(context, table, kin))
    not_nulls = dict(own_not_nulls(relation, table, kin))
    if kin.way is Way.HELPER:
        storage, shared = relation.storage(str(key)), dict(_shared_elements(context, table, kin))
        yield from create_through_helper(
            relation, elements, kin, storage=storage, shared=shared, not_nulls=not_nulls.values()
        )
    elif not not_nulls:
        yield from _create(context, relation, elements.values(), kin)
    else:
        # CREATE TABLE names them as they are named in the source, where the server knows their names.
        for statement in _create(context, relation, [*elements.values(), *not_nulls], kin):
            yield replace(statement, unless=before_version(18))
        for statement in (*_create(context, relation, elements.values(), kin), *not_nulls.values()):
            yield replace(statement, unless=from_version(18))
    if kin.way is Way.AT_ONCE:
        yield from inherit_from(relation, kin.parents)
    yield from comment(f"TABLE {qualified(name)}", table.comment, key, name)
    yield from relation.column_comments({column.name: column.comment for column in table.columns})
    yield from own_properties(relation, table, kin, identities)
    for part in context.partitions(table):
        yield from _create_partition(context, table, part)


def _create(
    context: RestoreContext, relation: Relation, elements: Iterable[str], kin: Inheritance
) -> Iterator[Statement]:
    name, key = relation.name, ObjectKey("table", relation.name)
    of_type = context.options(context.tables[name]).of_type
    listed = ", ".join(elements)
    body = f" ({listed})" if listed or not of_type else ""
    if of_type:
        body = f" OF {text.type_text(of_type, str(key))}{body}"
    if kin.way is Way.CLAUSE:
        body += f" INHERITS ({', '.join(map(qualified, kin.parents))})"
    partitioned = name in context.partition_keys
    if partitioned:
        body += f" PARTITION BY {context.partition_keys[name]}"
    yield from _create_table(relation, f"{body}{relation.storage(str(key))}", key, partitioned=partitioned)


def _create_table(relation: Relation, body: str, key: ObjectKey, *, partitioned: bool) -> Iterator[Statement]:
    """Yield CREATE TABLE; since PostgreSQL 18, a partitioned table cannot be unlogged."""
    logged = Statement(key, f"CREATE TABLE {qualified(relation.name)}{body}", relation.of)
    unlogged = replace(logged, sql=f"CREATE UNLOGGED TABLE {qualified(relation.name)}{body}")
    if not relation.unlogged:
        yield logged
    elif not partitioned:
        yield unlogged
    else:
        yield replace(unlogged, unless=from_version(18))
        yield replace(logged, unless=before_version(18))


def settings(context: RestoreContext, table: Table) -> Iterator[Statement]:
    """Yield the settings of columns, after all tables: a new one would take over those of its parents."""
    yield from column_settings(context.relation(table))
    yield from own_expressions(context, table)
    for part in context.partitions(table):
        yield from column_settings(part)


def inherit(context: RestoreContext, table: Table) -> Iterator[Statement]:
    """Yield the INHERIT clauses of a table that has the checks of its parents by now; see `inheritance`."""
    kin = inheritance(context, table)
    if kin.way is Way.LATER:
        yield from inherit_from(context.relation(table), kin.parents)


def _record_lost(context: RestoreContext, table: Table) -> None:
    name, options = table.table_name, context.options(table)
    if options.hypertable:
        context.lose(
            f"Table {name} is a TimescaleDB hypertable and is restored as a plain table. Create the hypertable again."
        )
    if options.relation in ("view", "materialized view", "foreign table"):
        context.lose(f"{capital(options.relation)} {name} was exported as its rows and is restored as a table.")
    for each in (context.relation(table), *context.partitions(table)):
        if tablespace := each.options.tablespace:
            context.lose(f"Table {each.name} was in tablespace {tablespace} and is created in the default one.")
        context.lose_uncarried(each.options.not_carried, each.name)


def _elements(context: RestoreContext, table: Table, kin: Inheritance) -> Iterator[tuple[str, str]]:
    """Yield the name and the definition of each column that CREATE TABLE names."""
    of_table, identities = context.options(table), context.identity_sequences(table)
    for column in table.columns:
        name, options = column.name, of_table.column(column.name)
        if kin.way is Way.CLAUSE and name in kin.inherited:
            continue
        place = f"column {table.table_name.dotted}.{name}"
        valued = column
        if name in kin.columns:  # its identity follows
            generated, theirs = column.generated, kin.columns[name].generated
            if kin.way is Way.CLAUSE and generated == theirs:
                generated = None  # it is inherited
            elif name in kin.inherited and generated is not None:
                generated = theirs  # its own expression follows
            inline = column.identity if has_identity_inline(column, kin) else None
            valued = column.model_copy(update={"identity": inline, "generated": generated})
        by_helper = kin.way is Way.HELPER and name in kin.inherited
        constraint = _passed_on(table, column, options, kin) if by_helper else _not_null(column, options, kin)
        rest = f"{value(valued, identities.get(name), place)}{constraint}"
        if not of_table.of_type:
            yield name, f"{typed(column, place)}{rest}"
        elif rest:
            yield name, f"{identifier(name)} WITH OPTIONS{rest}"


def _shared_elements(context: RestoreContext, table: Table, kin: Inheritance) -> Iterator[tuple[str, str]]:
    """Yield the table's own columns that the helper needs too: those read by expressions, or with its NOT NULL."""
    generated = any(column.generated is not None for column in table.columns if column.name in kin.inherited)
    for column in table.columns:
        name = column.name
        if name in kin.columns and name not in kin.inherited:
            constraint = _passed_on(table, column, context.options(table).column(name), kin)
            if constraint or (generated and column.generated is None):
                yield name, f"{typed(column, f'column {table.table_name.dotted}.{name}')}{constraint}"


def _passed_on(table: Table, column: Column, options: ColumnOptions, kin: Inheritance) -> str:
    """Return the clause by which the helper forbids NULL in a column, under the name that the table has for it."""
    passed_on = inherits_not_null(column.name, options, kin)
    if column.name in kin.inherited:
        passed_on = column.name in kin.forbidden and not forbids_itself(column, options, kin)
    if not passed_on:
        return ""
    name = options.not_null_name or f"{table.name}_{column.name}_not_null"
    return not_null(options.model_copy(update={"not_null_name": name}))


def _not_null(column: Column, options: ColumnOptions, kin: Inheritance) -> str:
    """Return the clause of CREATE TABLE that forbids NULL in a column."""
    own = forbids_itself(column, options, kin)
    if kin.way is Way.CLAUSE:
        return not_null(options) if own else ""
    if kin.way is Way.HELPER and inherits_not_null(column.name, options, kin):
        return ""  # the helper forbids it
    return not_null(options) if not column.nullable or column.name in kin.forbidden else ""


def _create_partition(context: RestoreContext, table: Table, part: Partition) -> Iterator[Statement]:
    """Yield the statements that create a partition as a table and then attach it, so that it keeps its own names."""
    name, of, options = part.name, part.of, part.options
    key = ObjectKey("partition", name)
    what = str(key)
    if options.relation == "foreign table":
        context.lose(f"Partition {name} was a foreign table and is restored as a plain table with its rows.")
    columns = {column.name: column for column in table.columns}
    order = options.column_order or list(columns)
    if set(order) != set(columns):
        raise RestoreError(f"Partition {name} has other columns than its table {of}.", table=table_text(name))
    elements = ", ".join(_partition_column(context, columns[each], part) for each in order)
    divided = options.partition_by
    by = f" PARTITION BY {text.partition_key(divided, f'partition key of {name.dotted}')[0]}" if divided else ""
    bounds = text.bounds(options.bounds, f"bounds of {what}")
    parent = Relation(options.of, RelationOptions(), of)
    made = _create_table(part, f" ({elements}){by}{part.storage(what)}", key, partitioned=bool(by))
    attached = parent.alter(f"ATTACH PARTITION {qualified(name)} {bounds}", key)
    # Attaching needs the checks that a table has after an earlier import.
    whole = f" PARTITION OF {qualified(parent.name)} {bounds}{by}{part.storage(what)}"
    created = _create_table(part, whole, key, partitioned=bool(by))
    there = partition_of(parent.name, name, default=bounds == "DEFAULT")
    for statements, checks in (((*made, attached), True), (created, False)):
        for statement in statements:
            unless = " UNION ALL ".join(filter(None, (statement.unless, has_checks(parent.name, checks))))
            yield Create(key, statement.sql, statement.table, unless, there)
    yield from comment(f"TABLE {qualified(name)}", options.comment, key, of)
    yield from part.column_comments(options.comments.columns)
    for column, kind in options.identities.items():  # since PostgreSQL 17, a partition has those of its table
        owned = [each for each in options.sequences if each.owned and each.column == column]
        named = [each for each in owned if options.identity_sequences.get(column) == each.table_name]
        of_column = ObjectKey("identity", of=part.column(column))
        clause = identity(text.identity_kind(kind, str(of_column)), *(named or owned)[:1])
        added = part.alter(f"ALTER COLUMN {identifier(column)} ADD {clause}", of_column)
        yield replace(added, unless=from_version(17))


def _partition_column(context: RestoreContext, column: Column, part: Partition) -> str:
    name, options = column.name, part.options
    place = f"column {part.name.dotted}.{name}"
    expression = options.defaults.get(name)
    if part.of in context.late_defaults and calls(expression):
        expression = None
    if expression is not None and not context.allows(f"Default of {place}", text.drawn_from(expression) is not None):
        expression = None
    generated = options.generated.get(name, column.generated) if column.generated is not None else None
    own = column.model_copy(update={"identity": None, "default": expression, "generated": generated})
    forbids = not column.nullable or name in options.not_null
    constraint = not_null(options.column(name)) if forbids else ""
    return f"{typed(own, place)}{value(own, None, place)}{constraint}"
