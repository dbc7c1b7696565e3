"""Reads what belongs to the relations that are exported, with a few queries for all of them together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from snapshot_assets.databases.postgresql.introspect.columns import read_columns
from snapshot_assets.databases.postgresql.introspect.dependencies import read_needs
from snapshot_assets.databases.postgresql.introspect.hidden_columns import remove_hidden
from snapshot_assets.databases.postgresql.introspect.relations import SourceRelation
from snapshot_assets.databases.postgresql.introspect.types_and_extensions import read_types
from snapshot_assets.databases.postgresql.session import PostgresqlSession, oid_array
from snapshot_assets.databases.protocol.refusals import Refusals
from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.format.relations import TableName

_CONSTRAINTS = """
SELECT k.conrelid::int8 AS relation, k.conname::text AS name, k.contype::text AS kind,
    pg_get_constraintdef(k.oid) AS definition, obj_description(k.oid, 'pg_constraint') AS comment,
    ARRAY(SELECT a.attname::text FROM unnest(k.conkey) WITH ORDINALITY u (number, place)
        JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.number ORDER BY u.place) AS columns,
    fn.nspname::text AS referenced_schema, f.relname::text AS referenced_table,
    ARRAY(SELECT a.attname::text FROM unnest(k.confkey) WITH ORDINALITY u (number, place)
        JOIN pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = u.number ORDER BY u.place) AS referenced_columns,
    x.reloptions::text[] AS storage_parameters, i.indisclustered AS clustered, i.indisreplident AS replica_identity,
    obj_description(x.oid, 'pg_class') AS index_comment, ts.spcname::text AS tablespace,
    k.connoinherit AS no_inherit, k.conislocal AS local, k.convalidated AS valid, coalesce(parent.conname, (
        SELECT pc.relname FROM pg_inherits h JOIN pg_class pc ON pc.oid = h.inhparent
        WHERE h.inhrelid = x.oid))::text AS parent
FROM pg_constraint k
LEFT JOIN pg_class f ON f.oid = k.confrelid
LEFT JOIN pg_namespace fn ON fn.oid = f.relnamespace
LEFT JOIN pg_class x ON x.oid = k.conindid AND k.contype IN ('p', 'u', 'x')
LEFT JOIN pg_index i ON i.indexrelid = x.oid
LEFT JOIN pg_tablespace ts ON ts.oid = x.reltablespace
LEFT JOIN pg_constraint parent ON parent.oid = k.conparentid
WHERE k.conrelid = ANY ({oids}) AND (
    k.contype IN ('p', 'u', 'x', 'n') OR k.contype = 'f' AND k.conparentid = 0 OR k.contype = 'c' AND (
        k.conislocal OR k.convalidated AND EXISTS (
            SELECT FROM pg_inherits h JOIN pg_class part ON part.oid = h.inhrelid AND part.relispartition
            JOIN pg_constraint above ON above.conrelid = h.inhparent AND above.contype = 'c'
            WHERE h.inhrelid = k.conrelid AND above.conname = k.conname AND NOT above.convalidated)))
ORDER BY k.conrelid, k.conname
"""
"""Inherited checks and foreign keys are left out; inherited NOT NULL and the keys of partitions are not.

A partition may have validated a check that its parent has not; that is the one inherited check that is not left out.
"""

_INDEXES = """
SELECT i.indrelid::int8 AS relation, x.relname::text AS name, pg_get_indexdef(x.oid) AS definition,
    i.indisunique AS unique, concat(i.indexprs, i.indpred) LIKE '%{{CONST %' AS constants,
    i.indisclustered AS clustered, i.indisreplident AS replica_identity,
    obj_description(x.oid, 'pg_class') AS comment, ts.spcname::text AS tablespace,
    (SELECT json_object_agg(a.attnum, a.attstattarget ORDER BY a.attnum)::text FROM pg_attribute a
        WHERE a.attrelid = x.oid AND a.attstattarget >= 0) AS statistics_targets,
    ARRAY(SELECT a.attname::text FROM unnest(i.indkey[0:i.indnkeyatts - 1]) WITH ORDINALITY u (number, place)
        JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = u.number ORDER BY u.place) AS columns,
    (SELECT pc.relname::text FROM pg_inherits h JOIN pg_class pc ON pc.oid = h.inhparent
        WHERE h.inhrelid = x.oid) AS parent
FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid LEFT JOIN pg_tablespace ts ON ts.oid = x.reltablespace
WHERE i.indrelid = ANY ({oids}) AND (i.indisvalid OR x.relkind = 'I') AND NOT EXISTS (
    SELECT FROM pg_constraint k WHERE k.conindid = x.oid AND k.contype IN ('p', 'u', 'x'))
ORDER BY i.indrelid, x.relname
"""
"""Indexes of constraints are left out."""

_STATISTICS = """
SELECT s.stxrelid::int8 AS relation, pg_get_statisticsobjdef(s.oid) AS definition,
    CASE WHEN s.stxnamespace <> c.relnamespace THEN n.nspname || '.' ELSE '' END || s.stxname AS name,
    coalesce(pg_catalog.to_json(s)->>'stxexprs', '') LIKE '%{{CONST %' AS constants,
    nullif(s.stxstattarget, -1)::int AS target, obj_description(s.oid, 'pg_statistic_ext') AS comment
