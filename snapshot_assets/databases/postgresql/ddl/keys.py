"""Creates keys, checks, indexes, statistics and foreign keys, after the data is loaded."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from snapshot_assets.databases.definition import ObjectKey, Statement, Unchecked, comment
from snapshot_assets.databases.postgresql.ddl import checked_sql as text
from snapshot_assets.databases.postgresql.ddl.inheritance import parents_of
from snapshot_assets.databases.postgresql.ddl.statements import (
    Partition,
    Relation,
    RestoreContext,
    checked,
    constraint_of,
    index_of,
    unchecked,
    with_details,
    with_parameters,
)
from snapshot_assets.databases.sql import identifier, identifiers, literal, qualified
from snapshot_assets.errors import RestoreError
from snapshot_assets.format.kinds import capital
from snapshot_assets.format.options import PartitionPart
from snapshot_assets.format.relations import Table, TableName


def keys(context: RestoreContext, table: Table) -> Iterator[Statement]:
    """Yield the primary key and the unique constraints."""
    relation, primary = context.relation(table), table.primary_key
    for key in (primary, *table.unique):
        if key is not None:
            kind, clause = ("primary key", "PRIMARY KEY") if key is primary else ("unique constraint", "UNIQUE")
            made = ObjectKey(kind, key.name or "", relation.name)
            definition = key.definition or f"{clause} {identifiers(key.columns)}"
            yield from _constraint(context, relation, key.name, definition, made, key=True)


def checks(context: RestoreContext, table: Table) -> Iterator[Statement]:
    """Yield check and exclusion constraints, and each NOT NULL that the source has not validated."""
    relation, name = context.relation(table), table.table_name
    for part in context.partitions(table):
        for inherited in part.options.inherited_checks:
            key = ObjectKey("constraint", inherited.name, part.name)
            yield from _constraint(context, part, inherited.name, inherited.definition, key, key=False)
    for check in table.checks:
        key = ObjectKey("constraint", check.name, name)
        yield from _constraint(context, relation, check.name, check.definition, key, key=False)
    inherits = bool(parents_of(context, table))
    for column, options in relation.options.columns.items():
        constraint = options.not_null_not_valid
        if constraint and not (inherits and options.not_null_inherited):
            no_inherit = " NO INHERIT" if options.not_null_no_inherit else ""
            action = f"ADD CONSTRAINT {identifier(constraint)} NOT NULL {identifier(column)}{no_inherit} NOT VALID"
            yield relation.alter(action, ObjectKey("not null", of=relation.column(column)), only=False)
    documented = {check.name for check in table.checks} | {unique.name for unique in table.unique}
    documented |= {key.name for key in table.foreign_keys} | {(table.primary_key and table.primary_key.name) or ""}
    yield from _not_null_comments(relation, documented)


def _not_null_comments(relation: Relation, documented: Collection[str]) -> Iterator[Statement]:
    """Yield the comments on constraints other than the documented ones."""
    for constraint in relation.options.comments.constraints:
        if constraint not in documented:
            yield from _constraint_comment(relation, constraint, ObjectKey("constraint", constraint, relation.name))


def _constraint(
    context: RestoreContext, relation: Relation, name: str | None, definition: str, made: ObjectKey, *, key: bool
) -> Iterator[Statement]:
    """Yield a constraint of a table or partition, other than a foreign key, with its storage and comment."""
    excludes, what = not key and definition.startswith("EXCLUDE"), str(made)
    if not key and not context.allows(capital(what)):
        context.left_out.add((relation.name, str(name)))
        return
    parameters = relation.options.constraint_storage.get(name or "", ())
    storage = ObjectKey("storage", of=made)

    def clause() -> str:
        if excludes:
            return text.exclusion(definition, what)
        if key:
            inner = ", ".join(text.parameters(parameters, str(storage)))
            return text.key(definition, f" WITH ({inner})" if inner else "", what)
        condition, tail = text.check_parts(definition, what)
        return f"CHECK {condition}{tail}"

    named = f"CONSTRAINT {identifier(name)} " if name else ""
    add = f"ALTER TABLE {'ONLY ' if key or excludes else ''}{qualified(relation.name)} ADD {named}"
    added = checked(made, relation.of, lambda: f"{add}{clause()}", f"{add}{definition}")
    if isinstance(added, Unchecked):
        context.left_out.add((relation.name, str(name)))
        if not context.allows(capital(what)):
            return
    kinds = ("p" if made.kind == "primary key" else "pu") if key else "x" if excludes else "c"
    details: list[Statement] = []
    if excludes and parameters:
        index = qualified(TableName(relation.name.schema, str(name)))
        made_with = with_parameters(storage, relation.of, f"ALTER INDEX {index} SET", parameters)
        has_parameters = f"c.oid = pg_catalog.to_regclass({literal(index)}) AND c.reloptions IS NOT NULL"
        there = f"SELECT 1 AS one FROM pg_catalog.pg_class c WHERE {has_parameters}"
        details.append(replace(made_with, there=there))
    details += _constraint_comment(relation, name, made)
    if name is not None and (key or excludes):
        details += _index_comment(context, relation, name)
    yield from with_details(replace(added, there=constraint_of(relation.name, name, kinds)), details)


def _index_comment(context: RestoreContext, relation: Relation, name: str) -> Iterator[Statement]:
    """Yield the comment on an index, which may belong to a constraint; record the tablespace that it loses."""
    if tablespace := relation.options.index_tablespaces.get(name):
        of = f"Index {name} of {relation.name}"
        context.lose(f"{of} was in tablespace {tablespace} and is created in the default one.")
    on = f"INDEX {qualified(TableName(relation.name.schema, name))}"
    content = relation.options.comments.indexes.get(name)
    yield from comment(on, content, ObjectKey("index", name, relation.name), relation.of)


def _constraint_comment(relation: Relation, name: str | None, of: ObjectKey) -> Iterator[Statement]:
    if name is not None:
        sql = f"CONSTRAINT {identifier(name)} ON {qualified(relation.name)}"
        yield from comment(sql, relation.options.comments.constraints.get(name), of, relation.of)


def index(context: RestoreContext, relation: Relation, name: str, definition: str) -> Iterator[Statement]:
    """Yield an index of a table, partition or materialized view, unless it belongs to a constraint."""
    key = ObjectKey("index", name, relation.name)
    what = capital(str(key))
    try:
        sql, plain = text.index(definition, name, relation.name, str(key))
        created = Statement(key, sql, relation.of)
    except RestoreError as error:
        created, plain = unchecked(key, relation.of, error, definition.strip().removesuffix(";")), False
    over_foreign_tables = relation.name in context.over_foreign_tables
    if over_foreign_tables:
        context.lose(f"{what} is left out: a partition was a foreign table. Create the index again.")
    if over_foreign_tables or not context.allows(what, plain):
        context.left_out.add((relation.name, name))
        return
    if isinstance(created, Unchecked):
        context.left_out.add((relation.name, name))
    there = index_of(relation.name, name, unique=created.by_hand.startswith("CREATE UNIQUE "))
    own = qualified(TableName(relation.name.schema, name))
    details = [
        Statement(
            ObjectKey("statistics target", of=key),
            f"ALTER INDEX {own} ALTER COLUMN {number} SET STATISTICS {target}",
            relation.of,
        )
        for number, target in relation.options.index_statistics_targets.get(name, {}).items()
    ]
    details += _index_comment(context, relation, name)
    yield from with_details(replace(created, there=there), details)


def indexes(context: RestoreContext, table: Table) -> Iterator[Statement]:
    """Yield the indexes of a table, then keys, checks and indexes of its partitions, each attached to the table's."""
    own = context.relation(table)
    for document in table.indexes:
        yield from index(context, own, document.name, document.definition)
    for part in context.partitions(table):
        for each in part.options.constraints:
            if not each.definition.startswith("FOREIGN KEY"):
                key, made = each.is_key and not each.excludes, ObjectKey("constraint", each.name, part.name)
                yield from _constraint(context, part, each.name, each.definition, made, key=key)
                yield from _attached(context, part, each)
        yield from _not_null_comments(part, [each.name for each in part.options.constraints])
        for each in part.options.indexes:
            yield from index(context, part, each.name, each.definition)
            yield from _attached(context, part, each)
        yield from properties(context, part)
    yield from properties(context, own)


