"""Finds the objects that tables depend on and that a snapshot does not contain, from `pg_depend`.

Such are functions, operators, collations, access methods, operator classes, base types and text search objects that a
user created. Objects of extensions are not among them, because a restore creates the extension.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from snapshot_assets.databases.postgresql.introspect.definitions import read_definitions
from snapshot_assets.databases.postgresql.introspect.relations import SourceRelation
from snapshot_assets.databases.postgresql.introspect.types_and_extensions import TYPE_PARTS
from snapshot_assets.databases.postgresql.object_names import OBJECTS
from snapshot_assets.databases.postgresql.session import PostgresqlSession, oid_array
from snapshot_assets.databases.sql import literal
from snapshot_assets.format.relations import TableName

Node = tuple[int, int]
"""An object: the oids of its catalog and of itself."""

# Objects below this number belong to the system. Its collations differ between servers, so they count too.
_NEEDED = """d.deptype IN ('n', 'a', 'i') AND (d.refobjid >= 16384 OR d.refclassid = 'pg_collation'::regclass)
    AND d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass, 'pg_collation'::regclass, 'pg_am'::regclass,
        'pg_opclass'::regclass, 'pg_type'::regclass, 'pg_ts_config'::regclass, 'pg_ts_dict'::regclass,
        'pg_ts_parser'::regclass, 'pg_ts_template'::regclass, 'pg_language'::regclass)"""

_NAME = "n.nspname || '.' || c.relname"

_DIRECT = f"""
WITH RECURSIVE relation AS (
    SELECT c.oid, {_NAME} AS name, c.reloftype FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = ANY ({{oids}})
), used (relation, type) AS (
    SELECT a.attrelid, a.atttypid FROM pg_attribute a
    WHERE a.attrelid = ANY ({{oids}}) AND a.attnum > 0 AND NOT a.attisdropped
    UNION SELECT r.oid, r.reloftype FROM relation r WHERE r.reloftype <> 0
    UNION SELECT u.relation, x.type FROM used u CROSS JOIN LATERAL ({TYPE_PARTS.format(type="u.type")}) x (type)
), own_type AS (
    SELECT u.relation, t.oid, t.typtype, t.typrelid, n.nspname || '.' || t.typname AS name
    FROM used u JOIN pg_type t ON t.oid = u.type JOIN pg_namespace n ON n.oid = t.typnamespace
    LEFT JOIN pg_class c ON c.oid = t.typrelid
    WHERE (t.typtype IN ('e', 'd', 'r') OR c.relkind = 'c') AND NOT EXISTS (
        SELECT FROM pg_depend d
        WHERE d.classid = 'pg_type'::regclass AND d.objid = t.oid AND d.deptype = 'e')
), held AS (
    SELECT u.relation, t.oid, t.typarray FROM used u JOIN pg_type t ON t.oid = u.type WHERE t.typtype <> 'b'
), part (relation, class, oid, subid, used_by, text) AS (
    SELECT r.oid, 'pg_class'::regclass, r.oid, a.attnum::int, 'column ' || r.name || '.' || a.attname, false
    FROM relation r JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL SELECT r.oid, 'pg_class'::regclass, r.oid, 0, NULL, false FROM relation r
    UNION ALL SELECT r.oid, 'pg_attrdef'::regclass, f.oid, NULL,
        CASE WHEN a.attgenerated = '' THEN 'default' ELSE 'expression' END
            || ' of column ' || r.name || '.' || a.attname,
        true
    FROM relation r JOIN pg_attrdef f ON f.adrelid = r.oid
    JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum = f.adnum
    UNION ALL SELECT r.oid, 'pg_constraint'::regclass, k.oid, NULL,
        CASE k.contype WHEN 'f' THEN 'foreign key ' WHEN 'c' THEN 'check ' ELSE 'constraint ' END
            || k.conname || ' of ' || r.name, k.contype IN ('c', 'x')
    FROM relation r JOIN pg_constraint k ON k.conrelid = r.oid WHERE k.conislocal OR k.contype <> 'c'
    UNION ALL SELECT r.oid, 'pg_class'::regclass, i.indexrelid, NULL,
        CASE WHEN k.oid IS NULL THEN 'index ' ELSE 'constraint ' END || x.relname || ' of ' || r.name,
        i.indexprs IS NOT NULL OR i.indpred IS NOT NULL OR coalesce(k.contype = 'x', false)
    FROM relation r JOIN pg_index i ON i.indrelid = r.oid JOIN pg_class x ON x.oid = i.indexrelid
    LEFT JOIN pg_constraint k ON k.conindid = x.oid AND k.contype IN ('p', 'u', 'x')
    UNION ALL SELECT r.oid, 'pg_statistic_ext'::regclass, s.oid, NULL, 'statistics ' || s.stxname || ' of ' || r.name,
        true
    FROM relation r JOIN pg_statistic_ext s ON s.stxrelid = r.oid
    UNION ALL SELECT o.relation, 'pg_type'::regclass, o.oid, NULL, NULL, o.typtype = 'd' FROM own_type o
    UNION ALL SELECT o.relation, 'pg_class'::regclass, o.typrelid, NULL, 'type ' || o.name, false
    FROM own_type o WHERE o.typrelid <> 0
    UNION ALL SELECT o.relation, 'pg_constraint'::regclass, k.oid, NULL,
        'check ' || k.conname || ' of domain ' || o.name, true
    FROM own_type o JOIN pg_constraint k ON k.contypid = o.oid AND k.contype = 'c'
)
SELECT DISTINCT p.relation::int8 AS relation, d.refclassid::int8 AS class, d.refobjid::int8 AS oid,
    coalesce(p.used_by, CASE
        WHEN o.typtype = 'd' AND d.refclassid = 'pg_proc'::regclass THEN 'default of domain ' || o.name
        WHEN o.typtype = 'd' THEN 'domain ' || o.name
        WHEN o.oid IS NOT NULL THEN 'type ' || o.name
        WHEN d.refclassid IN ('pg_am'::regclass, 'pg_type'::regclass) THEN 'table ' || r.name
        ELSE 'partition key of ' || r.name END) AS used_by,
    CASE WHEN p.used_by IS NOT NULL THEN p.text WHEN o.oid IS NOT NULL THEN d.refclassid = 'pg_proc'::regclass
        ELSE d.refclassid NOT IN ('pg_am'::regclass, 'pg_type'::regclass) END AS text,
    pg_describe_object(d.refclassid, d.refobjid, 0) AS described
