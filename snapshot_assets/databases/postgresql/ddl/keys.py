"""Creates keys, checks, indexes, statistics and foreign keys, after the data is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from snapshot_assets.databases.postgresql.ddl import checked_sql as text
from snapshot_assets.databases.postgresql.ddl.statements import RestoreContext, alter, capital, comment, part_name
from snapshot_assets.databases.postgresql.ddl.tables import inheritance
from snapshot_assets.databases.sql import identifier, qualified
from snapshot_assets.databases.target import Statement
from snapshot_assets.format.relations import Index, Table, TableName


def keys(context: RestoreContext, table: Table) -> Iterator[Statement]:
    """Yield the primary key and the unique constraints."""
    name, primary = table.table_name, table.primary_key
    if primary is not None:
        label = f"primary key {primary.name}" if primary.name else "primary key"
        definition = primary.definition or f"PRIMARY KEY ({_names(primary.columns)})"
        yield from _constraint(
            context, name, table.options, primary.name, definition, f"{label} of {name}", name, key=True
        )
    for unique in table.unique:
        definition = unique.definition or f"UNIQUE ({_names(unique.columns)})"
        what = f"unique constraint {unique.name} of {name}"
        yield from _constraint(context, name, table.options, unique.name, definition, what, name, key=True)


def checks(context: RestoreContext, table: Table) -> Iterator[Statement]:
    """Yield check and exclusion constraints, and each NOT NULL that the source has not validated."""
    name = table.table_name
    for check in table.checks:
        what = f"constraint {check.name} of {name}"
        yield from _constraint(context, name, table.options, check.name, check.definition, what, name, key=False)
    for column, options in table.options.get("columns", {}).items():
        if constraint := options.get("not_null_not_valid"):
            what = f"not null of column {name}.{column}"
            no_inherit = " NO INHERIT" if options.get("not_null_no_inherit") else ""
            action = f"ADD CONSTRAINT {identifier(str(constraint))} NOT NULL {identifier(column)}{no_inherit} NOT VALID"
            yield alter(name, action, makes=what, only=False)
    documented = {check.name for check in table.checks} | {unique.name for unique in table.unique}
    documented |= {key.name for key in table.foreign_keys} | {(table.primary_key and table.primary_key.name) or ""}
    for constraint in table.options.get("comments", {}).get("constraints", {}):
        if constraint not in documented:  # a NOT NULL
            yield from _constraint_comment(name, table.options, constraint, f"constraint {constraint} of {name}", name)
    for parent in inheritance(context, table).later:
        yield alter(name, f"INHERIT {qualified(parent)}", makes=f"inheritance of {name} from {parent}", only=False)


def _constraint(
    context: RestoreContext,
    relation: TableName,
    options: Mapping[str, Any],
    name: str | None,
    definition: str,
    what: str,
    of: TableName,
    *,
    key: bool,
) -> Iterator[Statement]:
    """Yield a constraint of a table or partition, other than a foreign key, with its storage and comment."""
    excludes = not key and definition.startswith("EXCLUDE")
    checks = not key and not excludes
    if not key and not context.allows(capital(what)):
        context.left_out.add((relation, str(name)))
        return
    storage = text.parameters(options.get("constraint_storage", {}).get(name), f"storage of {what}")
    if checks:
        condition, tail = text.check_parts(definition, what)
        action = f"CHECK {condition}{tail}"
    elif excludes:
        action = text.exclusion(definition, what)
    else:
        action = text.key(definition, f" WITH ({storage})" if storage else "", what)
    named = f"CONSTRAINT {identifier(name)} " if name else ""
    yield alter(relation, f"ADD {named}{action}", makes=what, of=of, only=not checks)
    if storage and excludes:
        index = qualified(TableName(relation.schema, str(name)))
        yield Statement(f"storage of {what}", f"ALTER INDEX {index} SET ({storage})", of)
    yield from _constraint_comment(relation, options, name, what, of)


def _constraint_comment(
    relation: TableName, options: Mapping[str, Any], name: str | None, what: str, of: TableName
) -> Iterator[Statement]:
    content = options.get("comments", {}).get("constraints", {}).get(name)
    if name is not None:
        yield from comment("CONSTRAINT", f"{identifier(name)} ON {qualified(relation)}", content, what, of)


def indexes(
    context: RestoreContext, relation: TableName, documents: list[Index], comments: Mapping[str, str]
) -> Iterator[Statement]:
    """Yield the indexes of a table or materialized view, except those of constraints."""
    for index in documents:
        yield from _index(context, relation, index.name, index.definition, comments, relation)


def _index(
    context: RestoreContext,
    relation: TableName,
    name: str,
    definition: str,
    comments: Mapping[str, str],
    of: TableName,
) -> Iterator[Statement]:
    what = f"index {name} of {relation}"
    sql, plain = text.index(definition, name, relation, what)
    if relation in context.over_foreign_tables:
        context.lose(f"{capital(what)} is left out: a partition was a foreign table. Create the index again.")
        context.left_out.add((relation, name))
        return
    if not context.allows(capital(what), plain):
        context.left_out.add((relation, name))
        return
    yield Statement(what, sql, of)
    yield from comment("INDEX", qualified(TableName(relation.schema, name)), comments.get(name), what, of)


def partition_keys(context: RestoreContext, table: Table) -> Iterator[Statement]:
    """Yield the keys, checks and indexes of partitions, each attached to that of its table."""
    for part in context.partitions(table):
        name, of = part_name(part), table.table_name
        comments = part.get("comments", {}).get("indexes", {})
        for row in part.get("constraints", ()):
            if not row["definition"].startswith("FOREIGN KEY"):
                what = f"constraint {row['name']} of {name}"
                key = not row["definition"].startswith(("CHECK", "EXCLUDE"))
                yield from _constraint(context, name, part, row["name"], row["definition"], what, of, key=key)
                yield from _attached(context, part, row, of)
        for row in part.get("indexes", ()):
            yield from _index(context, name, row["name"], row["definition"], comments, of)
            yield from _attached(context, part, row, of)
        yield from properties(context, name, part, of)


def _attached(
    context: RestoreContext, part: Mapping[str, Any], row: Mapping[str, Any], of: TableName
) -> Iterator[Statement]:
    """Yield the statement that attaches a partition's index to that of its table, if both are restored."""
    indexes = {(part_name(part), row["name"]), (TableName(*part["of"]), row.get("parent"))}
    if row.get("parent") and not indexes & context.left_out:
        parent = qualified(TableName(part["of"][0], row["parent"]))
        own = qualified(TableName(part["schema"], row["name"]))
        sql = f"ALTER INDEX {parent} ATTACH PARTITION {own}"
        yield Statement(f"index {row['name']} of {part_name(part)}", sql, of)


