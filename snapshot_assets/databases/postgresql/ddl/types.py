"""Schemas, extensions, and the types that columns use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from snapshot_assets.databases.postgresql.ddl import checked_sql as text
from snapshot_assets.databases.postgresql.ddl.statements import Making, capital, comment, part_name
from snapshot_assets.databases.postgresql.sql import identifier, literal, qualified
from snapshot_assets.databases.target import Statement
from snapshot_assets.format.relations import TableName, UserType

_STANDARD_COMMENT = "standard public schema"


def schemas(making: Making) -> Iterator[Statement]:
    """Yield what makes the schemas of all that is restored, types and sequences included."""
    schema = making.schema
    known = {each.name: each.comment for each in schema.schemas}
    needed = {name.schema for name in making.relations}
    for table in schema.tables:
        needed.update(sequence.schema_name for sequence in table.sequences)
        needed.update(sequence["schema"] for part in making.partitions(table) for sequence in part.get("sequences", ()))
    needed.update(kind.schema_name for kind in every_type(making))
    needed.update(place for _, place in _extensions(making))
    for name in sorted({*known, *needed} - {"pg_catalog"}):
        found = f"SELECT 1 AS one FROM pg_catalog.pg_namespace n WHERE n.nspname = {literal(name)}"
        # Even IF NOT EXISTS asks for the right to create schemas.
        yield Statement(f"schema {name}", f"CREATE SCHEMA IF NOT EXISTS {identifier(name)}", unless=found)
        wanted = known.get(name)
        for statement in comment("SCHEMA", identifier(name), wanted, f"schema {name}", None):
            told = "pg_catalog.obj_description(n.oid, 'pg_namespace')"
            others = f"{told} = {literal(wanted or '')} OR {told} <> {literal(_STANDARD_COMMENT)}"
            yield Statement(statement.makes, statement.sql, unless=f"{found} AND ({others})")


def extensions(making: Making) -> Iterator[Statement]:
    """Yield what makes the extensions whose types, functions and operators are used."""
    for name, schema in sorted(set(_extensions(making))):
        sql = f"CREATE EXTENSION IF NOT EXISTS {identifier(name)} SCHEMA {identifier(schema)}"
        yield Statement(f"extension {name}", sql)


def _extensions(making: Making) -> Iterator[tuple[str, str]]:
    described = [*(table.options for table in making.schema.tables), *(view.options for view in making.schema.views)]
    for options in described:
        places = options.get("extension_schemas", {})
        for name in options.get("extensions", ()):
            yield str(name), str(places.get(name, "public"))


def every_type(making: Making) -> Iterator[UserType]:
    """Yield every type of the snapshot, some more than once, each after what it is made of."""
    for table in making.schema.tables:
        yield from table.types
    for view in making.schema.views:
        yield from view_types(view.options)


def view_types(options: Mapping[str, Any]) -> Sequence[UserType]:
    """Return the types that a view uses."""
    return [UserType.model_validate(kind) for kind in options.get("types", ())]


def make_type(making: Making, kind: UserType) -> Iterator[Statement]:
    """Yield what makes one type, where it is not there."""
    name = TableName(kind.schema_name, kind.name)
    what = f"type {name}"
    unless = (
        "SELECT 1 AS one FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace"
        f" WHERE n.nspname = {literal(name.schema)} AND t.typname = {literal(name.table)}"
    )
    later: list[Statement] = []
    if kind.kind == "enum":
        labels = ", ".join(literal(label).strip() for label in kind.labels)
        sql = f"CREATE TYPE {qualified(name)} AS ENUM ({labels})"
    elif kind.kind == "composite":
        sql = f"CREATE TYPE {qualified(name)} AS ({_attributes(kind, what)})"
        later += _attribute_comments(kind, name)
    elif kind.kind == "range":
        sql = f"CREATE TYPE {qualified(name)} AS RANGE ({_range(making, kind, what)})"
    else:
        sql, later = _domain(making, kind, name)
    yield Statement(what, sql, unless=unless)
    described = f"{unless} AND pg_catalog.obj_description(t.oid, 'pg_type') IS NOT NULL"
    for statement in comment("TYPE", qualified(name), kind.comment, what, None):
        yield Statement(statement.makes, statement.sql, unless=described)
    yield from later


def _attributes(kind: UserType, what: str) -> str:
    found = []
    for attribute in kind.definition.get("attributes") or ():
        place = f"attribute {attribute['name']} of {what}"
        found.append(
            f"{identifier(attribute['name'])} {text.type_text(attribute['type'], place)}"
            f"{collate(attribute.get('collation'), place)}"
        )
    return ", ".join(found)


def _attribute_comments(kind: UserType, name: TableName) -> Iterator[Statement]:
    for number, attribute in enumerate(kind.definition.get("attributes") or (), 1):
        column = f"{qualified(name)}.{identifier(attribute['name'])}"
        described = (
            f"SELECT 1 AS one WHERE pg_catalog.col_description({literal(qualified(name))}::pg_catalog.regclass,"
            f" {number}) IS NOT NULL"
        )
        for statement in comment("COLUMN", column, attribute.get("comment"), f"{name}.{attribute['name']}", None):
            yield Statement(statement.makes, statement.sql, unless=described)


def _range(making: Making, kind: UserType, what: str) -> str:
    given = kind.definition
    found = [f"SUBTYPE = {text.type_text(str(given.get('subtype')), what)}"]
    named = {"subtype_opclass": "SUBTYPE_OPCLASS", "collation": "COLLATION", "multirange": "MULTIRANGE_TYPE_NAME"}
    found += [f"{sql} = {text.name_text(given[option], what)}" for option, sql in named.items() if option in given]
    for option in ("subtype_diff", "canonical"):
        if option in given and "." in text.name_text(given[option], what):
            making.lose(f"Function {given[option]} of {what} is not in a snapshot: the type is made without it.")
        elif option in given:
            found.append(f"{option.upper()} = {given[option]}")
    return ", ".join(found)


def _domain(making: Making, kind: UserType, name: TableName) -> tuple[str, list[Statement]]:
    given, what = kind.definition, f"domain {name}"
    parts = [
        f"CREATE DOMAIN {qualified(name)} AS {text.type_text(str(given.get('base')), what)}"
        f"{collate(given.get('collation'), what)}"
    ]
    later: list[Statement] = []
    if "default" in given and making.allows(f"Default of {what}"):
        parts.append(f"DEFAULT {text.expression(given['default'], f'default of {what}')}")
    if given.get("not_null"):
        named = f"CONSTRAINT {identifier(given['not_null_name'])} " if "not_null_name" in given else ""
        parts.append(f"{named}NOT NULL")
    for check in given.get("constraints") or ():
        label = f"check {check['name']} of {what}"
        if not making.allows(capital(label)):
            continue
        inner, tail = text.check_parts(check["definition"], label)
        clause = f"CONSTRAINT {identifier(check['name'])} CHECK {inner}"
        if tail:
            later.append(_domain_constraint(name, check["name"], f"ADD {clause}{tail}", label))
        else:
            parts.append(clause)
        place = f"{identifier(check['name'])} ON DOMAIN {qualified(name)}"
        later += comment("CONSTRAINT", place, check.get("comment"), label, None)
    return " ".join(parts), later


def _domain_constraint(domain: TableName, name: str, action: str, what: str) -> Statement:
    found = (
        f"SELECT 1 AS one FROM pg_catalog.pg_constraint k WHERE k.conname = {literal(name)}"
        f" AND k.contypid = {literal(qualified(domain))}::pg_catalog.regtype"
    )
    return Statement(what, f"ALTER DOMAIN {qualified(domain)} {action}", unless=found)


def collate(collation: str | None, what: str) -> str:
    """Return ` COLLATE …`, or nothing."""
    return f" COLLATE {text.name_text(collation, f'collation of {what}')}" if collation else ""


def needed_tables(making: Making, row_types: Sequence[Sequence[str]]) -> list[TableName]:
    """Return the tables of row types, a partition's own table for a partition."""
    found = []
    owners = {part_name(part): name for name, table in making.tables.items() for part in making.partitions(table)}
    for schema, name in row_types:
        relation = TableName(schema, name)
        if schema not in ("pg_catalog", "information_schema"):
            found.append(owners.get(relation, relation))
    return found
