"""Creates tables with their columns and partitions, before the data is loaded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from snapshot_assets.databases.columns import identity_sequences
from snapshot_assets.databases.postgresql.ddl import checked_sql as text
from snapshot_assets.databases.postgresql.ddl.columns import column_settings, default, not_null, typed, value
from snapshot_assets.databases.postgresql.ddl.statements import Relation, RestoreContext, capital
from snapshot_assets.databases.postgresql.quiet import QUIET
from snapshot_assets.databases.sql import identifier, qualified
from snapshot_assets.databases.target import Statement, comment
from snapshot_assets.errors import RestoreError
from snapshot_assets.format.relations import CheckConstraint, Column, Table, TableName


@dataclass(frozen=True)
class _Inheritance:
    """What a table inherits."""

    not_null: set[str]  # columns in which the table itself forbids NULL
    parents: tuple[TableName, ...] = ()  # tables for its INHERITS clause
    at_once: tuple[TableName, ...] = ()  # for an ALTER TABLE … INHERIT: the order of its columns differs from theirs
    later: tuple[TableName, ...] = ()  # for the same after its checks
    inherited: Mapping[str, Column] = field(default_factory=dict)  # columns that it does not declare itself


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


def _inheritance(context: RestoreContext, table: Table) -> _Inheritance:
    """Return what a table inherits from tables that are restored too."""
    parents = parents_of(context, table)
    not_null = {column.name for column in table.columns if not column.nullable}
    from_parents: dict[str, Column] = {}
    forbidding = set()
    for parent in parents:
        theirs = context.tables[parent].options.get("columns", {})
        for column in context.tables[parent].columns:
            from_parents.setdefault(column.name, column)
            if not column.nullable and not theirs.get(column.name, {}).get("not_null_no_inherit"):
                forbidding.add(column.name)
    own = [column.name for column in table.columns if column.name not in from_parents]
    if not parents or [*from_parents, *own] != [column.name for column in table.columns]:
        if _inherited_checks(context, parents) - {check.name for check in table.checks}:  # it gets these with theirs
            return _Inheritance(not_null, at_once=parents)
        return _Inheritance(not_null, later=parents)
    settings = table.options.get("columns", {})
    flagged = {name for name, options in settings.items() if options.get("not_null_inherited")}
    named = {name for name, options in settings.items() if "not_null_name" in options}
    inherited = {name for name, options in settings.items() if options.get("inherited")}
    return _Inheritance(
        not_null - (forbidding | flagged) | not_null & (named - flagged),
        parents,
        inherited={name: column for name, column in from_parents.items() if name in inherited},
    )


def as_restored(context: RestoreContext, table: Table) -> Table:
    """Return a table's document for the target.

    Without expressions, a generated column becomes a plain one: its values are in the files.
    """
    columns = []
    sequences = {sequence.table_name for sequence in table.sequences}
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
    quiet = {"options": {**table.options, QUIET: True}} if context.with_code else {}
    return table.model_copy(update={"columns": tuple(columns), **quiet})


def _inherited_checks(context: RestoreContext, parents: Iterable[TableName]) -> set[str]:
    """Return the names of the checks that tables pass on, with those of their own parents."""
    names: set[str] = set()
    for table in (context.tables[parent] for parent in parents):
        names |= {check.name for check in table.checks if _inheritable(check)}
        names |= _inherited_checks(context, parents_of(context, table))
    return names


def _inheritable(check: CheckConstraint) -> bool:
    if not check.definition.startswith("CHECK"):
        return False  # an exclusion constraint
    _, tail = text.check_parts(check.definition, f"constraint {check.name}")
    return "NO INHERIT" not in tail


def create(context: RestoreContext, table: Table) -> Iterator[Statement]:
    """Yield the statements that create a table, from `as_restored`, its partitions, and their comments."""
    relation, name, options = Relation.from_document(table), table.table_name, table.options
    what = f"table {name}"
    _record_lost(context, table)
    kin = _inheritance(context, table)
    elements = ", ".join(_elements(table, kin))
    of_type = options.get("of_type")
    body = f" ({elements})" if elements or not of_type else ""
    if of_type:
        body = f" OF {text.type_text(of_type, what)}{body}"
    if kin.parents:
        body += f" INHERITS ({', '.join(map(qualified, kin.parents))})"
    if name in context.partition_keys:
        body += f" PARTITION BY {context.partition_keys[name]}"
    sql = f"CREATE {relation.unlogged}TABLE {qualified(name)}{body}{relation.storage(what)}"
    yield Statement(what, sql, name)
    yield from _inherit(relation, kin.at_once)
    yield from comment(f"TABLE {qualified(name)}", table.comment, what, name)
    yield from relation.column_comments({column.name: column.comment for column in table.columns})
    yield from _inherited_columns(relation, table, kin)
    yield from column_settings(relation)
    for part in context.partitions(table):
        yield from _create_partition(context, table, part)


def inherit(context: RestoreContext, table: Table) -> Iterator[Statement]:
    """Yield the INHERIT clauses of a table whose columns have another order than those of its parents.

    PostgreSQL demands that the table has its parents' checks by then.
    """
    yield from _inherit(Relation.from_document(table), _inheritance(context, table).later)


def _inherit(relation: Relation, parents: tuple[TableName, ...]) -> Iterator[Statement]:
    for parent in parents:
        yield relation.alter(
            f"INHERIT {qualified(parent)}", f"inheritance of {relation.name} from {parent}", only=False
        )


def _record_lost(context: RestoreContext, table: Table) -> None:
    name, options = table.table_name, table.options
    if options.get("hypertable"):
        context.lose(
            f"Table {name} is a TimescaleDB hypertable and is restored as a plain table. Create the hypertable again."
        )
    if options.get("relation") in ("view", "materialized view", "foreign table"):
        context.lose(f"{capital(options['relation'])} {name} was exported as its rows and is restored as a table.")
    for each in (Relation.from_document(table), *context.partitions(table)):
        if tablespace := each.options.get("tablespace"):
            context.lose(f"Table {each.name} was in tablespace {tablespace} and is created in the default one.")
        context.lose_uncarried(each.options, each.name)


def _elements(table: Table, kin: _Inheritance) -> Iterator[str]:
    """Yield the elements in the parentheses of CREATE TABLE."""
    settings_of = table.options.get("columns", {})
    identities = identity_sequences(table)
    for column in table.columns:
        if column.name in kin.inherited:
            continue
        place = f"column {table.table_name}.{column.name}"
        constraint = not_null(settings_of.get(column.name, {})) if column.name in kin.not_null else ""
        rest = f"{value(column, identities.get(column.name), place)}{constraint}"
        if not table.options.get("of_type"):
            yield f"{typed(column, place)}{rest}"
        elif rest:
            yield f"{identifier(column.name)} WITH OPTIONS{rest}"


def _inherited_columns(relation: Relation, table: Table, kin: _Inheritance) -> Iterator[Statement]:
    """Yield the changes of a table to columns that it only inherits."""
    for name, inherited in kin.inherited.items():
        column, place, quoted = table.column(name), f"column {relation.name}.{name}", identifier(name)
        options = table.options.get("columns", {}).get(name, {})
        if column.generated is None and column.default != inherited.default:
            action = "DROP DEFAULT" if column.default is None else f"SET DEFAULT {default(column.default, place)}"
            yield relation.alter(f"ALTER COLUMN {quoted} {action}", f"default of {place}")
        if name in kin.not_null and (clause := not_null(options)):
            action = f"ALTER COLUMN {quoted} SET NOT NULL"
            if clause != " NOT NULL":
                action = f"ADD{clause.replace(' NOT NULL', f' NOT NULL {quoted}')}"
            yield relation.alter(action, f"not null of {place}")


def _create_partition(context: RestoreContext, table: Table, part: Relation) -> Iterator[Statement]:
    """Yield the statements that create a partition as a table and then attach it, so that it keeps its own names."""
    name, of, options = part.name, part.of, part.options
    what = f"partition {name}"
    if options.get("relation") == "foreign table":
        context.lose(f"Partition {name} was a foreign table and is restored as a plain table with its rows.")
    columns = {column.name: column for column in table.columns}
    order = options.get("column_order", list(columns))
    if set(order) != set(columns):
        raise RestoreError(f"Partition {name} has other columns than its table {of}.", table=str(name))
    elements = ", ".join(_partition_column(context, columns[each], part) for each in order)
    key = options.get("partition_by")
    by = f" PARTITION BY {text.partition_key(key, f'partition key of {name}')[0]}" if key else ""
    sql = f"CREATE {part.unlogged}TABLE {qualified(name)} ({elements}){by}{part.storage(what)}"
    yield Statement(what, sql, of)
    bounds = text.bounds(options["bounds"], f"bounds of {what}")
    parent = Relation(TableName(*options["of"]), {}, of)
    yield parent.alter(f"ATTACH PARTITION {qualified(name)} {bounds}", what)
    yield from comment(f"TABLE {qualified(name)}", options.get("comment"), what, of)
    yield from part.column_comments(options.get("comments", {}).get("columns", {}))
    yield from column_settings(part)


def _partition_column(context: RestoreContext, column: Column, part: Relation) -> str:
    name, options = column.name, part.options
    place = f"column {part.name}.{name}"
    expression = options.get("defaults", {}).get(name)
    if expression is not None and not context.allows(f"Default of {place}", text.drawn_from(expression) is not None):
        expression = None
    generated = options.get("generated", {}).get(name, column.generated) if column.generated is not None else None
    own = column.model_copy(update={"identity": None, "default": expression, "generated": generated})
    forbids = not column.nullable or name in options.get("not_null", ())
    constraint = not_null(options.get("columns", {}).get(name, {})) if forbids else ""
    return f"{typed(own, place)}{value(own, None, place)}{constraint}"
