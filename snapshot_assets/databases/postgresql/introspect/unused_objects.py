"""Reads the types and sequences that no table or view uses. They are part of their schema's document."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from snapshot_assets.databases.postgresql.introspect.options import sequence_comments
from snapshot_assets.databases.postgresql.introspect.relations import OWN_SCHEMA
from snapshot_assets.databases.postgresql.introspect.sequences import (
    SourceSequence,
    read_loose_sequences,
    recorded_persistence,
    recorded_restarts,
)
from snapshot_assets.databases.postgresql.introspect.types_and_extensions import read_each_type
from snapshot_assets.databases.postgresql.session import PostgresqlSession
from snapshot_assets.format.options import Comments, SchemaOptions
from snapshot_assets.format.relations import Schema, TableName, UserType

_SCHEMAS = f"SELECT n.oid::int8 AS oid FROM pg_namespace n WHERE {OWN_SCHEMA}"

_TYPES = f"""
SELECT t.oid::int8 AS oid
FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace LEFT JOIN pg_class c ON c.oid = t.typrelid
WHERE {OWN_SCHEMA} AND (t.typtype IN ('e', 'd', 'r') OR c.relkind = 'c') AND NOT EXISTS (
    SELECT FROM pg_depend d WHERE d.classid = 'pg_type'::regclass AND d.objid = t.oid AND d.deptype IN ('e', 'i'))
"""


@dataclass(frozen=True)
class LooseObjects:
    """Types and sequences that no relation uses, and by type the extensions that it needs.

    Attributes:
        hidden: Types that only columns and tables use which the plan hides; none is carried.
    """

    types: list[UserType] = field(default_factory=list)
    extensions: dict[TableName, dict[str, str]] = field(default_factory=dict)
    sequences: list[SourceSequence] = field(default_factory=list)
    hidden: Collection[TableName] = ()


def read_loose(session: PostgresqlSession, used: Collection[TableName], hidden: Collection[TableName]) -> LooseObjects:
    """Return the types and sequences of all schemas that no relation uses.

    Args:
        session: Where to read.
        used: Types that relations use.
        hidden: Types that only what the plan hides uses.
    """
    loose = LooseObjects(hidden=hidden)
    rows = session.rows(_TYPES, "listing types")
    for kind, extensions in read_each_type(session, [row["oid"] for row in rows]) if rows else ():
        if kind.table_name not in used:
            loose.types.append(kind)
            loose.extensions[kind.table_name] = extensions
    schemas = [row["oid"] for row in session.rows(_SCHEMAS, "listing schemas")]
    loose.sequences.extend(read_loose_sequences(session, schemas))
    return loose


def with_loose(schema: Schema, loose: LooseObjects, *, carried: bool) -> Schema:
    """Return a schema's document with its types and sequences; without `carried`, they are listed as not carried."""
    types = [kind for kind in loose.types if kind.schema_name == schema.name]
    sequences = [each for each in loose.sequences if each.document.schema_name == schema.name]
    left_out = [f"type {kind.table_name.dotted}" for kind in types if not carried or kind.table_name in loose.hidden]
    types = [kind for kind in types if kind.table_name not in loose.hidden]
    left_out += [f"sequence {each.document.table_name.dotted}" for each in sequences if not (carried and each.readable)]
    kept = [each for each in sequences if carried and each.readable]
    places = {name: place for kind in types for name, place in loose.extensions[kind.table_name].items()}
    update = {
        "not_carried": tuple(sorted([*schema.options.get("not_carried", ()), *left_out])),
        "sequences": tuple(each.document for each in kept),
        "comments": Comments(sequences=sequence_comments(kept)),
        "sequence_persistence": recorded_persistence(kept, unlogged=False),
        "sequence_restarts": recorded_restarts(kept),
    }
    if carried:
        other = {name: place for name, place in places.items() if place != "public"}
        update |= {"types": tuple(types), "extensions": tuple(sorted(places)), "extension_schemas": other}
    return schema.model_copy(update={"options": SchemaOptions.of(schema).model_copy(update=update).values()})
