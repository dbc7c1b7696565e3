"""Reads the code of a database into the options of its schemas' documents, with the names of what they leave out.

The option `code` lists objects, and `code_needs` what types, tables and views need. An object without a schema (a
cast, an extension), or of a schema that is not selected but needed, is listed with the first schema.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from snapshot_assets.databases.postgresql.code.kinds import CODE_KINDS
from snapshot_assets.databases.postgresql.code.needs import (
    FIRST_USER_OID,
    LATER,
    Needs,
    everything_needed,
    read_needs,
    user_objects,
)
from snapshot_assets.databases.postgresql.code.statements import STATEMENTS
from snapshot_assets.databases.postgresql.code.uncarried import read_uncarried
from snapshot_assets.databases.postgresql.introspect.hidden_columns import HiddenObjects
from snapshot_assets.databases.postgresql.session import PostgresqlSession, oid_array
from snapshot_assets.databases.sql import identifier
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


# To plan the queries of all kinds takes a server longer than to run them, and few databases have objects of many.
_KINDS = " UNION ALL ".join(
    f"SELECT '{word}' AS kind WHERE EXISTS (SELECT FROM {kind.source} WHERE {kind.where} AND o.oid >= {FIRST_USER_OID})"
    for word, kind in CODE_KINDS.items()
)


def schemas_with_code(
    session: PostgresqlSession,
    selected: Sequence[Schema],
    schemas: Mapping[int, str],
    types: Iterable[UserType],
    relations: Mapping[int, TableName],
    used_types: Collection[UserType],
    extensions: Collection[str],
    hidden: HiddenObjects,
    missing: Iterable[str],
) -> tuple[Schema, ...]:
    """Return the selected schemas with the code of the database, and with the names of what is not carried.

    Args:
        session: The source.
        selected: The documents of the selected schemas.
        schemas: The names of all schemas of the user, by oid.
        types: The types in them.
        relations: The exported tables, partitions and views, by oid.
        used_types: The types that these use.
        extensions: The extensions that these use: their documents have them, but not their comments.
        hidden: Types and code that are left out, because they need what the plan hides.
        missing: More names of what is not carried.
    """
    listed = {kind.table_name for schema in selected for kind in SchemaOptions.of(schema).types}
    used = {kind.table_name for kind in used_types} | listed | hidden.types
    types = sorted((kind for kind in types if kind.table_name not in used), key=lambda kind: kind.table_name)
    uncarried = read_uncarried(session, schemas)
    uncarried.setdefault("", []).extend(missing)
    kinds = [row["kind"] for row in session.rows(_KINDS, "looking for code", optional="code")]
    queries = " UNION ALL ".join(map(_query, kinds)).format(schemas=oid_array(schemas), relations=oid_array(relations))
    query = f"SELECT * FROM ({queries}) found ORDER BY kind, relation, name"
    described = {("extension", each, None) for name in extensions for each in (name, identifier(name))}
    rows = []
    for row in session.rows(query, "reading code", optional="code") if kinds else ():
        if (row["kind"], row["name"], row["comment"]) in described:
            continue
        if (row["class"], row["oid"]) not in hidden.objects:
            rows.append(row)
        elif row["relation"] is None and not CODE_KINDS[row["kind"]].part:
            # What belongs to a table is named with it, and parts with the whole.
            uncarried.setdefault(schemas.get(row["schema"], ""), []).append(f"{row['kind']} {row['name']}")
    needs = read_needs(session, schemas) if rows or types else {}
    code = _entries(rows, types, schemas, relations, needs)
    complete = _with_code(selected, code, needs, relations.values(), used_types)
    for number, schema in enumerate(complete):
        lost = [*schema.options.get("not_carried", ())]
        more = [*uncarried.get(schema.name, ()), *(uncarried[""] if number == 0 else ())]
        lost += [each for each in more if each not in lost]
        if lost:
            complete[number] = schema.model_copy(update={"options": {**schema.options, "not_carried": lost}})
    return tuple(complete)


def _entries(
    rows: Iterable[Mapping[str, Any]],
    types: Iterable[UserType],
    schemas: Mapping[int, str],
    relations: Mapping[int, TableName],
    needs: Needs,
) -> dict[str, list[dict[str, Any]]]:
    """Return the documents' entries of code and types, by the schema that they belong to; "" for those without one."""
    entries: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: list(CODE_KINDS).index(row["kind"])):  # a stable sort
        kind, name = row["kind"], row["name"]
        entry = {"kind": kind, "name": name, "sql": row["sql"].strip().removesuffix(";")}
        if row["comment"] is not None:
            entry["comment"] = row["comment"]
        if row["relation"] is not None:
            relation = relations[row["relation"]]
            entries.setdefault(relation.schema, []).append(entry | {"on": list(relation)})
            continue
        if row["schema"] in schemas:
            entry["schema"] = schemas[row["schema"]]
        # A part needs the whole.
        if kind == "operator family members":
            needs.setdefault(f"{kind} {name}", set()).add(f"operator family {name}")
        elif kind == "text search mapping":
            whole = f"text search configuration {name.rpartition(' FOR ')[0]}"
            needs.setdefault(f"{kind} {name}", set()).add(whole)
        entries.setdefault(schemas.get(row["schema"], ""), []).append(entry | _needed(entry, needs))
    for each in types:
        entry = {"kind": "type", "name": each.table_name.dotted}
        entry |= {**_needed(entry, needs), "type": each.model_dump(mode="json", by_alias=True)}
        entries.setdefault(each.schema_name, []).append(entry)
    return entries