def _attached(context: RestoreContext, part: Partition, own: PartitionPart) -> Iterator[Statement]:
    """Yield the statement that attaches a partition's index to that of its parent, if both are restored."""
    parent = part.options.of
    if own.parent and not {(part.name, own.name), (parent, own.parent)} & context.left_out:
        above = qualified(TableName(parent.schema, own.parent))
        sql = f"ALTER INDEX {above} ATTACH PARTITION {qualified(TableName(part.name.schema, own.name))}"
        yield Statement(ObjectKey("index", own.name, part.name), sql, part.of)


def properties(context: RestoreContext, relation: Relation) -> Iterator[Statement]:
    """Yield replica identity, clustering, extended statistics and row security."""
    name, options = relation.name, relation.options
    identity = options.replica_identity
    if identity:
        using = {"full": "FULL", "nothing": "NOTHING"}.get(identity, f"USING INDEX {identifier(identity)}")
        yield relation.alter(f"REPLICA IDENTITY {using}", ObjectKey("replica identity", of=name))
    clustered = options.clustered_on
    if clustered and (name, clustered) not in context.left_out:
        yield relation.alter(f"CLUSTER ON {identifier(clustered)}", ObjectKey("clustering", of=name), only=False)
    for definition in options.statistics:
        yield from _statistics(context, relation, definition)
    if security := options.row_security:
        words = {"forced": ("ENABLE", "FORCE"), "forced, disabled": ("FORCE",)}
        for word in words.get(security, ("ENABLE",)):
            yield relation.alter(f"{word} ROW LEVEL SECURITY", ObjectKey("row security", of=name), only=False)


