"""Tables with their columns, made before the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from snapshot_assets.databases.postgresql.define import text
from snapshot_assets.databases.postgresql.define.heirs import Family, family
from snapshot_assets.databases.postgresql.define.making import (
    Making,
    alter,
    column_comments,
    comment,
    part_name,
    partitions,
    storage,
)
from snapshot_assets.databases.postgresql.define.sequences import identity_sequences, settings
from snapshot_assets.databases.postgresql.define.types import collate
from snapshot_assets.databases.postgresql.sql import identifier, literal, qualified
from snapshot_assets.databases.target import Statement
from snapshot_assets.errors import RestoreError
from snapshot_assets.format.relations import Column, Sequence, Table, TableName


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
    partition_by = _partition_key(making, table)
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
        f"CREATE {_unlogged(options)}TABLE {qualified(name)}{body}{f' INHERITS ({parents})' if parents else ''}"
        f"{f' PARTITION BY {partition_by}' if partition_by else ''}{storage(options, inner)}",
        name,
    )
    yield from comment("TABLE", qualified(name), table.comment, what, name)
    yield from column_comments({column.name: column.comment for column in table.columns}, name, name)
    yield from _inherited_columns(table, kin)
    yield from column_settings(options.get("columns", {}), name, name)
    if partition_by:
        for part in partitions(table):
            yield from _partition(making, table, part)


def _note_kind(making: Making, table: Table) -> None:
    name, options = table.table_name, table.options
    if options.get("hypertable"):
        making.lose(f"Table {name} is a TimescaleDB hypertable and is restored as a plain table: make it one again.")
    if options.get("relation") in ("view", "materialized view", "foreign table"):
        making.lose(f"{options['relation'].capitalize()} {name} was exported as its rows and is restored as a table.")
    for relation, given in [(name, options), *((part_name(part), part) for part in partitions(table))]:
        if given.get("tablespace"):
            making.lose(f"Table {relation} lay in tablespace {given['tablespace']} and is made in the default one.")
    for relation, lost in [(name, options), *((part_name(part), part) for part in partitions(table))]:
        for each in lost.get("not_carried", ()):
            making.lose(f"{str(each).capitalize()} of {relation} is not in a snapshot.")


def is_partitioned(making: Making, table: Table) -> bool:
    """Tell whether a table is restored with its partitions."""
    return _partition_key(making, table) is not None


def _partition_key(making: Making, table: Table) -> str | None:
    """Return how a table is cut into partitions; None for a plain one."""
    keys = [table.options.get("partition_by"), *(part.get("partition_by") for part in partitions(table))]
    if keys[0] is None:
        return None
    parsed = [text.partition_key(key, f"partition key of {table.table_name}") for key in keys if key is not None]
    plain = all(each for _, each in parsed)
    if not plain and not making.expressions:
        making.lose(f"Table {table.table_name} is restored without partitions: its partition key is SQL text.")
        return None
    return parsed[0][0]


def _unlogged(options: Mapping[str, Any]) -> str:
    return "UNLOGGED " if options.get("persistence") == "unlogged" else ""


def _elements(table: Table, kin: Family) -> Iterator[str]:
    """Yield what stands between a CREATE TABLE's parentheses."""
    settings_of = table.options.get("columns", {})
    identities = identity_sequences(table)
    for column in table.columns:
        options = settings_of.get(column.name, {})
        place = f"column {table.table_name}.{column.name}"
        constraint = _not_null(column, options) if kin.declares_not_null(column) else ""
        if column.name in kin.inherited:
            continue
        rest = f"{_value(column, identities.get(column.name), place)}{constraint}"
        if not table.options.get("of_type"):
            yield f"{_typed(column, place)}{rest}"
        elif rest:
            yield f"{identifier(column.name)} WITH OPTIONS{rest}"


def _typed(column: Column, place: str) -> str:
    return f"{identifier(column.name)} {text.type_text(column.type, place)}{collate(column.collation, place)}"


def _value(column: Column, sequence: Sequence | None, place: str) -> str:
    """Return where a column's value comes from if none is given."""
    if column.generated is not None:
        kind = "VIRTUAL" if column.generated_kind == "virtual" else "STORED"
        return f" GENERATED ALWAYS AS {text.expression(column.generated, f'expression of {place}')} {kind}"
    if column.identity is not None:
        named = ""
        if sequence is not None:
            name = qualified(TableName(sequence.schema_name, sequence.name))
            named = f" (SEQUENCE NAME {name} {settings(sequence)})"
        return f" GENERATED {column.identity.upper()} AS IDENTITY{named}"
    return f" DEFAULT {_default(column.default, place)}" if column.default is not None else ""


def _default(given: str, place: str) -> str:
    sequence = text.drawn_from(given)
    if sequence is not None:
        return f"nextval({literal(qualified(sequence)).strip()}::regclass)"
    return text.expression(given, f"default of {place}")


