"""Lists schemas, tables, partitions and views, and whether this user may read them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from snapshot_assets.databases.postgresql.introspect.columns import SourceColumn
from snapshot_assets.databases.postgresql.introspect.sequences import SourceSequence
from snapshot_assets.databases.postgresql.introspect.types_and_extensions import UsedTypes
from snapshot_assets.databases.postgresql.large_objects import LARGE_OBJECTS
from snapshot_assets.databases.postgresql.session import PostgresqlSession, oid_array
from snapshot_assets.databases.protocol.target import LEDGER_SCHEMA
from snapshot_assets.databases.sql import literal
from snapshot_assets.format.relations import Schema, TableName

KINDS = {"r": "table", "p": "partitioned table", "v": "view", "m": "materialized view", "f": "foreign table"}

_HAS_OWN_OBJECTS = """
    SELECT o.schema FROM (
        SELECT c.relnamespace AS schema, 'pg_class'::regclass AS class, c.oid FROM pg_class c
        WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S', 'c') AND c.relpersistence <> 't'
        UNION ALL SELECT p.pronamespace, 'pg_proc'::regclass, p.oid FROM pg_proc p
        UNION ALL SELECT t.typnamespace, 'pg_type'::regclass, t.oid FROM pg_type t WHERE t.typtype IN ('e', 'd', 'r')) o
    WHERE NOT EXISTS (
        SELECT FROM pg_depend m WHERE m.classid = o.class AND m.objid = o.oid AND m.deptype IN ('e', 'i'))"""

# Not exported: schemas of the system, of a restore's ledger, and of extensions, unless users have objects in them.
# TimescaleDB keeps its chunks in one.
OWN_SCHEMA = f"""
    n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', {literal(LEDGER_SCHEMA)}) AND n.oid NOT IN (
        SELECT d.objid FROM pg_depend d JOIN pg_extension x ON x.oid = d.refobjid
        WHERE d.classid = 'pg_namespace'::regclass AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
            AND (x.extname = 'timescaledb' OR d.objid NOT IN ({_HAS_OWN_OBJECTS})))"""

_SCHEMAS = f"""
SELECT n.oid::int8 AS oid, n.nspname::text AS name, obj_description(n.oid, 'pg_namespace') AS comment, (
        SELECT x.extname::text FROM pg_depend d JOIN pg_extension x ON x.oid = d.refobjid
        WHERE d.classid = 'pg_namespace'::regclass AND d.objid = n.oid AND d.refclassid = 'pg_extension'::regclass
            AND d.deptype = 'e') AS of_extension
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
    CASE WHEN c.relforcerowsecurity THEN CASE WHEN c.relrowsecurity THEN 'forced' ELSE 'forced, disabled' END
        WHEN c.relrowsecurity THEN 'enabled' END AS row_security,
    CASE WHEN c.reloftype <> 0 THEN format_type(c.reloftype, NULL) END AS of_type, c.reloftype::int8 AS of_type_oid,
    CASE c.relkind WHEN 'm' THEN c.relispopulated END AS populated,
    ARRAY(
        SELECT a.attname::text FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum) AS columns,
    ARRAY(
        SELECT i.inhparent::int8 FROM pg_inherits i WHERE i.inhrelid = c.oid ORDER BY i.inhseqno) AS parents,
    ARRAY(
        SELECT i.inhparent::regclass::text FROM pg_inherits i WHERE i.inhrelid = c.oid ORDER BY i.inhseqno
    ) AS parent_names,
    row_security_active(c.oid) AS rows_hidden,
    has_schema_privilege(n.oid, 'USAGE') AND (
        has_table_privilege(c.oid, 'SELECT') OR has_any_column_privilege(c.oid, 'SELECT')) AS readable,
    CASE WHEN NOT has_table_privilege(c.oid, 'SELECT') THEN ARRAY(
        SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
            AND NOT has_column_privilege(c.oid, a.attnum, 'SELECT')) END AS denied_columns
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

_IN_LEDGER_SCHEMA = f"""
SELECT c.relname::text AS name, ARRAY(
    SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0) AS columns
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = {literal(LEDGER_SCHEMA)} AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relpersistence <> 't'
"""

_NOT_CARRIED = """
SELECT p.pronamespace::int8 AS schema,
    CASE p.prokind WHEN 'p' THEN 'procedure ' WHEN 'a' THEN 'aggregate ' ELSE 'function ' END
        || p.oid::regprocedure::text AS object, 'pg_proc'::regclass::oid AS class, p.oid
FROM pg_proc p
UNION ALL SELECT c.relnamespace, 'foreign table ' || c.oid::regclass::text, 'pg_class'::regclass, c.oid
FROM pg_class c WHERE c.relkind = 'f'
UNION ALL SELECT o.oprnamespace, 'operator ' || o.oid::regoperator::text, 'pg_operator'::regclass, o.oid
FROM pg_operator o
UNION ALL SELECT l.collnamespace, 'collation ' || l.oid::regcollation::text, 'pg_collation'::regclass, l.oid
FROM pg_collation l
UNION ALL SELECT t.cfgnamespace, 'text search configuration ' || t.oid::regconfig::text, 'pg_ts_config'::regclass, t.oid
FROM pg_ts_config t
"""


