"""Finds the types and the code that need what a plan hides, by `pg_depend`: their text may show it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from snapshot_assets.databases.postgresql.introspect.relations import SourceRelation, root_of
from snapshot_assets.databases.postgresql.introspect.types_and_extensions import TYPE_PARTS
from snapshot_assets.databases.postgresql.session import PostgresqlSession, oid_array
from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.databases.selection.hidden import excludes, hidden_of, hides
from snapshot_assets.databases.sql import literal
from snapshot_assets.format.relations import TableName

_COLUMNS = """
    SELECT a.attrelid AS relation, a.attnum AS number, a.atttypid AS type FROM pg_attribute a
    WHERE a.attnum > 0 AND NOT a.attisdropped
        AND (a.attrelid = ANY ({relations}) OR (a.attrelid::int8, a.attname::text) IN ({columns}))"""

# Tables are no part of this: those that need something hidden are told by their own documents.
_GONE = f"""
WITH RECURSIVE hidden AS ({_COLUMNS}), part (type) AS (
    SELECT h.type FROM hidden h
    UNION SELECT x.type FROM part p CROSS JOIN LATERAL ({TYPE_PARTS.format(type="p.type")}) x (type)
), own (oid) AS (
    SELECT t.oid FROM part p JOIN pg_type t ON t.oid = p.type JOIN pg_namespace n ON n.oid = t.typnamespace
    WHERE t.oid >= 16384 AND (n.nspname, t.typname) NOT IN ({{used}})
), gone (class, oid) AS (
    SELECT d.classid, d.objid FROM pg_depend d JOIN hidden h
    ON d.refclassid = 'pg_class'::regclass AND d.refobjid = h.relation AND d.refobjsubid = h.number
    UNION SELECT d.classid, d.objid FROM pg_depend d
    WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = ANY ({{relations}})
    UNION SELECT 'pg_type'::regclass, o.oid FROM own o
    UNION SELECT x.class, x.oid FROM gone g CROSS JOIN LATERAL (
        SELECT d.classid, d.objid FROM pg_depend d
        WHERE d.refclassid = g.class AND d.refobjid = g.oid AND d.deptype <> 'e' AND (g.class, d.classid) NOT IN (
            ('pg_class'::regclass, 'pg_type'::regclass), ('pg_extension'::regclass, 'pg_class'::regclass))
        UNION ALL SELECT 'pg_class'::regclass, w.ev_class FROM pg_rewrite w
        WHERE g.class = 'pg_rewrite'::regclass AND w.oid = g.oid AND w.rulename = '_RETURN'
        UNION ALL SELECT 'pg_type'::regclass, c.reltype FROM pg_class c
        WHERE g.class = 'pg_class'::regclass AND c.oid = g.oid) x (class, oid)
    WHERE x.class <> 'pg_class'::regclass
        OR EXISTS (SELECT FROM pg_class c WHERE c.oid = x.oid AND c.relkind IN ('v', 'm', 'c'))
)
SELECT g.class::int8 AS class, g.oid::int8 AS oid, n.nspname::text AS schema, t.typname::text AS type FROM gone g
LEFT JOIN pg_type t ON g.class = 'pg_type'::regclass AND t.oid = g.oid
LEFT JOIN pg_namespace n ON n.oid = t.typnamespace
"""

_OF_MASKED = f"""
WITH hidden AS ({_COLUMNS})
SELECT d.classid::int8 AS class, d.objid::int8 AS oid FROM pg_depend d JOIN hidden h
ON d.refclassid = 'pg_class'::regclass AND d.refobjid = h.relation AND d.refobjsubid = h.number
WHERE d.classid IN ('pg_trigger'::regclass, 'pg_policy'::regclass, 'pg_rewrite'::regclass)
"""


@dataclass(frozen=True)
class HiddenObjects:
    """What needs hidden columns or excluded tables, and is no part of a table.

    Attributes:
        objects: The system table and the oid of each.
        types: The names of the types among them.
    """

    objects: frozenset[tuple[int, int]] = frozenset()
    types: frozenset[TableName] = frozenset()


def read_hidden_objects(
    session: PostgresqlSession, selection: Selection, relations: Iterable[SourceRelation], used: Collection[TableName]
) -> HiddenObjects:
    """Return what needs hidden columns or excluded tables.

    Of what needs a masked column, only triggers, policies and rules, whose conditions may quote its values.

    Args:
        session: Where to read.
        selection: The plan's selection.
        relations: Every relation of the database.
        used: The types that exported relations use, which are carried.
    """
    if not hides(selection):
        return HiddenObjects()
    excluded: list[int] = []
    columns: dict[str, list[str]] = {"excluded": [], "masked": []}
    for relation in relations:
        name = root_of(relation).name
        hidden = hidden_of(selection, name)
        if excludes(selection, name):
            excluded.append(relation.oid)
        columns["excluded"] += [f"({relation.oid}, {literal(each)})" for each in hidden.excluded]
        columns["masked"] += [f"({relation.oid}, {literal(each)})" for each in hidden.masks]
    names = [f"({literal(name.schema)}, {literal(name.table)})" for name in used]
    none = "(NULL, NULL)"
    excluding = _GONE.format(
        relations=oid_array(excluded),
        columns=", ".join(columns["excluded"]) or none,
        used=", ".join(names) or "('', '')",
    )
    masking = _OF_MASKED.format(relations=oid_array([]), columns=", ".join(columns["masked"]) or none)
    rows = session.rows(excluding, "reading what needs hidden columns")
    found = [*rows, *session.rows(masking, "reading what needs masked columns")]
    types = {TableName(row["schema"], row["type"]) for row in rows if row["type"] is not None}
    return HiddenObjects(frozenset((row["class"], row["oid"]) for row in found), frozenset(types))