FROM pg_statistic_ext s JOIN pg_class c ON c.oid = s.stxrelid JOIN pg_namespace n ON n.oid = s.stxnamespace
WHERE s.stxrelid = ANY ({oids}) ORDER BY s.stxrelid, s.stxname, n.nspname
"""

_NOT_CARRIED = """
SELECT t.tgrelid::int8 AS relation, 'trigger ' || quote_ident(t.tgname) AS object FROM pg_trigger t
WHERE t.tgrelid = ANY ({oids}) AND NOT t.tgisinternal AND t.tgparentid = 0
UNION ALL SELECT p.polrelid::int8, 'policy ' || quote_ident(p.polname) FROM pg_policy p WHERE p.polrelid = ANY ({oids})
UNION ALL SELECT r.ev_class::int8, 'rule ' || quote_ident(r.rulename) FROM pg_rewrite r
WHERE r.ev_class = ANY ({oids}) AND r.rulename <> '_RETURN'
ORDER BY 1, 2
"""

_VIEWS = """
SELECT c.oid::int8 AS relation, pg_get_viewdef(c.oid) AS definition,
    ARRAY(
        SELECT DISTINCT d.refobjid::int8 FROM pg_rewrite r JOIN pg_depend d ON d.objid = r.oid
        JOIN pg_class u ON u.oid = d.refobjid
        WHERE r.ev_class = c.oid AND d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass
            AND d.refobjid <> c.oid AND u.relkind IN ('r', 'p', 'v', 'm', 'f')) AS depends_on,
    ARRAY(
        SELECT DISTINCT d.refobjid::int8 FROM pg_rewrite r JOIN pg_depend d ON d.objid = r.oid
        WHERE r.ev_class = c.oid AND d.classid = 'pg_rewrite'::regclass
            AND d.refclassid = 'pg_type'::regclass) AS types,
    ARRAY(
        SELECT DISTINCT d.refobjid::regprocedure::text FROM pg_rewrite r JOIN pg_depend d ON d.objid = r.oid
        WHERE r.ev_class = c.oid AND d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_proc'::regclass
            AND NOT EXISTS (
                SELECT FROM pg_depend e WHERE e.classid = 'pg_proc'::regclass AND e.objid = d.refobjid
                    AND e.deptype = 'e' AND e.refclassid = 'pg_extension'::regclass)
        ORDER BY 1) AS functions
FROM pg_class c WHERE c.oid = ANY ({oids})
"""

# From the documentation of TimescaleDB; the servers of the tests do not have the extension.
_DIMENSIONS = """
SELECT d.hypertable_schema::text AS schema, d.hypertable_name::text AS name, d.column_name::text AS column
FROM timescaledb_information.dimensions d
WHERE d.dimension_number = 1 AND d.time_interval IS NOT NULL
"""


def read_relation_parts(
    session: PostgresqlSession,
    selection: Selection,
    relations: list[SourceRelation],
    tables: list[SourceRelation],
    views: list[SourceRelation],
    refusals: Refusals,
) -> None:
    """Read what else belongs to tables, their partitions, and views; it becomes their attributes.

    Args:
        session: Where to read.
        selection: The plan's selection.
        relations: Every relation of the database.
        tables: Those that are exported as tables.
        views: Those that are exported as views.
        refusals: Collects columns that cannot be hidden.
    """
    with_rows = {each.oid: each for table in tables for each in (table, *table.partitions)}
    every = with_rows | {view.oid: view for view in views}
    for oid, columns in read_columns(session, every).items():
        every[oid].columns = columns
    for relation, row in _read(session, _CONSTRAINTS, with_rows, "reading constraints"):
        relation.constraints.append(row)
    for relation, row in _read(session, _INDEXES, every, "reading indexes"):
        relation.indexes.append(row)
    for relation, row in _read(session, _STATISTICS, every, "reading statistics objects", optional="statistics"):
        relation.statistics.append(row)
    doing = "reading triggers, policies and rules"
    for relation, row in _read(session, _NOT_CARRIED, every, doing, optional="triggers, policies and rules"):
        relation.not_carried.append(row["object"])
    names = {relation.oid: relation.name for relation in relations}
    for relation, row in _read(session, _VIEWS, {view.oid: view for view in views}, "reading views"):
        relation.query = row | {"depends_on": sorted(names[oid] for oid in row["depends_on"] if oid in names)}
    remove_hidden(session, selection, tables, refusals)
    types: dict[int, set[int]] = {}
    for oid, relation in every.items():
        types[oid] = {column.row["type_oid"] for column in relation.columns if not column.row["built_in"]}
        types[oid] |= set(relation.query.get("types", ()))
        types[oid] |= {relation.row["of_type_oid"]} - {0}
    for oid, used in read_types(session, types).items():
        every[oid].used = used
    read_needs(session, tables)
    timescaledb = "SELECT 1 AS one FROM pg_extension e WHERE e.extname = 'timescaledb'"
    if session.rows(timescaledb, "listing extensions"):
        rows = session.rows(_DIMENSIONS, "reading TimescaleDB's dimensions")
        dimensions = {TableName(row["schema"], row["name"]): row["column"] for row in rows}
        for table in tables:
            table.dimension = dimensions.get(table.name)


def _read(
    session: PostgresqlSession, query: str, relations: Mapping[int, SourceRelation], doing: str, *, optional: str = ""
) -> Iterator[tuple[SourceRelation, dict[str, Any]]]:
    for row in session.rows(query.format(oids=oid_array(relations)), doing, optional=optional) if relations else ():
        yield relations[row["relation"]], row