@dataclass
class SourceRelation:
    """A table, partition, view or foreign table of the source.

    Attributes:
        kind: `relkind`, a key of `KINDS`.
        row: Its row of the query, with all other properties.
        parents: Relations that it inherits from, or the one that it is a partition of.
        children: Its own partitions, without theirs.

    `read_relation_parts` adds the rest: the rows of constraints, indexes and statistics, the names of objects that a
    snapshot does not carry, the parts that the plan hides, the objects that a table needs, a view's query, and a
    hypertable's time dimension.
    """

    oid: int
    name: TableName
    kind: str
    row: dict[str, Any]
    parents: list[SourceRelation] = field(default_factory=list)
    children: list[SourceRelation] = field(default_factory=list)
    columns: list[SourceColumn] = field(default_factory=list)
    sequences: list[SourceSequence] = field(default_factory=list)
    constraints: list[dict[str, Any]] = field(default_factory=list)
    indexes: list[dict[str, Any]] = field(default_factory=list)
    statistics: list[dict[str, Any]] = field(default_factory=list)
    not_carried: list[str] = field(default_factory=list)
    hidden_parts: set[str] = field(default_factory=set)
    needs: list[dict[str, Any]] = field(default_factory=list)
    query: dict[str, Any] = field(default_factory=dict)
    used: UsedTypes = field(default_factory=UsedTypes)
    dimension: str | None = None

    @property
    def is_view(self) -> bool:
        """Whether it holds no rows of its own; such a relation is exported as a table only if the plan names it."""
        return self.kind in "vmf"

    @property
    def partitions(self) -> list[SourceRelation]:
        """Its partitions of all levels, parents first."""
        partitions: list[SourceRelation] = []
        level = self.children
        while level:
            partitions += level
            level = [child for part in level for child in part.children]
        return partitions


def root_of(relation: SourceRelation) -> SourceRelation:
    """Return the table that a partition belongs to; any other relation itself."""
    while relation.row["is_partition"]:
        relation = relation.parents[0]
    return relation


def read_relations(session: PostgresqlSession) -> list[SourceRelation]:
    """Return every relation that belongs to neither the system nor an extension, sorted by name."""
    relations = {
        row["oid"]: SourceRelation(row["oid"], TableName(row["schema"], row["name"]), row["kind"], row)
        for row in session.rows(_RELATIONS, "listing relations")
    }
    for relation in relations.values():
        relation.parents = [relations[oid] for oid in relation.row["parents"] if oid in relations]
        word = "attachment to" if relation.row["is_partition"] else "inheritance from"
        for oid, name in zip(relation.row["parents"], relation.row["parent_names"], strict=True):
            if oid not in relations:  # it belongs to an extension
                relation.not_carried.append(f"{word} {name}")
        relation.row["is_partition"] &= bool(relation.parents)
        if relation.row["is_partition"]:
            relation.parents[0].children.append(relation)
    return list(relations.values())


def read_reserved(session: PostgresqlSession, relations: Iterable[SourceRelation]) -> dict[TableName, list[str]]:
    """Return the relations that have reserved names, with their columns: the ledger's, and those of users."""
    named = {each.name: each.row["columns"] for each in relations if each.name == LARGE_OBJECTS}
    rows = session.rows(_IN_LEDGER_SCHEMA, "looking for the ledger of imports")
    return named | {TableName(LEDGER_SCHEMA, row["name"]): row["columns"] for row in rows}


def read_schemas(session: PostgresqlSession) -> dict[int, Schema]:
    """Return every schema of the user by oid, sorted by name, with the objects in it that a snapshot does not carry."""
    rows = session.rows(_SCHEMAS, "listing schemas")
    not_carried: dict[int, list[str]] = {}
    query = f"""
        SELECT o.schema, o.object FROM ({_NOT_CARRIED}) o
        WHERE o.schema = ANY ({oid_array(row["oid"] for row in rows)}) AND NOT EXISTS (
            SELECT FROM pg_depend d WHERE d.classid = o.class AND d.objid = o.oid AND d.deptype IN ('e', 'i'))
        ORDER BY o.object"""
    for row in session.rows(query, "listing what a snapshot does not carry", optional="functions and operators"):
        not_carried.setdefault(row["schema"], []).append(row["object"])
    return {
        row["oid"]: Schema(
            name=row["name"],
            comment=row["comment"],
            options={
                "not_carried": not_carried.get(row["oid"], []),
                # Someone removed the comment that a new database has.
                "uncommented": row["name"] == "public" and row["comment"] is None,
                **({"of_extension": row["of_extension"]} if row["of_extension"] else {}),
            },
        )
        for row in rows
    }
