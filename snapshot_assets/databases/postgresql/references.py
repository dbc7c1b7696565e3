"""Reads the foreign keys of a target that refer to tables, with those of other tables."""

from __future__ import annotations

from collections.abc import Sequence

from snapshot_assets.databases.postgresql.existing_types import names_of
from snapshot_assets.databases.postgresql.session import PostgresqlConnection
from snapshot_assets.databases.protocol.references import Reference
from snapshot_assets.format.relations import TableName

# Left out: foreign keys that partitions inherit, and those of a hypertable's chunks.
_REFERENCES = """
WITH relation AS (
    SELECT c.oid, n.nspname AS schema, c.relname AS name
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
), key AS (
    SELECT k.conname, k.conkey, k.confkey, k.conpfeqop, k.conrelid, k.confrelid,
        coalesce(pg_catalog.pg_partition_root(k.conrelid), k.conrelid) AS table_id,
        coalesce(pg_catalog.pg_partition_root(k.confrelid), k.confrelid) AS parent_id
    FROM pg_catalog.pg_constraint k WHERE k.contype = 'f' AND k.conparentid = 0
)
SELECT key.conname AS name, child.schema AS child_schema, child.name AS child_name,
    own.schema AS table_schema, own.name AS table_name,
    referred.schema AS referred_schema, referred.name AS referred_name,
    parent.schema AS parent_schema, parent.name AS parent_name,
    (SELECT pg_catalog.string_agg(
            pg_catalog.format('p.%I OPERATOR(%I.%s) c.%I', there.attname, s.nspname, o.oprname, here.attname), ' AND ')
        FROM ROWS FROM (
            pg_catalog.unnest(key.conkey), pg_catalog.unnest(key.confkey), pg_catalog.unnest(key.conpfeqop)
        ) AS pair (here, there, operator)
        JOIN pg_catalog.pg_attribute here ON here.attrelid = key.conrelid AND here.attnum = pair.here
        JOIN pg_catalog.pg_attribute there ON there.attrelid = key.confrelid AND there.attnum = pair.there
        JOIN pg_catalog.pg_operator o ON o.oid = pair.operator
        JOIN pg_catalog.pg_namespace s ON s.oid = o.oprnamespace) AS match
FROM key JOIN relation child ON child.oid = key.conrelid JOIN relation own ON own.oid = key.table_id
JOIN relation referred ON referred.oid = key.confrelid JOIN relation parent ON parent.oid = key.parent_id
WHERE (parent.schema, parent.name) IN ({names}) AND child.schema <> '_timescaledb_internal'
ORDER BY own.schema, own.name, key.conname
"""


def references_to(target: PostgresqlConnection, tables: Sequence[TableName]) -> list[Reference]:
    """Return all foreign keys in the target that refer to the tables."""
    references = []
    for row in target.rows(_REFERENCES.format(names=names_of(tables)), "looking up foreign keys"):
        child, table, referred, parent = (
            TableName(row[f"{end}_schema"], row[f"{end}_name"]) for end in ("child", "table", "referred", "parent")
        )
        references.append(Reference(row["name"], child, table, referred, parent, row["match"]))
    return references