def _statistics(context: RestoreContext, relation: Relation, definition: str) -> Iterator[Statement]:
    """Yield extended statistics, their target and their comment."""
    name, options = relation.name, relation.options
    try:
        sql, full_name, plain = text.statistics(definition, name, f"statistics of {name.dotted}")
    except RestoreError as error:
        if context.allows(f"Statistics of {name}"):
            # Their names are in the text that cannot be read.
            of = f"s.stxrelid = pg_catalog.to_regclass({literal(qualified(name))})"
            every = f"pg_catalog.count(*) >= {len(options.statistics)}"
            there = f"SELECT 1 AS one FROM pg_catalog.pg_statistic_ext s WHERE {of} HAVING {every}"
            yield replace(unchecked(ObjectKey("statistics", of=name), relation.of, error, definition), there=there)
        return
    if not context.allows(f"Statistics {full_name} of {name}", plain):
        return
    key = ObjectKey("statistics", full_name)
    there = (
        "SELECT 1 AS one FROM pg_catalog.pg_statistic_ext s JOIN pg_catalog.pg_namespace n"
        f" ON n.oid = s.stxnamespace WHERE n.nspname = {literal(full_name.schema)} AND s.stxname ="
        f" {literal(full_name.table)} AND s.stxrelid = pg_catalog.to_regclass({literal(qualified(name))})"
    )
    yield Statement(key, sql, relation.of, there=there)
    short = full_name.table if full_name.schema == name.schema else full_name.dotted
    if (target := options.statistics_targets.get(short)) is not None:
        action = f"ALTER STATISTICS {qualified(full_name)} SET STATISTICS {target}"
        yield Statement(ObjectKey("statistics target", of=key), action, relation.of)
    yield from comment(f"STATISTICS {qualified(full_name)}", options.comments.statistics.get(short), key, relation.of)


def foreign_keys(context: RestoreContext, table: Table) -> Iterator[Statement]:
    """Yield the foreign keys to relations that are restored."""
    # The foreign keys of a partitioned table apply to its partitions too.
    own, only = context.relation(table), table.table_name not in context.partition_keys
    for key in table.foreign_keys:
        references = f"{qualified(key.referenced)}{identifiers(key.referenced_columns)}"
        definition = key.definition or f"FOREIGN KEY {identifiers(key.columns)} REFERENCES {references}"
        yield from _foreign_key(context, own, key.name, definition, only, key.referenced)
    for part in context.partitions(table):
        for each in part.options.constraints:
            if each.definition.startswith("FOREIGN KEY"):
                yield from _foreign_key(context, part, each.name, each.definition, not part.options.partition_by)


def _foreign_key(
    context: RestoreContext,
    relation: Relation,
    name: str,
    definition: str,
    only: bool,
    expected: TableName | None = None,
) -> Iterator[Statement]:
    key = ObjectKey("foreign key", name, relation.name)
    what = str(key)
    add = f"ALTER TABLE {'ONLY ' if only else ''}{qualified(relation.name)} ADD CONSTRAINT {identifier(name)}"
    referred = expected
    try:
        definition, referred = text.foreign_key(definition, what, expected)
        added = Statement(key, f"{add} {definition}", relation.of)
    except RestoreError as error:
        added = unchecked(key, relation.of, error, f"{add} {definition}")
        if not context.allows(capital(what)):
            return
    if referred is not None and referred not in context.relations:
        context.lose(f"{capital(what)} is left out: it refers to {referred}, which is not restored.")
        return
    reads = (relation.name, referred) if referred is not None else ()
    added = replace(added, there=constraint_of(relation.name, name, "f"), reads=reads)
    yield from with_details(added, _constraint_comment(relation, name, key))
