"""Creates tables with their columns and partitions, before the data is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from snapshot_assets.databases.columns import identity_sequences
from snapshot_assets.databases.postgresql.ddl import checked_sql as text
from snapshot_assets.databases.postgresql.ddl.columns import column_settings, default, not_null, typed, value
from snapshot_assets.databases.postgresql.ddl.statements import (
    RestoreContext,
    alter,
    capital,
    column_comments,
    comment,
    part_name,
    storage,
    unlogged,
)
from snapshot_assets.databases.sql import identifier, qualified
from snapshot_assets.databases.target import Statement
from snapshot_assets.errors import RestoreError
from snapshot_assets.format.relations import Column, Table, TableName


@dataclass(frozen=True)
class Inheritance:
    """What a table inherits.

    Attributes:
        parents: Tables for its INHERITS clause.
        later: Parents for a later ALTER TABLE … INHERIT, because the order of its columns differs from theirs.
        inherited: The parents' columns that it does not declare itself.
        forbidding: Columns in which a parent forbids NULL, also for tables that inherit from it.
        own_not_null: Columns with a NOT NULL of the table itself, beside the parents'.
    """

    parents: tuple[TableName, ...] = ()
    later: tuple[TableName, ...] = ()
    inherited: Mapping[str, Column] = field(default_factory=dict)
    forbidding: frozenset[str] = frozenset()
    own_not_null: frozenset[str] = frozenset()

    def declares_not_null(self, column: Column) -> bool:
        """Return whether the table itself forbids NULL in a column."""
        return not column.nullable and (column.name not in self.forbidding or column.name in self.own_not_null)


def parents_of(context: RestoreContext, table: Table) -> tuple[TableName, ...]:
    """Return the tables that a table inherits from; none if any of them is not restored."""
    named = tuple(TableName(schema, name) for schema, name in table.options.get("inherits", ()))
    missing = [str(parent) for parent in named if parent not in context.tables]
    if not missing:
        return named
    context.lose(
        f"Table {table.table_name} is restored as a table of its own, with all its columns: it inherits from"
        f" {', '.join(missing)}, which is not restored."
    )
    return ()


def inheritance(context: RestoreContext, table: Table) -> Inheritance:
    """Return what a table inherits from tables that are restored too."""
    parents = parents_of(context, table)
    if not parents:
        return Inheritance()
    settings = table.options.get("columns", {})
    from_parents: dict[str, Column] = {}
    forbidding = set()
    for parent in parents:
        theirs = context.tables[parent].options.get("columns", {})
        for column in context.tables[parent].columns:
            from_parents.setdefault(column.name, column)
            if not column.nullable and not theirs.get(column.name, {}).get("not_null_no_inherit"):
                forbidding.add(column.name)
    own = [column.name for column in table.columns if column.name not in from_parents]
    if [*from_parents, *own] != [column.name for column in table.columns]:
        return Inheritance(later=parents)
    flagged = {name for name, options in settings.items() if options.get("not_null_inherited")}
    named = {name for name, options in settings.items() if "not_null_name" in options}
    inherited = {name for name, options in settings.items() if options.get("inherited")}
    return Inheritance(
        parents,
        inherited={name: column for name, column in from_parents.items() if name in inherited},
        forbidding=frozenset(forbidding | flagged),
        own_not_null=frozenset(named - flagged),
    )


def as_restored(context: RestoreContext, table: Table) -> Table:
    """Return a table's document for the target.

    Without expressions, a generated column becomes a plain one: its values are in the files.
    """
    columns = []
    sequences = {TableName(sequence.schema_name, sequence.name) for sequence in table.sequences}
    for column in table.columns:
        where = f"{table.table_name}.{column.name}"
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
    """Yield the statements that create a table, its partitions, and their comments.

    Args:
        context: What is restored.
        table: The table, from `as_restored`.

    Raises:
        RestoreError: SQL text of the document has another form than expected.
    """
    name, options = table.table_name, table.options
    what = f"table {name}"
    _record_lost(context, table)
    kin = inheritance(context, table)
    partition_by = context.partition_keys.get(name)
    is_table = options.get("relation") in (None, "partitioned table", "materialized view")
    inner = text.relation_parameters(options, what) if is_table else ""
    elements = ", ".join(_elements(table, kin))
    of_type = options.get("of_type")
    body = f" ({elements})" if elements or not of_type else ""
    if of_type:
        body = f" OF {text.type_text(of_type, what)}{body}"
    parents = ", ".join(qualified(parent) for parent in kin.parents)
    yield Statement(
        what,
        f"CREATE {unlogged(options)}TABLE {qualified(name)}{body}{f' INHERITS ({parents})' if parents else ''}"
        f"{f' PARTITION BY {partition_by}' if partition_by else ''}{storage(options, inner)}",
        name,
    )
    yield from comment("TABLE", qualified(name), table.comment, what, name)
    yield from column_comments({column.name: column.comment for column in table.columns}, name, name)
    yield from _inherited_columns(table, kin)
    yield from column_settings(options.get("columns", {}), name, name)
    for part in context.partitions(table):
        yield from _create_partition(context, table, part)


def _record_lost(context: RestoreContext, table: Table) -> None:
    name, options = table.table_name, table.options
    if options.get("hypertable"):
        context.lose(
            f"Table {name} is a TimescaleDB hypertable and is restored as a plain table. Create the hypertable again."
        )
    if options.get("relation") in ("view", "materialized view", "foreign table"):
        context.lose(f"{capital(options['relation'])} {name} was exported as its rows and is restored as a table.")
    for relation, each in [(name, options), *((part_name(part), part) for part in context.partitions(table))]:
        if each.get("tablespace"):
            context.lose(f"Table {relation} was in tablespace {each['tablespace']} and is created in the default one.")
        context.lose_uncarried(each, relation)


def _elements(table: Table, kin: Inheritance) -> Iterator[str]:
    """Yield the elements in the parentheses of CREATE TABLE."""
    settings_of = table.options.get("columns", {})
    identities = identity_sequences(table)
    for column in table.columns:
        options = settings_of.get(column.name, {})
        place = f"column {table.table_name}.{column.name}"
        constraint = not_null(column, options) if kin.declares_not_null(column) else ""
        if column.name in kin.inherited:
            continue
        rest = f"{value(column, identities.get(column.name), place)}{constraint}"
        if not table.options.get("of_type"):
            yield f"{typed(column, place)}{rest}"
        elif rest:
            yield f"{identifier(column.name)} WITH OPTIONS{rest}"


def _inherited_columns(table: Table, kin: Inheritance) -> Iterator[Statement]:
    """Yield the changes of a table to columns that it only inherits."""
    name = table.table_name
    for column in table.columns:
        if column.name not in kin.inherited:
            continue
        place, quoted = f"column {name}.{column.name}", identifier(column.name)
        options = table.options.get("columns", {}).get(column.name, {})
        if column.generated is None and column.default != kin.inherited[column.name].default:
            action = "DROP DEFAULT" if column.default is None else f"SET DEFAULT {default(column.default, place)}"
            yield alter(name, f"ALTER COLUMN {quoted} {action}", makes=f"default of {place}")
        if kin.declares_not_null(column) and (clause := not_null(column, options)):
            action = f"ALTER COLUMN {quoted} SET NOT NULL"
            if clause != " NOT NULL":
                action = f"ADD{clause.replace(' NOT NULL', f' NOT NULL {quoted}')}"
            yield alter(name, action, makes=f"not null of {place}")


def _create_partition(context: RestoreContext, table: Table, part: Mapping[str, Any]) -> Iterator[Statement]:
    """Yield the statements that create a partition as a table and then attach it, so that it keeps its own names."""
    name, of = part_name(part), table.table_name
    what = f"partition {name}"
    if part.get("relation") == "foreign table":
        context.lose(f"Partition {name} was a foreign table and is restored as a plain table with its rows.")
    columns = {column.name: column for column in table.columns}
    order = part.get("column_order", list(columns))
    if set(order) != set(columns):
        raise RestoreError(f"Partition {name} has other columns than its table {of}.", table=str(name))
    elements = ", ".join(_partition_column(context, columns[each], part) for each in order)
    inner = text.relation_parameters(part, what)
    key = part.get("partition_by")
    by = f" PARTITION BY {text.partition_key(key, f'partition key of {name}')[0]}" if key else ""
    yield Statement(what, f"CREATE {unlogged(part)}TABLE {qualified(name)} ({elements}){by}{storage(part, inner)}", of)
    bounds = text.bounds(part["bounds"], f"bounds of {what}")
    yield alter(TableName(*part["of"]), f"ATTACH PARTITION {qualified(name)} {bounds}", makes=what, of=of)
    yield from comment("TABLE", qualified(name), part.get("comment"), what, of)
    yield from column_comments(part.get("comments", {}).get("columns", {}), name, of)
    yield from column_settings(part.get("columns", {}), name, of)


def _partition_column(context: RestoreContext, column: Column, part: Mapping[str, Any]) -> str:
    name = part_name(part)
    place = f"column {name}.{column.name}"
    options = part.get("columns", {}).get(column.name, {})
    update: dict[str, Any] = {"identity": None, "default": part.get("defaults", {}).get(column.name)}
    if column.generated is not None and column.name in part.get("generated", {}):
        update["generated"] = part["generated"][column.name]
    drawn = text.drawn_from(update["default"])
    if update["default"] is not None and not context.allows(f"Default of {place}", drawn is not None):
        update["default"] = None
    if column.name in part.get("not_null", ()):
        update["nullable"] = False
    own = column.model_copy(update=update)
    return f"{typed(own, place)}{value(own, None, place)}{not_null(own, options)}"