FROM part p JOIN relation r ON r.oid = p.relation
LEFT JOIN own_type o ON p.class = 'pg_type'::regclass AND o.relation = p.relation AND o.oid = p.oid
JOIN pg_depend d ON d.classid = p.class AND d.objid = p.oid AND (p.subid IS NULL OR p.subid = d.objsubid)
WHERE {_NEEDED}
    -- A range is created without the functions that a user wrote for it.
    AND NOT (d.refclassid = 'pg_proc'::regclass AND coalesce(o.typtype = 'r', false))
    -- Documents contain the types of columns.
    AND NOT (d.refclassid = 'pg_type'::regclass AND EXISTS (
        SELECT FROM held h WHERE h.relation = p.relation AND d.refobjid IN (h.oid, h.typarray)))
ORDER BY 1, 4, 2, 6 -- by name, not by oid: equal databases have equal documents
"""

_FURTHER = f"""
WITH node (class, oid) AS (VALUES {{nodes}})
SELECT *, pg_describe_object(needed_class::oid, needed_oid::oid, 0) FROM (
SELECT v.class::int8 AS class, v.oid::int8 AS oid, d.refclassid::int8 AS needed_class, d.refobjid::int8 AS needed_oid
FROM node v JOIN pg_depend d ON d.classid = v.class AND d.objid = v.oid WHERE {_NEEDED}
UNION SELECT v.class::int8, v.oid::int8, d.refclassid::int8, d.refobjid::int8
FROM node v JOIN pg_depend m ON m.refclassid = v.class AND m.refobjid = v.oid
    AND m.classid IN ('pg_amop'::regclass, 'pg_amproc'::regclass)
JOIN pg_depend d ON d.classid = m.classid AND d.objid = m.objid
WHERE v.class = 'pg_opclass'::regclass AND {_NEEDED} AND d.refclassid <> 'pg_opclass'::regclass
UNION SELECT v.class::int8, v.oid::int8, 'pg_am'::regclass::int8, c.opcmethod::int8
FROM node v JOIN pg_opclass c ON c.oid = v.oid WHERE v.class = 'pg_opclass'::regclass AND c.opcmethod >= 16384
) edge (class, oid, needed_class, needed_oid)
ORDER BY 1, 2, 3, 5
"""

_OWNERS = """
WITH node (class, oid) AS (VALUES {nodes})
SELECT v.class::int8 AS class, v.oid::int8 AS oid, d.refclassid::int8 AS owner_class, d.refobjid::int8 AS owner,
    CASE WHEN v.class = 'pg_type'::regclass THEN (SELECT
        CASE WHEN t.typcategory = 'A' AND t.typelem <> 0 THEN 'array' WHEN t.typtype = 'b' THEN 'base' ELSE 'other' END
        FROM pg_type t WHERE t.oid = v.oid) END AS type
