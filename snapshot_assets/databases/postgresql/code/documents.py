"""Adds to the documents of schemas what belongs neither to tables nor to views: code, and the names of the rest."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from snapshot_assets.databases.postgresql.code.read import read_code, with_code
from snapshot_assets.databases.postgresql.code.uncarried import read_uncarried
from snapshot_assets.databases.postgresql.introspect.hidden_columns import HiddenObjects
from snapshot_assets.databases.postgresql.introspect.types_and_extensions import read_own_types
from snapshot_assets.databases.postgresql.session import PostgresqlSession
from snapshot_assets.databases.sql import literal
from snapshot_assets.format.options import SchemaOptions
from snapshot_assets.format.relations import Schema, TableName, UserType


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