def _not_null(column: Column, options: Mapping[str, Any]) -> str:
    if column.nullable or options.get("not_null_not_valid"):
        return ""
    named = f" CONSTRAINT {identifier(options['not_null_name'])}" if "not_null_name" in options else ""
    return f"{named} NOT NULL{' NO INHERIT' if options.get('not_null_no_inherit') else ''}"


def _inherited_columns(table: Table, kin: Family) -> Iterator[Statement]:
    """Yield what an heir changes of the columns that it only inherits."""
    name = table.table_name
    for column in table.columns:
        if column.name not in kin.inherited:
            continue
        place, quoted = f"column {name}.{column.name}", identifier(column.name)
        options = table.options.get("columns", {}).get(column.name, {})
        if column.generated is None and column.default != kin.inherited[column.name].default:
            action = "DROP DEFAULT" if column.default is None else f"SET DEFAULT {_default(column.default, place)}"
            yield alter(name, f"ALTER COLUMN {quoted} {action}", makes=f"default of {place}")
        if kin.declares_not_null(column) and (clause := _not_null(column, options)):
            action = f"ALTER COLUMN {quoted} SET NOT NULL"
            if clause != " NOT NULL":
                action = f"ADD{clause.replace(' NOT NULL', f' NOT NULL {quoted}')}"
            yield alter(name, action, makes=f"not null of {place}")


def column_settings(settings_of: Mapping[str, Any], relation: TableName, of: TableName) -> Iterator[Statement]:
    """Yield how columns are stored and counted."""
    for column, options in settings_of.items():
        actions = {}
        if "storage" in options:
            actions["storage"] = f"SET STORAGE {text.word(options['storage'], f'storage of {relation}.{column}')}"
        if "statistics_target" in options:
            actions["statistics target"] = f"SET STATISTICS {int(options['statistics_target'])}"
        if inner := text.parameters(options.get("options"), f"options of {relation}.{column}"):
            actions["options"] = f"SET ({inner})"
        for what, action in actions.items():
            makes = f"{what} of column {relation}.{column}"
            yield alter(relation, f"ALTER COLUMN {identifier(column)} {action}", makes=makes, of=of)
        if "compression" in options:
            yield _compression(relation, column, str(options["compression"]), of)


def _compression(relation: TableName, column: str, method: str, of: TableName) -> Statement:
    makes = f"compression of column {relation}.{column}"
    sql = f"ALTER COLUMN {identifier(column)} SET COMPRESSION {text.word(method, makes)}"
    unknown = (
        "SELECT 1 AS one WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_settings s WHERE"
        f" s.name = 'default_toast_compression' AND {literal(method)} = ANY (s.enumvals))"
    )
    statement = alter(relation, sql, makes=makes, of=of)
    return Statement(statement.makes, statement.sql, statement.table, unless=unknown)


def _partition(making: Making, table: Table, part: Mapping[str, Any]) -> Iterator[Statement]:
    """Yield what makes a partition: as a table of its own, then attached, so that its names are its own."""
    name, of = part_name(part), table.table_name
    what = f"partition {name}"
    if part.get("relation") == "foreign table":
        making.lose(f"Partition {name} was a foreign table: its rows are restored, and it is a plain table.")
    columns = {column.name: column for column in table.columns}
    order = part.get("column_order", list(columns))
    if set(order) != set(columns):
        raise RestoreError(f"Partition {name} has other columns than its table {of}.", table=str(name))
    elements = ", ".join(_part_column(making, columns[each], part) for each in order)
    inner = text.relation_parameters(part, what)
    key = part.get("partition_by")
    by = f" PARTITION BY {text.partition_key(key, f'partition key of {name}')[0]}" if key else ""
    yield Statement(what, f"CREATE {_unlogged(part)}TABLE {qualified(name)} ({elements}){by}{storage(part, inner)}", of)
    bounds = text.bounds(part["bounds"], f"bounds of {what}")
    yield alter(TableName(*part["of"]), f"ATTACH PARTITION {qualified(name)} {bounds}", makes=what, of=of)
    yield from comment("TABLE", qualified(name), part.get("comment"), what, of)
    yield from column_comments(part.get("comments", {}).get("columns", {}), name, of)
    yield from column_settings(part.get("columns", {}), name, of)


def _part_column(making: Making, column: Column, part: Mapping[str, Any]) -> str:
    name = part_name(part)
    place = f"column {name}.{column.name}"
    options = part.get("columns", {}).get(column.name, {})
    update: dict[str, Any] = {"identity": None, "default": part.get("defaults", {}).get(column.name)}
    if column.generated is not None and column.name in part.get("generated", {}):
        update["generated"] = part["generated"][column.name]
    drawn = text.drawn_from(update["default"])
    if update["default"] is not None and not making.allows(f"Default of {place}", drawn is not None):
        update["default"] = None
    if column.name in part.get("not_null", ()):
        update["nullable"] = False
    own = column.model_copy(update=update)
    return f"{_typed(own, place)}{_value(own, None, place)}{_not_null(own, options)}"