FROM node v LEFT JOIN pg_depend d ON d.classid = v.class AND d.objid = v.oid AND d.deptype = 'e'
    AND d.refclassid = 'pg_extension'::regclass
"""

_ROW_TYPES = """
SELECT n.nspname::text AS schema, c.relname::text AS name,
    format('CREATE SCHEMA IF NOT EXISTS %I', n.nspname) AS schema_sql,
    format('CREATE TYPE %I.%I AS (%s)', n.nspname, c.relname, (
        SELECT string_agg(format('%I %s', a.attname, format_type(a.atttypid, a.atttypmod)), ', ' ORDER BY a.attnum)
        FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)) AS type_sql
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind <> 'v' AND c.relkind <> 'm' AND (n.nspname, c.relname) IN ({names})
"""


class _Graph:
    """Objects and what each needs.

    Attributes:
        needs: The objects that an object needs, for everything reachable.
        extensions: The extension that an object belongs to.
        types: `array`, `base` or `other`, for types.
    """

    def __init__(self, session: PostgresqlSession, roots: Iterable[Node]) -> None:
        self.needs: dict[Node, list[Node]] = {}
        self.extensions: dict[Node, Node] = {}
        self.types: dict[Node, str] = {}
        new = set(roots)
        while new:
            nodes = ", ".join(f"({class_}::oid, {oid}::oid)" for class_, oid in sorted(new))
            for row in session.rows(_OWNERS.format(nodes=nodes), "reading dependencies"):
                node = (row["class"], row["oid"])
                if row["owner"] is not None:
                    self.extensions[node] = (row["owner_class"], row["owner"])
                if row["type"] is not None:
                    self.types[node] = row["type"]
            self.needs |= {node: [] for node in new}
            for row in session.rows(_FURTHER.format(nodes=nodes), "reading dependencies"):
                node = (row["class"], row["oid"])
                # An extension brings what it needs, and the statement of a base type creates its functions.
                if node not in self.extensions and self.types.get(node) != "base":
                    self.needs[node].append((row["needed_class"], row["needed_oid"]))
            new = {needed for node in new for needed in self.needs[node]} - set(self.needs)

    def direct(self, node: Node) -> Iterator[Node]:
        """Yield what a part of a table needs that depends on an object: nothing of extensions, elements of arrays."""
        if self.types.get(node) == "array":
            for element in self.needs[node]:
                yield from self.direct(element)
        elif node not in self.extensions:
            yield node

    def indirect(self, node: Node) -> Iterator[Node]:
        """Yield the objects that must exist before another one: extensions in place of their parts."""
        for needed in self.needs.get(node, ()):
            if needed in self.extensions:
                yield self.extensions[needed]
            elif self.types.get(needed) == "array":
                yield from self.indirect(needed)
            else:
                yield needed


class _Wanted:
    """What one table with its partitions needs, each object after those that it needs itself.

    Attributes:
        used_by: The parts of the table that need an object directly.
        text: Whether SQL text of the table needs an object, directly or through others.
    """

    def __init__(self, graph: _Graph, oids: Iterable[int], rows: Mapping[int, list[dict[str, Any]]]) -> None:
        self.used_by: dict[Node, list[str]] = {}
        self.text: dict[Node, bool] = {}
        self.order: list[Node] = []
        self._graph = graph
        for oid in oids:
            own: dict[Node, list[str]] = {}
            for row in rows.get(oid, ()):
                for node in graph.direct((row["class"], row["oid"])):
                    self._add(node, row["text"])
                    own.setdefault(node, []).append(row["used_by"])
            for node, used_by in own.items():  # partitions repeat what their table has
                self.used_by.setdefault(node, list(dict.fromkeys(used_by)))

    def _add(self, node: Node, text: bool) -> None:
        if node in self.text and (text or not self.text[node]):
            return
        known = node in self.text
        self.text[node] = text
        for needed in self._graph.indirect(node):
            self._add(needed, text)
        if not known:
            self.order.append(node)

    def documents(
        self, names: Mapping[Node, tuple[str, str]], sql: Mapping[tuple[str, int], list[str]]
    ) -> Iterator[dict[str, Any]]:
        """Yield the entries of the table's option `needs`, from the kinds, names and statements of objects."""
        used_by = {node: list(used) for node, used in self.used_by.items()}
        named = [node for node in self.order if node in names]
        for node in named:
            for needed in dict.fromkeys(self._graph.indirect(node)):
                used_by.setdefault(needed, []).append(" ".join(names[node]))
        for node in named:
            kind, name = names[node]
            entry: dict[str, Any] = {"kind": kind, "name": name, "for": used_by.get(node, [])}
            if self.text[node]:
                entry["text"] = True
            yield entry | {"sql": sql.get((kind, node[1]), [])}


