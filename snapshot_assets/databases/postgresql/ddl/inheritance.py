"""How a table gets the columns of the tables that it inherits from, so that each stays inherited or its own.

`CREATE TABLE … INHERITS` puts inherited columns first, and merges those that a table declares too. A table whose
columns have another order got some of them later, or was made to inherit by ALTER TABLE. If all its columns are its
own, ALTER TABLE does the same here. Else a helper without rows passes the inherited ones on, one after the other, until
the table inherits them from its parents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import groupby

from snapshot_assets.databases.definition import ObjectKey, Statement
from snapshot_assets.databases.postgresql.ddl import checked_sql as text
from snapshot_assets.databases.postgresql.ddl.columns import default, identity, not_null
from snapshot_assets.databases.postgresql.ddl.statements import (
    Relation,
    RestoreContext,
    column_of,
    from_version,
    unchecked,
)
from snapshot_assets.databases.sql import identifier, qualified
from snapshot_assets.errors import DocumentError, RestoreError
from snapshot_assets.format.options import ColumnOptions
from snapshot_assets.format.relations import Column, Sequence, Table, TableName

_HELPER = "snapshot_assets_columns"
_OWN_EXPRESSION = """
(SELECT pg_catalog.pg_get_expr(d.adbin, d.adrelid) FROM pg_catalog.pg_attrdef d
WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum) <> ALL (
    SELECT pg_catalog.pg_get_expr(d.adbin, d.adrelid) FROM pg_catalog.pg_inherits i
    JOIN pg_catalog.pg_attribute p ON p.attrelid = i.inhparent AND p.attname = a.attname
    JOIN pg_catalog.pg_attrdef d ON d.adrelid = p.attrelid AND d.adnum = p.attnum WHERE i.inhrelid = a.attrelid)
"""
"""The condition of `column_of` for a column whose expression is none of the parents'."""


class Way(StrEnum):
    """How a table comes to inherit."""

    NONE = "none"
    CLAUSE = "clause"  # CREATE TABLE … INHERITS
    HELPER = "helper"  # through a helper that has the inherited columns
    AT_ONCE = "at once"  # ALTER TABLE … INHERIT: the table declares all columns
    LATER = "later"  # the same after its checks: parents that exist already may demand them


@dataclass(frozen=True)
class Inheritance:
    """What a table inherits from tables that are restored too.

    Attributes:
        columns: The parents' columns by name; of several, the first parent's.
        inherited: Names of the columns that the table does not declare itself.
        forbidden: Names of the columns in which a parent forbids NULL from the beginning.
    """

    way: Way = Way.NONE
    parents: tuple[TableName, ...] = ()
    columns: Mapping[str, Column] = field(default_factory=dict)
    inherited: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()


def parents_of(context: RestoreContext, table: Table) -> tuple[TableName, ...]:
    """Return the tables that a table inherits from; none if any of them is not restored."""
    named = context.options(table).inherits
    missing = [str(parent) for parent in named if parent not in context.tables]
    if not missing:
        return named
    context.lose(
        f"Table {table.table_name} is restored as a table of its own, with all its columns: it inherits from"
        f" {', '.join(missing)}, which is not restored."
    )
    return ()


