"""Tables with their columns, made before the data."""

from __future__ import annotations

from collections.abc import Iterator

from snapshot_assets.databases.identity import identity_sequences
from snapshot_assets.databases.postgresql.ddl import checked_sql as text
from snapshot_assets.databases.postgresql.ddl import partitions
from snapshot_assets.databases.postgresql.ddl.columns import column_settings, default, not_null, typed, value
from snapshot_assets.databases.postgresql.ddl.inheritance import Family, family
from snapshot_assets.databases.postgresql.ddl.statements import (
    Making,
    alter,
    capital,
    column_comments,
    comment,
    part_name,
    storage,
    unlogged,
)
from snapshot_assets.databases.postgresql.sql import identifier, qualified
from snapshot_assets.databases.target import Statement
from snapshot_assets.format.relations import Table, TableName


def as_restored(making: Making, table: Table) -> Table:
    """Return a table as the target will hold it.

    Without expressions a generated column becomes a plain one: its values are in the files.
    """
    columns = []
    for column in table.columns:
        where = f"{table.table_name}.{column.name}"
        plain = text.drawn_from(column.default) in _sequence_names(table)
        if column.generated is not None and not making.expressions:
            making.lose(f"Column {where} is restored with its values and no longer generated: no SQL text is restored.")
            column = column.model_copy(update={"generated": None, "generated_kind": None})
        elif column.default is not None and not making.allows(f"Default of column {where}", plain):
            column = column.model_copy(update={"default": None})
        columns.append(column)
    return table.model_copy(update={"columns": tuple(columns)})


def _sequence_names(table: Table) -> set[TableName]:
    return {TableName(sequence.schema_name, sequence.name) for sequence in table.sequences}


def create(making: Making, table: Table) -> Iterator[Statement]:
    """Yield what makes a table, its partitions, and the comments on them.

    Args:
        making: What is restored.
        table: The table, as `as_restored` gave it.

    Raises:
        RestoreError: SQL text of the document is not what it should be.
    """
    name, options = table.table_name, table.options
    what = f"table {name}"
    _note_kind(making, table)
    kin = family(making, table)
    partition_by = making.partition_keys.get(name)
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
    for part in making.partitions(table):
        yield from partitions.create(making, table, part)


def _note_kind(making: Making, table: Table) -> None:
    name, options = table.table_name, table.options
    if options.get("hypertable"):
        making.lose(f"Table {name} is a TimescaleDB hypertable and is restored as a plain table: make it one again.")
    if options.get("relation") in ("view", "materialized view", "foreign table"):
        making.lose(f"{capital(options['relation'])} {name} was exported as its rows and is restored as a table.")
    for relation, given in [(name, options), *((part_name(part), part) for part in making.partitions(table))]:
        if given.get("tablespace"):
            making.lose(f"Table {relation} lay in tablespace {given['tablespace']} and is made in the default one.")
        for each in given.get("not_carried", ()):
            making.lose(f"{capital(str(each))} of {relation} is not in a snapshot.")


def _elements(table: Table, kin: Family) -> Iterator[str]:
    """Yield what stands between a CREATE TABLE's parentheses."""
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


def _inherited_columns(table: Table, kin: Family) -> Iterator[Statement]:
    """Yield what an heir changes of the columns that it only inherits."""
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
