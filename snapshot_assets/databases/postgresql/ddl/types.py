"""Creates schemas, extensions, and the types that columns use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from snapshot_assets.databases.definition import Create, ObjectKey, Statement, comment
from snapshot_assets.databases.postgresql.ddl import checked_sql as text
from snapshot_assets.databases.postgresql.ddl.code import needed_first
from snapshot_assets.databases.postgresql.ddl.statements import (
    RestoreContext,
    all_checked,
    in_order,
    with_details,
    with_text,
)
from snapshot_assets.databases.sql import identifier, literal, qualified
from snapshot_assets.format.kinds import capital
from snapshot_assets.format.options import TypeDefinition
from snapshot_assets.format.relations import TableName, UserType

_LABELS = """ARRAY(
    SELECT l.enumlabel::text FROM pg_catalog.pg_enum l WHERE l.enumtypid = t.oid ORDER BY l.enumsortorder)"""
_COLLATION = """(SELECT pg_catalog.quote_ident(ln.nspname) || '.' || pg_catalog.quote_ident(l.collname)
    FROM pg_catalog.pg_collation l JOIN pg_catalog.pg_namespace ln ON ln.oid = l.collnamespace
    WHERE l.oid = {collation} AND l.oid <> (SELECT b.typcollation FROM pg_catalog.pg_type b WHERE b.oid = {of}))"""
_CHECKS = """ARRAY(
    SELECT pg_catalog.pg_get_constraintdef(k.oid) FROM pg_catalog.pg_constraint k
    WHERE k.contypid = t.oid AND k.contype = 'c')"""
_RANGE = """EXISTS (
    SELECT FROM pg_catalog.pg_range r JOIN pg_catalog.pg_opclass o ON o.oid = r.rngsubopc
    JOIN pg_catalog.pg_namespace s ON s.oid = o.opcnamespace
    WHERE r.rngtypid = t.oid AND {collation} IS NOT DISTINCT FROM {wanted_collation} AND CASE WHEN NOT o.opcdefault
        THEN pg_catalog.quote_ident(s.nspname) || '.' || pg_catalog.quote_ident(o.opcname)
        END IS NOT DISTINCT FROM {wanted_class})"""


_STANDARD_COMMENT = "standard public schema"


def _same_type(kind: UserType, there: str) -> str:
    """Return the query that yields a row if a type `t`, found by `there`, is that of the snapshot; "" for a composite.

    A composite type with other attributes is refused before; see `existing_objects`.
    """
    fields = TypeDefinition.of_type(kind)
    if kind.kind == "enum":
        return f"{there} AND {_LABELS} = {_texts(kind.labels)}"
    if kind.kind == "domain":
        checks = _texts([each.definition for each in fields.constraints])
        collation = _COLLATION.format(collation="t.typcollation", of="t.typbasetype")
        default = "coalesce(pg_catalog.pg_get_expr(t.typdefaultbin, 0), t.typdefault)"
        return (
            f"{there} AND {_CHECKS} @> {checks} AND {checks} @> {_CHECKS}"
            f" AND t.typnotnull = {'true' if fields.not_null else 'false'}"
            f" AND {default} IS NOT DISTINCT FROM {_text(fields.default)}"
            f" AND {collation} IS NOT DISTINCT FROM {_text(fields.collation)}"
        )
    if kind.kind == "range":
        same = _RANGE.format(
            collation=_COLLATION.format(collation="r.rngcollation", of="r.rngsubtype"),
            wanted_collation=_text(fields.collation),
            wanted_class=_text(fields.subtype_opclass),
        )
        return f"{there} AND {same}"
    return ""


def _text(value: str | None) -> str:
    return "NULL" if value is None else literal(value)


def _texts(values: Iterable[str]) -> str:
    return f"ARRAY[{', '.join(map(literal, values))}]::pg_catalog.text[]"


def schemas_and_extensions(context: RestoreContext) -> Iterator[Statement]:
    """Yield the statements that create all schemas and extensions; an extension makes the schemas that it owns."""
    schema, extensions = context.schema, set(context.extensions())
    code = {each.key: each for each in context.code if each.kind == "extension"}
    of_extensions = {name for name, options in context.schemas.items() if options.of_extension}
    of_extensions -= {place for _, place in extensions} | {str(each.place) for each in code.values()}
    needed = {each.name for each in schema.schemas} | {name.schema for name in context.relations}
    for table in schema.tables:
        for sequences in (table.sequences, *(part.options.sequences for part in context.partitions(table))):
            needed.update(sequence.schema_name for sequence in sequences)
        needed.update(kind.schema_name for kind in table.types)
    needed.update(kind.schema_name for options in context.views.values() for kind in options.types)
    needed.update(place for _, place in extensions)
    needed.update(each.place for each in context.code if each.place is not None)
    needed.discard("pg_catalog")
    yield from _schemas(context, needed - of_extensions)
    for name, place in sorted(extensions):
        sql = f"CREATE EXTENSION IF NOT EXISTS {identifier(name)} SCHEMA {identifier(place)}"
        yield Statement(ObjectKey("extension", name), sql)
    for each in needed_first(code, context.needs):
        yield from all_checked(each.made, None, each.statements())
    yield from _schemas(context, needed & of_extensions)


def _schemas(context: RestoreContext, names: set[str]) -> Iterator[Statement]:
    # An empty comment removes the standard one of a schema that the target has.
    schemas, options = context.schema.schemas, context.schemas
    comments = {each.name: "" if options[each.name].uncommented else each.comment for each in schemas}
    for name in sorted(names):
        exists = f"SELECT 1 AS one FROM pg_catalog.pg_namespace n WHERE n.nspname = {literal(name)}"
        # Even IF NOT EXISTS requires the privilege to create schemas.
        sql, key = f"CREATE SCHEMA IF NOT EXISTS {identifier(name)}", ObjectKey("schema", name)
        if name == "public":  # every new database has it, with the standard comment
            yield Statement(key, sql, unless=exists)
        else:
            yield Create(key, sql, there=exists)
        content = comments.get(name)
        current = "pg_catalog.obj_description(n.oid, 'pg_namespace')"
        differs = f"{current} = {literal(content or '')} OR {current} <> {literal(_STANDARD_COMMENT)}"
        unless = f"{exists} AND ({differs})"
        yield from comment(f"SCHEMA {identifier(name)}", content, key, None, unless)


def create_unused_types(context: RestoreContext) -> Iterator[Statement]:
    """Yield the statements that create the types that no table or view uses, each after those that it needs."""
    kinds = {kind.table_name: kind for options in context.schemas.values() for kind in options.types}
    needs = {name: TypeDefinition.of_type(kind).needs for name, kind in kinds.items()}
    created = {kind.table_name for each in context.schema.tables for kind in each.types} | context.relations
    created |= {kind.table_name for options in context.views.values() for kind in options.types}
    for name in in_order(needs, "types"):
        missing = [str(each) for each in needs.get(name, ()) if each not in created]
        if name not in kinds:
            continue
        if missing:
            context.lose(f"Type {name} is left out: it needs {', '.join(missing)}, which is not restored.")
            continue
        created.add(name)
        functions = TypeDefinition.of_type(kinds[name]).functions
        for function in functions:
            context.lose(
                f"Type {name} calls function {function}, which is not in a snapshot. If the target does not have it,"
                " the type is left out."
            )
        lacking = [f"SELECT 1 AS one WHERE pg_catalog.to_regprocedure({literal(each)}) IS NULL" for each in functions]
        for statement in all_checked(ObjectKey("type", name), None, create(context, kinds[name])):
            yield replace(statement, unless=" UNION ALL ".join(filter(None, (statement.unless, *lacking))))
        yield from unvalidated_checks(context, kinds[name])


def create(context: RestoreContext, kind: UserType) -> Iterator[Statement]:
    """Yield the statements that create a type, if the target does not have it."""
    name, key = kind.table_name, ObjectKey("type", kind.table_name)
    what = str(key)
    there = (
        "SELECT 1 AS one FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace"
        f" WHERE n.nspname = {literal(name.schema)} AND t.typname = {literal(name.table)}"
    )
    later: list[Statement] = []
    if kind.kind == "enum":
        labels = ", ".join(map(literal, kind.labels))
        sql = f"CREATE TYPE {qualified(name)} AS ENUM ({labels})"
    elif kind.kind == "composite":
        attributes = []
        for number, each in enumerate(TypeDefinition.of_type(kind).attributes, 1):
            place, quoted = f"attribute {each.name} of {what}", identifier(each.name)
            attributes.append(f"{quoted} {text.type_text(each.type, place)}{collate(each.collation, place)}")
            described = (
                f"SELECT 1 AS one WHERE pg_catalog.col_description({literal(qualified(name))}::pg_catalog.regclass,"
                f" {number}) IS NOT NULL"
            )
            of = ObjectKey("attribute", each.name, key)
            later += comment(f"COLUMN {qualified(name)}.{quoted}", each.comment, of, None, described)
        sql = f"CREATE TYPE {qualified(name)} AS ({', '.join(attributes)})"
    elif kind.kind == "range":
        sql = f"CREATE TYPE {qualified(name)} AS RANGE ({_range(context, kind, what)})"
    else:
        sql, later = _domain(context, kind, name)
    yield Create(key, sql, there=there, same=_same_type(kind, there))
    described = f"{there} AND pg_catalog.obj_description(t.oid, 'pg_type') IS NOT NULL"
    yield from comment(f"TYPE {qualified(name)}", kind.comment, key, None, described)
    yield from later


def _range(context: RestoreContext, kind: UserType, what: str) -> str:
    fields = TypeDefinition.of_type(kind)
    named = {
        "SUBTYPE_OPCLASS": fields.subtype_opclass,
        "COLLATION": fields.collation,
        "MULTIRANGE_TYPE_NAME": fields.multirange,
    }
    options = [f"SUBTYPE = {text.type_text(fields.subtype or '', what)}"]
    options += [f"{sql} = {text.name_text(name, what)}" for sql, name in named.items() if name is not None]
    for option, function in (("SUBTYPE_DIFF", fields.subtype_diff), ("CANONICAL", fields.canonical)):
        called = text.name_text(function, what) if function is not None else ""
        carried = option == "SUBTYPE_DIFF" and any(each.key.startswith(f"function {called}(") for each in context.code)
        if "." in called and not carried:
            context.lose(f"Function {function} of {what} is not in a snapshot: the type is created without it.")
        elif called:
            options.append(f"{option} = {called}")
    return ", ".join(options)


def _domain(context: RestoreContext, kind: UserType, name: TableName) -> tuple[str, list[Statement]]:
    fields, key = TypeDefinition.of_type(kind), ObjectKey("domain", name)
    what = str(key)
    base, collation = text.type_text(fields.base or "", what), collate(fields.collation, what)
    parts = [f"CREATE DOMAIN {qualified(name)} AS {base}{collation}"]
    later: list[Statement] = []
    if fields.default is not None and context.allows(f"Default of {what}"):
        parts.append(f"DEFAULT {text.expression(fields.default, f'default of {what}')}")
    if fields.not_null:
        named = f"CONSTRAINT {identifier(fields.not_null_name)} " if fields.not_null_name is not None else ""
        parts.append(f"{named}NOT NULL")
        constraint = fields.not_null_name or f"{name.table}_not_null"
        later += _constraint_comment(name, constraint, fields.not_null_comment, ObjectKey("not null", of=key))
    for check, definition, commented in _domain_checks(context, kind, valid=True):
        parts.append(f"CONSTRAINT {identifier(str(check.name))} {_check(definition, str(check))}")
        later += commented
    return " ".join(parts), later


def unvalidated_checks(context: RestoreContext, kind: UserType) -> Iterator[Statement]:
    """Yield the checks of a domain that the source has not validated, for after the load: rows may violate them."""
    domain = qualified(kind.table_name)
    for check, definition, commented in _domain_checks(context, kind, valid=False):
        exists = (
            f"SELECT 1 AS one FROM pg_catalog.pg_constraint k WHERE k.conname = {literal(str(check.name))}"
            f" AND k.contypid = {literal(domain)}::pg_catalog.regtype"
        )
        add = f"ALTER DOMAIN {domain} ADD CONSTRAINT {identifier(str(check.name))}"
        made = with_text(check, None, add, definition, _check)
        yield from with_details(replace(made, unless=exists), commented)


def _check(definition: str, what: str) -> str:
    condition, tail = text.check_parts(definition, what)
    return f"CHECK {condition}{tail}"


def _domain_checks(
    context: RestoreContext, kind: UserType, *, valid: bool
) -> Iterator[tuple[ObjectKey, str, list[Statement]]]:
    """Yield key, definition and comment of each check that the source has, or has not, validated."""
    for check in TypeDefinition.of_type(kind).constraints:
        key = ObjectKey("check", check.name, ObjectKey("domain", kind.table_name))
        if check.definition.endswith("NOT VALID") == valid or not context.allows(capital(str(key))):
            continue
        described = _constraint_comment(kind.table_name, check.name, check.comment, key)
        yield key, check.definition, list(described)


def _constraint_comment(domain: TableName, name: str, content: str | None, of: ObjectKey) -> Iterator[Statement]:
    """Yield the comment on a constraint of a domain, unless an existing domain lacks it or has a comment on it."""
    unless = (
        "SELECT 1 AS one WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_constraint k WHERE"
        f" k.contypid = {literal(qualified(domain))}::pg_catalog.regtype AND k.conname = {literal(name)}"
        " AND pg_catalog.obj_description(k.oid, 'pg_constraint') IS NULL)"
    )
    yield from comment(f"CONSTRAINT {identifier(name)} ON DOMAIN {qualified(domain)}", content, of, None, unless)


def collate(collation: str | None, what: str) -> str:
    """Return ` COLLATE …`, or nothing."""
    return f" COLLATE {text.name_text(collation, f'collation of {what}')}" if collation else ""