def inheritance(context: RestoreContext, table: Table) -> Inheritance:
    """Return how a table inherits."""
    parents = parents_of(context, table)
    if not parents:
        return Inheritance()
    columns: dict[str, Column] = {}
    forbidden, differ = set(), False
    for parent in parents:
        theirs = context.options(context.tables[parent]).columns.items()
        free = {name for name, options in theirs if options.not_null_no_inherit or options.not_null_not_valid}
        for column in context.tables[parent].columns:
            first = columns.setdefault(column.name, column)
            differ = differ or (first.default, first.generated) != (column.default, column.generated)
            if not column.nullable and column.name not in free:
                forbidden.add(column.name)
    options = context.options(table)
    if lacking := columns.keys() - {column.name for column in table.columns}:
        names = ", ".join(sorted(lacking))
        raise DocumentError(
            f"The snapshot's tables.json is malformed: table {table.table_name} lacks {names} of the tables that it"
            f" inherits from, {', '.join(map(str, parents))}. Restore without it.",
            object="tables.json",
        )
    inherited = frozenset(name for name in columns if options.column(name).inherited)
    order = [column.name for column in table.columns]
    nullable = {column.name for column in table.columns if column.nullable}
    if not differ and [*columns, *(name for name in order if name not in columns)] == order:
        way = Way.CLAUSE
    elif inherited or any(options.column(name).not_null_inherited for name in forbidden):
        way = Way.HELPER
    elif nullable & forbidden or _inherited_checks(context, parents) - {check.name for check in table.checks}:
        way = Way.AT_ONCE
    else:
        way = Way.LATER
    return Inheritance(way, parents, columns, inherited, frozenset(forbidden))


def _inherited_checks(context: RestoreContext, parents: Iterable[TableName]) -> set[str]:
    """Return the names of the checks that tables pass on, with those of their own parents."""
    names: set[str] = set()
    for table in (context.tables[parent] for parent in parents):
        for check in table.checks:  # others are exclusion constraints
            if check.definition.startswith("CHECK") and "NO INHERIT" not in check.definition.rpartition(")")[2]:
                names.add(check.name)
        names |= _inherited_checks(context, parents_of(context, table))
    return names


def create_through_helper(
    relation: Relation,
    elements: Mapping[str, str],
    kin: Inheritance,
    *,
    storage: str,
    shared: Mapping[str, str],
    not_nulls: Iterable[Statement],
) -> Iterator[Statement]:
    """Yield the statements that create a table whose inherited columns have another order than its parents'.

    `elements` has the SQL of its columns by name, in order, and `shared` that of the helper's columns that are also the
    table's own. `not_nulls` forbid NULL in inherited columns, which parents may demand.
    """
    helper, key = TableName(relation.name.schema, _HELPER), ObjectKey("table", relation.name)
    runs = [(own, dict(run)) for own, run in groupby(elements.items(), key=lambda each: each[0] not in kin.inherited)]
    first = runs.pop(0)[1] if not runs[0][0] else {}
    own_first = runs.pop(0)[1] if runs and runs[0][0] else {}
    yield Statement(key, f"CREATE TABLE {qualified(helper)} ({', '.join(first.values())})", relation.of)
    body = f"({', '.join(own_first.values())}) INHERITS ({qualified(helper)})"
    sql = f"CREATE {relation.unlogged}TABLE {qualified(relation.name)} {body}{storage}"
    yield Statement(key, sql, relation.of)
    added = [(helper, [shared[name] for name in own_first if name in shared])]
    for own, run in runs:
        added.append((relation.name if own else helper, list(run.values())))
        added.append((helper, [shared[name] for name in run if own and name in shared]))
    for table, columns in added:
        if columns:
            action = ", ".join(f"ADD COLUMN {column}" for column in columns)
            yield Statement(key, f"ALTER TABLE {qualified(table)} {action}", relation.of)
    for statement in (*not_nulls, *inherit(relation, kin.parents)):
        yield replace(statement, key=key)  # statements of one key are made whole or not at all
    yield relation.alter(f"NO INHERIT {qualified(helper)}", key, only=False)
    yield Statement(key, f"DROP TABLE {qualified(helper)}", relation.of)


def inherit(relation: Relation, parents: Iterable[TableName]) -> Iterator[Statement]:
    """Yield the statements that make a table inherit."""
    for parent in parents:
        key = ObjectKey("inheritance", f"of {relation.name.dotted} from {parent.dotted}")
        yield relation.alter(f"INHERIT {qualified(parent)}", key, only=False)