def properties(
    context: RestoreContext, relation: TableName, options: Mapping[str, Any], of: TableName
) -> Iterator[Statement]:
    """Yield replica identity, clustering, extended statistics and row security."""
    identity = options.get("replica_identity")
    if identity:
        using = {"full": "FULL", "nothing": "NOTHING"}.get(identity, f"USING INDEX {identifier(identity)}")
        yield alter(relation, f"REPLICA IDENTITY {using}", makes=f"replica identity of {relation}", of=of)
    clustered = options.get("clustered_on")
    if clustered and (relation, clustered) not in context.left_out:
        yield alter(
            relation, f"CLUSTER ON {identifier(clustered)}", makes=f"clustering of {relation}", of=of, only=False
        )
    comments = options.get("comments", {}).get("statistics", {})
    for definition in options.get("statistics", ()):
        sql, name, plain = text.statistics(definition, relation, f"statistics of {relation}")
        if context.allows(f"Statistics {name} of {relation}", plain):
            yield Statement(f"statistics {name}", sql, of)
            yield from comment("STATISTICS", qualified(name), comments.get(name.table), f"statistics {name}", of)
    if security := options.get("row_security"):
        for word in ("ENABLE", "FORCE") if security == "forced" else ("ENABLE",):
            action = f"{word} ROW LEVEL SECURITY"
            yield alter(relation, action, makes=f"row security of {relation}", of=of, only=False)


def foreign_keys(context: RestoreContext, table: Table) -> Iterator[Statement]:
    """Yield the foreign keys to relations that are restored."""
    name = table.table_name
    # The foreign keys of a partitioned table apply to its partitions too.
    only = name not in context.partition_keys
    for key in table.foreign_keys:
        referred = TableName(key.referenced_schema, key.referenced_table)
        definition = key.definition or (
            f"FOREIGN KEY ({_names(key.columns)}) REFERENCES {qualified(referred)}({_names(key.referenced_columns)})"
        )
        yield from _foreign_key(context, name, table.options, key.name, definition, name, only, referred)
    for part in context.partitions(table):
        only = not part.get("partition_by")
        for row in part.get("constraints", ()):
            if row["definition"].startswith("FOREIGN KEY"):
                yield from _foreign_key(context, part_name(part), part, row["name"], row["definition"], name, only)


def _foreign_key(
    context: RestoreContext,
    relation: TableName,
    options: Mapping[str, Any],
    name: str,
    definition: str,
    of: TableName,
    only: bool,
    expected: TableName | None = None,
) -> Iterator[Statement]:
    what = f"foreign key {name} of {relation}"
    definition, referred = text.foreign_key(definition, what)
    if expected not in (None, referred):
        raise text.refusal(what, definition, f"a foreign key to {expected}")
    if referred not in context.relations:
        context.lose(f"{capital(what)} is left out: it refers to {referred}, which is not restored.")
        return
    yield alter(relation, f"ADD CONSTRAINT {identifier(name)} {definition}", makes=what, of=of, only=only)
    yield from _constraint_comment(relation, options, name, what, of)


def _names(columns: tuple[str, ...]) -> str:
    return ", ".join(map(identifier, columns))