def read_needs(session: PostgresqlSession, tables: Sequence[SourceRelation]) -> None:
    """Read what tables with their partitions need; it becomes their attribute `needs`."""
    relations = {each.oid: each for table in tables for each in (table, *table.partitions)}
    rows: dict[int, list[dict[str, Any]]] = {}
    query, doing = _DIRECT.format(oids=oid_array(relations)), "reading what tables depend on"
    for row in session.rows(query, doing, optional="what tables depend on"):
        if row["used_by"] not in relations[row["relation"]].hidden_parts:
            rows.setdefault(row["relation"], []).append(row)
    if not rows:
        return
    graph = _Graph(session, {(row["class"], row["oid"]) for own in rows.values() for row in own})
    wanted = [(table, _Wanted(graph, [table.oid, *(each.oid for each in table.partitions)], rows)) for table in tables]
    nodes = {node for _, each in wanted for node in each.order}
    if not nodes:
        return
    query = (
        f"SELECT o.class::int8 AS class, o.oid::int8 AS oid, o.kind, o.name FROM ({OBJECTS}) o WHERE (o.class, o.oid)"
        f" IN ({', '.join(f'({class_}::oid, {oid}::oid)' for class_, oid in sorted(nodes))})"
    )
    found = session.rows(query, "naming what tables depend on")
    names = {(row["class"], row["oid"]): (row["kind"], row["name"]) for row in found}
    sql = read_definitions(session, [(kind, node[1]) for node, (kind, _) in names.items()])
    for table, each in wanted:
        table.needs = list(each.documents(names, sql))


def with_row_types(session: PostgresqlSession, tables: Sequence[SourceRelation]) -> None:
    """Add the row types of relations that are not among the tables to what the tables need."""
    exported = {each.name for table in tables for each in (table, *table.partitions)}
    system = ("pg_catalog", "information_schema")
    wanted = {name for table in tables for name in table.used.relations if name.schema not in system} - exported
    if not wanted:
        return
    names = ", ".join(f"({literal(each.schema)}, {literal(each.table)})" for each in sorted(wanted))
    rows = session.rows(_ROW_TYPES.format(names=names), "reading the row types of other relations")
    definitions = {TableName(row["schema"], row["name"]): [row["schema_sql"], row["type_sql"]] for row in rows}
    for table in tables:
        for name in table.used.relations:
            if name in definitions:
                used_by = [f"table {table.name.dotted}"]
                entry = {"kind": "type", "name": name.dotted, "for": used_by, "sql": definitions[name]}
                table.needs.append(entry)
