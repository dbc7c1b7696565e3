"""Reads the code of a database into the options of its schemas' documents, with the names of what they leave out.

The option `code` lists objects, and `code_needs` what types, tables and views need. An object without a schema (a
cast, an extension), or of a schema that is not selected but needed, is listed with the first schema.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from snapshot_assets.databases.postgresql.code.kinds import CODE_KINDS
from snapshot_assets.databases.postgresql.code.needs import LATER, Needs, everything_needed, read_needs, user_objects
from snapshot_assets.databases.postgresql.code.statements import STATEMENTS
from snapshot_assets.databases.postgresql.code.uncarried import read_uncarried
from snapshot_assets.databases.postgresql.introspect.hidden_columns import HiddenObjects
from snapshot_assets.databases.postgresql.introspect.types_and_extensions import read_own_types
from snapshot_assets.databases.postgresql.session import PostgresqlSession, oid_array
from snapshot_assets.databases.sql import identifier, literal
from snapshot_assets.format.options import SchemaOptions
from snapshot_assets.format.relations import Schema, TableName, UserType


def _query(word: str) -> str:
    kind = CODE_KINDS[word]
    within, of = f"{kind.namespace} = ANY ({{schemas}})", "NULL::oid"
    if kind.relation:
        within, of = f"o.{kind.relation} = ANY ({{relations}})", f"o.{kind.relation}"
    elif kind.lies_in_none:
        within = "true"
    users = "true" if kind.relation else user_objects(word)
    comment = "NULL" if kind.part else kind.comment
    return f"""
        SELECT '{word}' AS kind, {kind.label} AS name, {STATEMENTS[word]} AS sql, {kind.namespace}::int8 AS schema,
            {of}::int8 AS relation, {comment} AS comment, '{kind.catalog}'::regclass::int8 AS class, o.oid::int8 AS oid
        FROM {kind.source} WHERE {kind.where} AND {within} AND {users}"""


_QUERY = f"SELECT * FROM ({' UNION ALL '.join(map(_query, CODE_KINDS))}) found ORDER BY kind, relation, name"


@dataclass(frozen=True)
class SourceCode:
    """The code of a database.

    Attributes:
        objects: The documents' entries, by the name of the schema that they belong to.
        needs: What each object needs directly.
        without_schema: The entries of objects without a schema.
        left_out: Names of objects that need what the plan hides, by schema; "" for those without one.
    """

    objects: Mapping[str, list[dict[str, Any]]]
    needs: Needs = field(default_factory=dict)
    without_schema: Sequence[dict[str, Any]] = ()
    left_out: Mapping[str, list[str]] = field(default_factory=dict)


def read_code(
    session: PostgresqlSession,
    schemas: Mapping[int, str],
    relations: Mapping[int, TableName],
    types: Iterable[UserType],
    extensions: Collection[str],
    hidden: Collection[tuple[int, int]] = (),
) -> SourceCode:
    """Return the code of a database.

    Args:
        session: Where to read.
        schemas: Every schema of the user, by oid.
        relations: The relations whose triggers, rules and policies are read, by oid.
        types: Types that no column uses.
        extensions: Extensions that tables or views use: their documents have them.
        hidden: Objects that are left out, by system table and oid.
    """
    query = _QUERY.format(schemas=oid_array(schemas), relations=oid_array(relations))
    # The documents of tables and views have an extension, but not its comment.
    listed = {("extension", each, None) for name in extensions for each in (name, identifier(name))}
    every = [
        row for row in session.rows(query, "reading code") if (row["kind"], row["name"], row["comment"]) not in listed
    ]
    rows = [row for row in every if (row["class"], row["oid"]) not in hidden]
    left_out = _left_out((row for row in every if (row["class"], row["oid"]) in hidden), schemas)
    types = list(types)
    if not rows and not types:
        return SourceCode({}, left_out=left_out)
    needs = read_needs(session, schemas)
    objects: dict[str, list[dict[str, Any]]] = {}
    without_schema = []
    for row in sorted(rows, key=lambda row: list(CODE_KINDS).index(row["kind"])):  # a stable sort
        entry = _entry(row, schemas, relations, needs)
        if row["relation"] is not None:
            objects.setdefault(relations[row["relation"]].schema, []).append(entry)
        elif row["schema"] in schemas:
            objects.setdefault(schemas[row["schema"]], []).append(entry)
        else:
            without_schema.append(entry)
    for kind in types:
        entry = {"kind": "type", "name": kind.table_name.dotted, **_needed(f"type {kind.table_name.dotted}", needs)}
        entry["type"] = kind.model_dump(mode="json", by_alias=True)
        objects.setdefault(kind.schema_name, []).append(entry)
    return SourceCode(objects, needs, without_schema, left_out)


def _left_out(rows: Iterable[Mapping[str, Any]], schemas: Mapping[int, str]) -> dict[str, list[str]]:
    """Return the names of objects by schema; those of a table are named with it, parts with the whole."""
    names: dict[str, list[str]] = {}
    for row in rows:
        if row["relation"] is None and not CODE_KINDS[row["kind"]].part:
            names.setdefault(schemas.get(row["schema"], ""), []).append(f"{row['kind']} {row['name']}")
    return names


def _entry(
    row: Mapping[str, Any], schemas: Mapping[int, str], relations: Mapping[int, TableName], needs: Needs
) -> dict[str, Any]:
    entry = {"kind": row["kind"], "name": row["name"], "sql": row["sql"].strip().removesuffix(";")}
    if row["comment"] is not None:
        entry["comment"] = row["comment"]
    if row["relation"] is not None:
        return entry | {"on": list(relations[row["relation"]])}
    if row["schema"] in schemas:
        entry["schema"] = schemas[row["schema"]]
    key = f"{row['kind']} {row['name']}"
    if (whole := _whole(row["kind"], row["name"])) is not None:
        needs.setdefault(key, set()).add(whole)
    return entry | _needed(key, needs)


def _whole(kind: str, name: str) -> str | None:
    """Return kind and name of the object that must exist before a part of it; None for others."""
    if kind == "operator family members":
        return f"operator family {name}"
    if kind == "text search mapping":
        return f"text search configuration {name.rpartition(' FOR ')[0]}"
    return None


def _needed(key: str, needs: Needs) -> dict[str, Any]:
    return {"needs": sorted(needs[key])} if key in needs else {}


def key_of(entry: Mapping[str, Any]) -> str:
    """Return the kind and the name of an entry, as `needs` and `not_carried` have it."""
    return f"{entry['kind']} {entry['name']}"


def with_code(
    schemas: Sequence[Schema], code: SourceCode, relations: Collection[TableName], types: Iterable[UserType]
) -> list[Schema]:
    """Return the selected schemas with their code, and with what they need of the code of other schemas.

    Args:
        schemas: The selected schemas.
        code: All code of the database, and that of the exported tables and views.
        relations: The exported tables and views.
        types: The types that these use.
    """
    names = {schema.name for schema in schemas}
    roots = {key_of(each) for name in names for each in code.objects.get(name, ()) if "on" not in each}
    roots |= {key_of(each) for each in code.without_schema}
    roots |= {f"{when}relation {name.dotted}" for name in relations for when in ("", LATER)}
    needed = everything_needed(roots | {f"type {kind.table_name.dotted}" for kind in types}, code.needs)
    elsewhere = [
        each
        for name in sorted(set(code.objects) - names)
        for each in code.objects[name]
        if "on" in each or key_of(each) in needed
    ]
    entries = {name: code.objects.get(name, []) for name in names}
    first = min(names, default="")
    entries[first] = [*code.without_schema, *elsewhere, *entries.get(first, ())]
    carried = {key_of(each) for each in chain(*entries.values())}
    result = []
    wanted = _wanted(code.needs, needed, carried)
    for schema in schemas:
        own = {key: each for key, each in wanted.items() if (_schema_of(key, names) or first) == schema.name}
        options = {"code": entries[schema.name], "code_needs": own}
        present = {name: value for name, value in options.items() if value}
        result.append(schema.model_copy(update={"options": {**schema.options, **present}}))
    return result


def _wanted(needs: Needs, needed: set[str], carried: set[str]) -> dict[str, list[str]]:
    """Return what types, tables and views need of other objects.

    Of tables and views only what they need of code: documents have their types, and what views read.
    """
    wanted = {}
    for key in sorted(needed & set(needs) - carried):
        of_code = sorted(each for each in needs[key] if key.startswith("type ") or each in carried)
        if of_code and key.startswith(("relation ", "type ")):
            wanted[key] = of_code
    return wanted


def _schema_of(key: str, schemas: Iterable[str]) -> str | None:
    """Return the schema of a type, table or view, if it is one of the given ones."""
    name = key.partition(" ")[2]
    return next((each for each in sorted(schemas, key=len, reverse=True) if name.startswith(f"{each}.")), None)


@dataclass(frozen=True)
class Described:
    """What the documents of tables and views have.

    Attributes:
        relations: The exported tables, partitions and views, by oid.
        types: The types that these use.
        extensions: The extensions that these use.
        hidden: Types and code that are left out, because they need what the plan hides.
    """

    relations: Mapping[int, TableName]
    types: Collection[UserType]
    extensions: Collection[str]
    hidden: HiddenObjects


def schemas_with_code(
    session: PostgresqlSession,
    selected: list[Schema],
    every: Iterable[Schema],
    described: Described,
    missing: Iterable[str],
) -> tuple[Schema, ...]:
    """Return the selected schemas with the code of the database, and with the names of what is not carried.

    Args:
        session: The source.
        selected: The documents of the selected schemas.
        every: Those of all schemas of the user.
        described: What the documents of tables and views have.
        missing: More names of what is not carried.
    """
    names = [schema.name for schema in every]
    found = session.rows(
        "SELECT n.oid::int8 AS oid, n.nspname::text AS name FROM pg_namespace n"
        f" WHERE n.nspname IN ({', '.join(map(literal, names)) or 'NULL'})",
        "looking up schemas",
    )
    oids = {row["oid"]: row["name"] for row in found}
    listed = {kind.table_name for schema in selected for kind in SchemaOptions.of(schema).types}
    used = {kind.table_name for kind in described.types} | listed | described.hidden.types
    types = [kind for kind in read_own_types(session, names) if kind.table_name not in used]
    code = read_code(session, oids, described.relations, types, described.extensions, described.hidden.objects)
    uncarried = read_uncarried(session, oids)
    uncarried[""] = [*uncarried.get("", ()), *missing]
    for name, left_out in code.left_out.items():
        uncarried[name] = [*uncarried.get(name, ()), *left_out]
    complete = with_code(selected, code, list(described.relations.values()), described.types)
    return tuple(_with_names(schema, uncarried, first=number == 0) for number, schema in enumerate(complete))


def _with_names(schema: Schema, uncarried: Mapping[str, list[str]], *, first: bool) -> Schema:
    """Return a schema that names what is not carried, the first one also what belongs to the database."""
    names = [*schema.options.get("not_carried", ())]
    found = [*uncarried.get(schema.name, ()), *(uncarried[""] if first else ())]
    names += [each for each in found if each not in names]
    return schema.model_copy(update={"options": {**schema.options, "not_carried": names}}) if names else schema