def own_not_nulls(relation: Relation, table: Table, kin: Inheritance) -> Iterator[tuple[str, Statement]]:
    """Yield the constraint and the statement for each inherited column in which the table itself forbids NULL."""
    for name in kin.inherited if kin.way in (Way.CLAUSE, Way.HELPER) else ():
        options, quoted = relation.options.column(name), identifier(name)
        clause = not_null(options) if forbids_itself(table.column(name), options, kin) else ""
        constraint = clause.replace(" NOT NULL", f" NOT NULL {quoted}").strip()
        if clause:
            named = options.not_null_name is not None
            action = f"ADD {constraint}" if named else f"ALTER COLUMN {quoted} SET NOT NULL"
            yield constraint, relation.alter(action, ObjectKey("not null", of=relation.column(name)))


def own_properties(
    relation: Relation, table: Table, kin: Inheritance, identities: Mapping[str, Sequence]
) -> Iterator[Statement]:
    """Yield the statements that make columns differ from those of the parents, after the table inherits them."""
    for name in kin.columns:
        column, place = table.column(name), relation.column(name)
        alter, of_default = f"ALTER COLUMN {identifier(name)}", ObjectKey("default", of=place)
        adds_identity = column.identity is not None and not has_identity_inline(column, kin)
        theirs = kin.columns[name].default if kin.way is Way.CLAUSE else None
        own = None if adds_identity else column.default
        if column.generated is None and own != theirs:
            if own is None:
                yield relation.alter(f"{alter} DROP DEFAULT", of_default)
            elif name in kin.inherited and kin.way is Way.CLAUSE:  # else CREATE TABLE has set it
                yield relation.alter(f"{alter} SET DEFAULT {default(own, str(place))}", of_default)
        if name in kin.forbidden and column.nullable:
            # Since PostgreSQL 18, a column cannot allow NULL if a parent forbids it.
            allowed = relation.alter(f"{alter} DROP NOT NULL", ObjectKey("nullability", of=place))
            yield replace(allowed, unless=from_version(18))
        if adds_identity:
            clause = identity(str(column.identity), identities.get(name))
            yield relation.alter(f"{alter} ADD {clause}", ObjectKey("identity", of=place))


def own_expressions(context: RestoreContext, table: Table) -> Iterator[Statement]:
    """Yield the expressions of inherited columns that differ from the parent's.

    They follow all tables: setting one makes PostgreSQL 18 forget the column's NOT NULL, which children inherit.
    """
    relation, kin = context.relation(table), inheritance(context, table)
    for column in table.columns if context.expressions else ():
        if column.name in kin.inherited and column.generated not in (None, kin.columns[column.name].generated):
            key = ObjectKey("expression", of=relation.column(column.name))
            alter = f"ALTER TABLE ONLY {qualified(relation.name)} ALTER COLUMN {identifier(column.name)}"
            try:
                expression = text.expression(column.generated, str(key))
                made = Statement(key, f"{alter} SET EXPRESSION AS {expression}", relation.of)
            except RestoreError as error:
                made = unchecked(key, relation.of, error, f"{alter} SET EXPRESSION AS ({column.generated})")
            yield replace(made, there=column_of(relation.name, column.name, _OWN_EXPRESSION))


def has_identity_inline(column: Column, kin: Inheritance) -> bool:
    """Return whether CREATE TABLE makes a column an identity column: then it keeps the default that parents pass on."""
    theirs = kin.columns.get(column.name)
    if theirs is None:
        return True
    return kin.way is Way.CLAUSE and column.name not in kin.inherited and column.default == theirs.default


def inherits_not_null(name: str, options: ColumnOptions, kin: Inheritance) -> bool:
    """Return whether a column has its NOT NULL from a parent alone; older versions than 18 do not know that."""
    return options.not_null_inherited and name in kin.forbidden


def forbids_itself(column: Column, options: ColumnOptions, kin: Inheritance) -> bool:
    """Return whether a table itself forbids NULL in a column, also if a parent does.

    PostgreSQL before version 18 does not know which of both forbids it.
    """
    if column.nullable or inherits_not_null(column.name, options, kin):
        return False
    known = options.not_null_local or options.not_null_name is not None
    return known or column.name not in kin.forbidden
