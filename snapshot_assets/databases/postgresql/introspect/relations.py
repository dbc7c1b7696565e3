"""Which relations there are: tables, partitions, views, and whether this user may read them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from snapshot_assets.databases.postgresql.session import Session
from snapshot_assets.databases.postgresql.sql import literal, oid_array, qualified
from snapshot_assets.databases.target import LEDGER_SCHEMA
from snapshot_assets.format.relations import Schema, TableName, UserType

KINDS = {
    "r": "table",
    "p": "partitioned table",
    "v": "view",
    "m": "materialized view",
    "f": "foreign table",
}

# Schemas of the system and of extensions (TimescaleDB keeps the parts of its tables in one) are not the user's, nor is
# what this package notes in a database that it restored into.
OWN_SCHEMA = f"""
    n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', {literal(LEDGER_SCHEMA)}) AND NOT EXISTS (
        SELECT FROM pg_depend d
        WHERE d.classid = 'pg_namespace'::regclass AND d.objid = n.oid AND d.deptype = 'e')"""

_SCHEMAS = f"""
SELECT n.oid::int8 AS oid, n.nspname::text AS name, obj_description(n.oid, 'pg_namespace') AS comment
FROM pg_namespace n WHERE {OWN_SCHEMA} ORDER BY n.nspname
"""

_RELATIONS = f"""
SELECT c.oid::int8 AS oid, n.nspname::text AS schema, c.relname::text AS name, c.relkind::text AS kind,
    c.relispartition AS is_partition, obj_description(c.oid, 'pg_class') AS comment,
    CASE c.relpersistence WHEN 'u' THEN 'unlogged' END AS persistence,
    nullif(am.amname::text, 'heap') AS access_method, ts.spcname::text AS tablespace,
    c.reloptions::text[] AS storage_parameters, toast.reloptions::text[] AS toast_storage_parameters,
    CASE c.relkind WHEN 'p' THEN pg_get_partkeydef(c.oid) END AS partition_by,
    pg_get_expr(c.relpartbound, c.oid) AS bounds,
    CASE c.relreplident WHEN 'f' THEN 'full' WHEN 'n' THEN 'nothing' END AS replica_identity,
    CASE WHEN c.relforcerowsecurity THEN 'forced' WHEN c.relrowsecurity THEN 'enabled' END AS row_security,
    CASE WHEN c.reloftype <> 0 THEN format_type(c.reloftype, NULL) END AS of_type, c.reloftype::int8 AS of_type_oid,
    CASE c.relkind WHEN 'm' THEN c.relispopulated END AS populated,
    ARRAY(
        SELECT a.attname::text FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum) AS columns,
    ARRAY(
        SELECT i.inhparent::int8 FROM pg_inherits i WHERE i.inhrelid = c.oid ORDER BY i.inhseqno) AS parents,
    row_security_active(c.oid) AS rows_hidden,
    has_schema_privilege(n.oid, 'USAGE') AND (
        has_table_privilege(c.oid, 'SELECT') OR (
            SELECT coalesce(bool_and(has_column_privilege(c.oid, a.attnum, 'SELECT')), false) FROM pg_attribute a
            WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)) AS readable
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_am am ON am.oid = c.relam AND c.relkind IN ('r', 'p', 'm')
LEFT JOIN pg_tablespace ts ON ts.oid = c.reltablespace
LEFT JOIN pg_class toast ON toast.oid = c.reltoastrelid
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relpersistence <> 't' AND {OWN_SCHEMA}
    AND NOT EXISTS (
        SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
ORDER BY n.nspname, c.relname
"""

_NOT_CARRIED = """
SELECT p.pronamespace::int8 AS schema,
    CASE p.prokind WHEN 'p' THEN 'procedure ' WHEN 'a' THEN 'aggregate ' ELSE 'function ' END
        || p.oid::regprocedure::text AS object, 'pg_proc'::regclass::oid AS class, p.oid
FROM pg_proc p
UNION ALL SELECT c.relnamespace, CASE c.relkind WHEN 'S' THEN 'sequence ' ELSE 'foreign table ' END
    || c.oid::regclass::text, 'pg_class'::regclass, c.oid
FROM pg_class c WHERE c.relkind = 'f' OR c.relkind = 'S' AND NOT EXISTS (
    SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid
        AND d.refclassid = 'pg_class'::regclass AND d.refobjsubid > 0 AND d.deptype IN ('a', 'i')
    UNION ALL SELECT FROM pg_depend d WHERE d.classid = 'pg_attrdef'::regclass
        AND d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid)
UNION ALL SELECT o.oprnamespace, 'operator ' || o.oid::regoperator::text, 'pg_operator'::regclass, o.oid
FROM pg_operator o
UNION ALL SELECT l.collnamespace, 'collation ' || l.oid::regcollation::text, 'pg_collation'::regclass, l.oid
FROM pg_collation l
UNION ALL SELECT t.typnamespace, 'type ' || n.nspname || '.' || t.typname, 'pg_type'::regclass, t.oid
FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace LEFT JOIN pg_class c ON c.oid = t.typrelid
WHERE t.typtype IN ('e', 'd', 'r') OR c.relkind = 'c'
UNION ALL SELECT t.cfgnamespace, 'text search configuration ' || t.oid::regconfig::text, 'pg_ts_config'::regclass, t.oid
FROM pg_ts_config t
"""


@dataclass(frozen=True)
class Relation:
    """One table, partition, view or foreign table of the catalog.

    Attributes:
        oid: Its oid.
        name: Its name.
        kind: `relkind`, a key of `KINDS`.
        facts: The rest of its row.
    """

    oid: int
    name: TableName
    kind: str
    facts: dict[str, Any]

    @property
    def described(self) -> str:
        """The relation as a message names it."""
        return f"{KINDS[self.kind]} {self.name}"

    @property
    def is_view(self) -> bool:
        """Whether its rows are another relation's, so that it is exported as a table only where it is named."""
        return self.kind in "vmf"


def read_relations(session: Session) -> list[Relation]:
    """Return every relation that is not the system's or an extension's, sorted by name."""
    return [
        Relation(row["oid"], TableName(row["schema"], row["name"]), row["kind"], row)
        for row in session.rows(_RELATIONS, "listing relations")
    ]


def read_schemas(session: Session) -> list[Schema]:
    """Return every schema that is not the system's, with what of it a snapshot does not carry.

    All types of the user are in that list: `without_used_types` takes out those that come along with a column.
    """
    rows = session.rows(_SCHEMAS, "listing schemas")
    lost: dict[int, list[str]] = {}
    query = f"""
        SELECT o.schema, o.object FROM ({_NOT_CARRIED}) o
        WHERE o.schema = ANY ({oid_array(row["oid"] for row in rows)}) AND NOT EXISTS (
            SELECT FROM pg_depend d WHERE d.classid = o.class AND d.objid = o.oid AND d.deptype IN ('e', 'i'))
        ORDER BY o.object"""
    for row in session.rows(query, "listing what a snapshot does not carry"):
        lost.setdefault(row["schema"], []).append(row["object"])
    return [
        Schema(
            name=row["name"],
            comment=row["comment"],
            options={"not_carried": lost[row["oid"]]} if row["oid"] in lost else {},
        )
        for row in rows
    ]


def without_used_types(schema: Schema, used: Collection[UserType]) -> Schema:
    """Return a schema whose `not_carried` no longer names the types that columns bring along."""
    carried = {f"type {kind.schema_name}.{kind.name}" for kind in used}
    lost = [name for name in schema.options.get("not_carried", ()) if name not in carried]
    return schema.model_copy(update={"options": {"not_carried": lost} if lost else {}})


def relation_lock(relation: TableName, kind: str) -> str:
    """Return the statement that keeps a relation from being rewritten until the session's transaction ends.

    Views and foreign tables cannot be locked by name; naming one in a query locks it and what it reads.
    """
    if kind in "rp":
        return f"LOCK TABLE {qualified(relation)} IN ACCESS SHARE MODE"
    return f"SELECT FROM {qualified(relation)} WHERE false"
