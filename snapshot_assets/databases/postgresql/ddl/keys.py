"""Creates keys, checks, indexes, statistics and foreign keys, after the data is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from snapshot_assets.databases.postgresql.ddl import checked_sql as text
from snapshot_assets.databases.postgresql.ddl.statements import RestoreContext, alter, capital, comment, part_name
from snapshot_assets.databases.postgresql.ddl.tables import inheritance
from snapshot_assets.databases.postgresql.sql import fitting, qualified
from snapshot_assets.databases.sql import identifier
from snapshot_assets.databases.target import Statement
from snapshot_assets.format.relations import ForeignKey, Index, Table, TableName


def keys(context: RestoreContext, table: Table) -> Iterator[Statement]:
    """Yield the primary key and the unique constraints."""
    name, primary = table.table_name, table.primary_key
    if primary is not None:
        label = f"primary key {primary.name}" if primary.name else "primary key"
        definition = primary.definition or f"PRIMARY KEY ({_names(primary.columns)})"
        yield from _key(table, primary.name, definition, f"{label} of {name}")
    for unique in table.unique:
        definition = unique.definition or f"UNIQUE ({_names(unique.columns)})"
        yield from _key(table, unique.name, definition, f"unique constraint {unique.name} of {name}")


def _key(table: Table, constraint: str | None, definition: str, what: str) -> Iterator[Statement]:
    storage = _constraint_storage(table.options, constraint, what)
    named = f"CONSTRAINT {identifier(constraint)} " if constraint else ""
    yield alter(table.table_name, f"ADD {named}{text.key(definition, storage, what)}", makes=what)
    yield from _constraint_comment(table, constraint, what)


def checks(context: RestoreContext, table: Table) -> Iterator[Statement]:
    """Yield check and exclusion constraints, and each NOT NULL that the source has not validated."""
    name = table.table_name
    for check in table.checks:
        what = f"constraint {check.name} of {name}"
        if not context.allows(capital(what)):
            context.left_out.add((name, check.name))
            continue
        yield from _check(name, check.name, check.definition, what, name)
        yield from _exclusion_storage(table.options, check.name, check.definition, name, name)
        yield from _constraint_comment(table, check.name, what)
    for column, options in table.options.get("columns", {}).items():
        if constraint := options.get("not_null_not_valid"):
            what = f"not null of column {name}.{column}"
            no_inherit = " NO INHERIT" if options.get("not_null_no_inherit") else ""
            action = f"ADD CONSTRAINT {identifier(str(constraint))} NOT NULL {identifier(column)}{no_inherit} NOT VALID"
            yield alter(name, action, makes=what, only=False)
    documented = {each.name for each in (*table.checks, *table.unique, *table.foreign_keys)}
    documented.add(table.primary_key.name if table.primary_key else None)
    for constraint in table.options.get("comments", {}).get("constraints", {}):
        if constraint not in documented:  # a NOT NULL
            yield from _constraint_comment(table, constraint, f"constraint {constraint} of {name}")
    for parent in inheritance(context, table).later:
        yield alter(name, f"INHERIT {qualified(parent)}", makes=f"inheritance of {name} from {parent}", only=False)


def _check(relation: TableName, constraint: str, definition: str, what: str, of: TableName) -> Iterator[Statement]:
    if definition.startswith("EXCLUDE"):
        action, only = text.exclusion(definition, what), True
    else:
        inner, tail = text.check_parts(definition, what)
        action, only = f"CHECK {inner}{tail}", False
    yield alter(relation, f"ADD CONSTRAINT {identifier(constraint)} {action}", makes=what, of=of, only=only)


def _exclusion_storage(
    options: Mapping[str, Any], constraint: str, definition: str, relation: TableName, of: TableName
) -> Iterator[Statement]:
    what = f"storage of constraint {constraint} of {relation}"
    inner = text.parameters(options.get("constraint_storage", {}).get(constraint), what)
    if inner and definition.startswith("EXCLUDE"):
        index = qualified(TableName(relation.schema, constraint))
        yield Statement(what, f"ALTER INDEX {index} SET ({inner})", of)


def _constraint_storage(options: Mapping[str, Any], constraint: str | None, what: str) -> str:
    inner = text.parameters(options.get("constraint_storage", {}).get(constraint), what)
    return f" WITH ({inner})" if inner else ""


def _constraint_comment(table: Table, constraint: str | None, what: str) -> Iterator[Statement]:
    comments = table.options.get("comments", {}).get("constraints", {})
    if constraint is not None and constraint in comments:
        place = f"{identifier(constraint)} ON {qualified(table.table_name)}"
        yield from comment("CONSTRAINT", place, comments[constraint], what, table.table_name)


def indexes(
    context: RestoreContext, relation: TableName, documents: list[Index], comments: Mapping[str, str]
) -> Iterator[Statement]:
    """Yield the indexes of a table or materialized view, except those of constraints."""
    for index in documents:
        what = f"index {index.name} of {relation}"
        sql, plain = text.index(index.definition, index.name, relation, what)
        if not context.allows(capital(what), plain):
            context.left_out.add((relation, index.name))
            continue
        yield Statement(what, sql, relation)
        name = qualified(TableName(relation.schema, index.name))
        yield from comment("INDEX", name, comments.get(index.name), what, relation)


def partition_keys(context: RestoreContext, table: Table) -> Iterator[Statement]:
    """Yield the keys, checks and indexes of partitions, each attached to that of its table."""
    for part in context.partitions(table):
        name, of = part_name(part), table.table_name
        comments = part.get("comments", {})
        for row in part.get("constraints", ()):
            yield from _partition_constraint(context, table, part, row)
            place = f"{identifier(row['name'])} ON {qualified(name)}"
            content = comments.get("constraints", {}).get(row["name"])
            yield from comment("CONSTRAINT", place, content, f"constraint {row['name']} of {name}", of)
        for row in part.get("indexes", ()):
            what = f"index {row['name']} of {name}"
            sql, plain = text.index(row["definition"], row["name"], name, what)
            if not context.allows(capital(what), plain):
                context.left_out.add((name, row["name"]))
                continue
            yield Statement(what, sql, of)
            yield from _attached(part, row, of)
            own = qualified(TableName(name.schema, row["name"]))
            yield from comment("INDEX", own, comments.get("indexes", {}).get(row["name"]), what, of)
        if part.get("relation") == "foreign table":
            yield from _missing_indexes(context, table, part)
        yield from properties(context, name, part, of)


def _missing_indexes(context: RestoreContext, table: Table, part: Mapping[str, Any]) -> Iterator[Statement]:
    """Yield indexes for a partition that was a foreign table, which has none: without them its table's stay invalid."""
    name, parent = part_name(part), TableName(*part["of"])
    partitioned = [each for each in context.partitions(table) if part_name(each) == parent]
    indexes = partitioned[0].get("indexes", ()) if partitioned else [index.model_dump() for index in table.indexes]
    for row in indexes:
        if (parent, row["name"]) in context.left_out:
            continue
        own_row = {"name": fitting(f"{row['name']}_{name.table}"), "parent": row["name"]}
        what = f"index {own_row['name']} of {name}"
        sql, _ = text.index(row["definition"], row["name"], parent, what, (own_row["name"], name))
        yield Statement(what, sql, table.table_name)
        yield from _attached(part, own_row, table.table_name)