def _needed(entry: Mapping[str, Any], needs: Needs) -> dict[str, Any]:
    key = _key(entry)
    return {"needs": sorted(needs[key])} if key in needs else {}


def _key(entry: Mapping[str, Any]) -> str:
    """Return the kind and the name of an entry, as `needs` and `not_carried` have it."""
    return f"{entry['kind']} {entry['name']}"


def _with_code(
    schemas: Sequence[Schema],
    code: Mapping[str, list[dict[str, Any]]],
    needs: Needs,
    relations: Iterable[TableName],
    types: Iterable[UserType],
) -> list[Schema]:
    """Return the selected schemas with their code, and with what they need of the code of other schemas.

    `code` is that of the database by schema, and `relations` and `types` are what is exported or used by that.
    """
    names = {schema.name for schema in schemas}
    roots = {_key(each) for name in ("", *names) for each in code.get(name, ()) if "on" not in each}
    roots |= {f"{when}relation {name.dotted}" for name in relations for when in ("", LATER)}
    needed = everything_needed(roots | {f"type {kind.table_name.dotted}" for kind in types}, needs)
    elsewhere = [
        each for name in sorted(set(code) - names - {""}) for each in code[name] if "on" in each or _key(each) in needed
    ]
    entries = {name: code.get(name, []) for name in names}
    first = min(names, default="")
    entries[first] = [*code.get("", ()), *elsewhere, *entries.get(first, ())]
    carried = {_key(each) for each in chain(*entries.values())}
    wanted: dict[str, dict[str, list[str]]] = {}
    for key in sorted(needed & set(needs) - carried):
        # Of tables and views only what they need of code: documents have their types, and what views read.
        of_code = sorted(each for each in needs[key] if key.startswith("type ") or each in carried)
        if of_code and key.startswith(("relation ", "type ")):
            longest_first = sorted(names, key=len, reverse=True)
            name = key.partition(" ")[2]
            schema_name = next((each for each in longest_first if name.startswith(f"{each}.")), first)
            wanted.setdefault(schema_name, {})[key] = of_code
    result = []
    for schema in schemas:
        options = {"code": entries[schema.name], "code_needs": wanted.get(schema.name)}
        present = {name: value for name, value in options.items() if value}
        result.append(schema.model_copy(update={"options": {**schema.options, **present}}))
    return result
