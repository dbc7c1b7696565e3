"""Reads constraints, indexes, extended statistics, and the objects of a table that a snapshot does not carry."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from snapshot_assets.databases.postgresql.session import PostgresqlSession
from snapshot_assets.databases.postgresql.sql import oid_array

Rows = dict[int, list[dict[str, Any]]]

CONSTRAINTS = """
SELECT k.conrelid::int8 AS relation, k.conname::text AS name, k.contype::text AS kind,
    pg_get_constraintdef(k.oid) AS definition, obj_description(k.oid, 'pg_constraint') AS comment,
    ARRAY(SELECT a.attname::text FROM unnest(k.conkey) WITH ORDINALITY u (number, place)
        JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.number ORDER BY u.place) AS columns,
    fn.nspname::text AS referenced_schema, f.relname::text AS referenced_table,
    ARRAY(SELECT a.attname::text FROM unnest(k.confkey) WITH ORDINALITY u (number, place)
        JOIN pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = u.number ORDER BY u.place) AS referenced_columns,
    x.reloptions::text[] AS storage_parameters, i.indisclustered AS clustered, i.indisreplident AS replica_identity,
    k.connoinherit AS no_inherit, k.conislocal AS local, k.convalidated AS valid, coalesce(parent.conname, (
        SELECT pc.relname FROM pg_inherits h JOIN pg_class pc ON pc.oid = h.inhparent
        WHERE h.inhrelid = x.oid))::text AS parent
FROM pg_constraint k
LEFT JOIN pg_class f ON f.oid = k.confrelid
LEFT JOIN pg_namespace fn ON fn.oid = f.relnamespace
LEFT JOIN pg_class x ON x.oid = k.conindid AND k.contype IN ('p', 'u', 'x')
LEFT JOIN pg_index i ON i.indexrelid = x.oid
LEFT JOIN pg_constraint parent ON parent.oid = k.conparentid
WHERE k.conrelid = ANY ({oids}) AND (
    k.contype IN ('p', 'u', 'x', 'n') OR k.contype = 'f' AND k.conparentid = 0 OR k.contype = 'c' AND k.conislocal)
ORDER BY k.conrelid, k.conname
"""
"""Inherited checks and foreign keys are left out; inherited NOT NULL and the keys of partitions are not."""

INDEXES = """
SELECT i.indrelid::int8 AS relation, x.relname::text AS name, pg_get_indexdef(x.oid) AS definition,
    i.indisunique AS unique, i.indisclustered AS clustered, i.indisreplident AS replica_identity,
    obj_description(x.oid, 'pg_class') AS comment,
    ARRAY(SELECT a.attname::text FROM unnest(i.indkey[0:i.indnkeyatts - 1]) WITH ORDINALITY u (number, place)
        JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = u.number ORDER BY u.place) AS columns,
    (SELECT pc.relname::text FROM pg_inherits h JOIN pg_class pc ON pc.oid = h.inhparent
        WHERE h.inhrelid = x.oid) AS parent
FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
WHERE i.indrelid = ANY ({oids}) AND (i.indisvalid OR x.relkind = 'I') AND NOT EXISTS (
    SELECT FROM pg_constraint k WHERE k.conindid = x.oid AND k.contype IN ('p', 'u', 'x'))
ORDER BY i.indrelid, x.relname
"""
"""Indexes of constraints are left out."""

STATISTICS = """
SELECT s.stxrelid::int8 AS relation, s.stxname::text AS name, pg_get_statisticsobjdef(s.oid) AS definition,
    obj_description(s.oid, 'pg_statistic_ext') AS comment
FROM pg_statistic_ext s WHERE s.stxrelid = ANY ({oids}) ORDER BY s.stxrelid, s.stxname
"""

NOT_CARRIED = """
SELECT t.tgrelid::int8 AS relation, 'trigger ' || quote_ident(t.tgname) AS object FROM pg_trigger t
WHERE t.tgrelid = ANY ({oids}) AND NOT t.tgisinternal AND t.tgparentid = 0
UNION ALL SELECT p.polrelid::int8, 'policy ' || quote_ident(p.polname) FROM pg_policy p WHERE p.polrelid = ANY ({oids})
UNION ALL SELECT r.ev_class::int8, 'rule ' || quote_ident(r.rulename) FROM pg_rewrite r
WHERE r.ev_class = ANY ({oids}) AND r.rulename <> '_RETURN'
ORDER BY 1, 2
"""


def read_by_relation(session: PostgresqlSession, query: str, relations: Iterable[int], doing: str) -> Rows:
    """Return the rows of one of these queries by relation.

    Args:
        session: Where to read.
        query: `CONSTRAINTS`, `INDEXES`, `STATISTICS` or `NOT_CARRIED`.
        relations: Oids of relations.
        doing: Its purpose, for messages.
    """
    by_relation: Rows = {}
    for row in session.rows(query.format(oids=oid_array(relations)), doing):
        by_relation.setdefault(row["relation"], []).append(row)
    return by_relation