def _partition_constraint(
    context: RestoreContext, table: Table, part: Mapping[str, Any], row: Mapping[str, Any]
) -> Iterator[Statement]:
    name, of = part_name(part), table.table_name
    what = f"constraint {row['name']} of {name}"
    definition = row["definition"]
    if definition.startswith("FOREIGN KEY"):
        return
    if definition.startswith(("CHECK", "EXCLUDE")):
        if not context.allows(capital(what)):
            context.left_out.add((name, row["name"]))
            return
        yield from _check(name, row["name"], definition, what, of)
        yield from _exclusion_storage(part, row["name"], definition, name, of)
    else:
        storage = _constraint_storage(part, row["name"], what)
        action = f"ADD CONSTRAINT {identifier(row['name'])} {text.key(definition, storage, what)}"
        yield alter(name, action, makes=what, of=of)
    yield from _attached(part, row, of)


def _attached(part: Mapping[str, Any], row: Mapping[str, Any], of: TableName) -> Iterator[Statement]:
    """Yield the statement that attaches a partition's index to that of its table."""
    if row.get("parent"):
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
    for key in table.foreign_keys:
        what = f"foreign key {key.name} of {name}"
        referred = TableName(key.referenced_schema, key.referenced_table)
        if _refers(context, referred, what):
            definition = _foreign_key(key, referred, what)
            action = f"ADD CONSTRAINT {identifier(key.name)} {definition}"
            # The foreign keys of a partitioned table apply to its partitions too.
            yield alter(name, action, makes=what, only=name not in context.partition_keys)
            yield from _constraint_comment(table, key.name, what)
    for part in context.partitions(table):
        yield from _partition_foreign_keys(context, part, name)


def _partition_foreign_keys(context: RestoreContext, part: Mapping[str, Any], of: TableName) -> Iterator[Statement]:
    for row in part.get("constraints", ()):
        what = f"foreign key {row['name']} of {part_name(part)}"
        if row["definition"].startswith("FOREIGN KEY"):
            definition, referred = text.foreign_key(row["definition"], what)
            if _refers(context, referred, what):
                action = f"ADD CONSTRAINT {identifier(row['name'])} {definition}"
                yield alter(part_name(part), action, makes=what, of=of, only=not part.get("partition_by"))


def _foreign_key(key: ForeignKey, referred: TableName, what: str) -> str:
    if key.definition is not None:
        definition, found = text.foreign_key(key.definition, what)
        if found != referred:
            raise text.refusal(what, key.definition, f"a foreign key to {referred}")
        return definition
    return f"FOREIGN KEY ({_names(key.columns)}) REFERENCES {qualified(referred)} ({_names(key.referenced_columns)})"


def _refers(context: RestoreContext, referred: TableName, what: str) -> bool:
    if referred in context.relations:
        return True
    context.lose(f"{capital(what)} is left out: it refers to {referred}, which is not restored.")
    return False


def _names(columns: tuple[str, ...]) -> str:
    return ", ".join(map(identifier, columns))
