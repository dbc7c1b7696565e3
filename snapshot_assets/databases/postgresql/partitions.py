"""Which relations hold the rows of a partitioned table in the state that a session reads, as `pg_dump` reads them.

A SELECT from the table leaves out partitions whose `DETACH … CONCURRENTLY` was interrupted, asks the servers of foreign
partitions, and follows what was attached or detached after the state. System tables show the state, and
`pg_partition_tree` what a SELECT reads. Where both are equal, no count of rows can differ; else nothing is read.
"""

from __future__ import annotations

from snapshot_assets.databases.postgresql.session import PostgresqlSession
from snapshot_assets.databases.sql import qualified
from snapshot_assets.errors import ConsistencyLostError
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import TableName

EXPRESSIONS = """(
    EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL))
    OR EXISTS (SELECT FROM pg_statistic_ext s WHERE s.stxrelid = c.oid AND to_json(s)->>'stxexprs' IS NOT NULL)
    OR EXISTS (SELECT FROM pg_constraint k WHERE k.conrelid = c.oid AND k.contype = 'c')
    OR EXISTS (SELECT FROM pg_partitioned_table p WHERE p.partrelid = c.oid AND p.partexprs IS NOT NULL))"""
"""Whether a relation `c` has expressions that the server simplifies when it plans a query: it inlines functions."""

# Before PostgreSQL 14 there is no column `inhdetachpending`.
_TREE = f"""
WITH RECURSIVE tree (oid, parent, pending) AS (
    SELECT {{oid}}::oid, 0::oid, false
    UNION ALL
    SELECT i.inhrelid, i.inhparent, coalesce((to_json(i)->>'inhdetachpending')::bool, false)
    FROM tree t JOIN pg_inherits i ON i.inhparent = t.oid
), live AS (
    SELECT p.relid::oid AS oid FROM tree t CROSS JOIN LATERAL pg_partition_tree(t.oid) p
    WHERE t.parent = 0 OR t.pending
)
SELECT t.pending, c.relkind::text AS kind, n.nspname::text AS schema, c.relname::text AS name,
    coalesce(n.nspname || '.' || c.relname, l.oid::regclass::text) AS text,
    t.oid IS NULL AS attached, l.oid IS NULL AS detached,
    {EXPRESSIONS} AS expressions
FROM tree t FULL JOIN live l ON l.oid = t.oid
LEFT JOIN pg_class c ON c.oid = t.oid LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
ORDER BY t.parent, t.oid
"""


def read_partitions(session: PostgresqlSession, oid: int, name: TableName) -> tuple[list[str] | None, bool]:
    """Return the relations that hold the rows of a partitioned table.

    Returns:
        FROM items that have all its rows, or None if the table itself has; and whether the server simplifies
        expressions when it plans a query; see `EXPRESSIONS`.

    Raises:
        ConsistencyLostError: A partition was attached or detached after the state that the session reads.
    """
    rows = session.rows(_TREE.format(oid=oid), f"listing the partitions of {name}")
    for row in rows:
        if row["attached"] or row["detached"]:
            change = "attached to" if row["attached"] else "detached from"
            raise ConsistencyLostError(
                f"Partition {row['text']} was {change} {name}, or dropped, after the state that this run reads, so that"
                " state cannot be read. Start a new run, and attach, detach and drop no partitions during it.",
                table=table_text(name),
            )
    items = None
    if any(row["kind"] == "f" for row in rows):
        items = [f"ONLY {qualified((row['schema'], row['name']))}" for row in rows[1:] if row["kind"] == "r"]
    elif pending := [qualified((row["schema"], row["name"])) for row in rows if row["pending"]]:
        items = [qualified(name), *pending]
    return items, any(row["expressions"] for row in rows)
