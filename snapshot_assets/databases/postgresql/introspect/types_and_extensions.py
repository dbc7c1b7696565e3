"""Reads what must exist before tables and views: user-defined types, and extensions.

Types are enums, domains, composites and ranges that columns use, also through arrays and each other.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from snapshot_assets.databases.postgresql.session import PostgresqlSession, oid_array
from snapshot_assets.format.relations import TableName, UserType

TYPE_PARTS = """
    SELECT e.typelem FROM pg_type e WHERE e.oid = {type} AND e.typelem <> 0
    UNION ALL SELECT e.typbasetype FROM pg_type e WHERE e.oid = {type} AND e.typbasetype <> 0
    UNION ALL SELECT r.rngsubtype FROM pg_range r WHERE r.rngtypid = {type}
    UNION ALL SELECT r.rngtypid FROM pg_range r WHERE r.rngmultitypid = {type}
    UNION ALL SELECT a.atttypid FROM pg_type e JOIN pg_attribute a ON a.attrelid = e.typrelid
    WHERE e.oid = {type} AND e.typtype = 'c' AND a.attnum > 0 AND NOT a.attisdropped"""
"""The types that a type consists of."""

_COLLATION = """(SELECT quote_ident(ln.nspname) || '.' || quote_ident(l.collname) FROM pg_collation l
    JOIN pg_namespace ln ON ln.oid = l.collnamespace WHERE l.oid = {collation} AND l.oid <> {plain})"""

_QUERY = f"""
WITH RECURSIVE used (type) AS (
    SELECT unnest({{oids}})
    UNION
    SELECT x.type FROM used u CROSS JOIN LATERAL ({TYPE_PARTS.format(type="u.type")}) x (type)
)
SELECT t.oid::int8 AS oid, n.nspname::text AS schema, t.typname::text AS name, t.typtype::text AS kind,
    obj_description(t.oid, 'pg_type') AS comment, c.relkind::text AS relation_kind,
    ARRAY(SELECT x.type::int8 FROM ({TYPE_PARTS.format(type="t.oid")}) x (type)) AS children,
    e.extname::text AS extension, en.nspname::text AS extension_schema,
    CASE t.typtype WHEN 'e' THEN
        ARRAY(SELECT l.enumlabel::text FROM pg_enum l WHERE l.enumtypid = t.oid ORDER BY l.enumsortorder)
    END AS labels,
    json_strip_nulls(CASE t.typtype WHEN 'd' THEN json_build_object(
        'base', format_type(t.typbasetype, t.typtypmod), 'not_null', t.typnotnull,
        'default', coalesce(pg_get_expr(t.typdefaultbin, 0), t.typdefault),
        'collation', {_COLLATION.format(collation="t.typcollation", plain="b.typcollation")},
        'constraints', (
            SELECT json_agg(json_build_object(
                'name', k.conname, 'definition', pg_get_constraintdef(k.oid),
                'comment', obj_description(k.oid, 'pg_constraint')) ORDER BY k.conname)
            FROM pg_constraint k WHERE k.contypid = t.oid AND k.contype = 'c'),
        'functions', (
            SELECT json_agg(DISTINCT f.refobjid::regprocedure::text) FROM pg_depend f
            WHERE f.refclassid = 'pg_proc'::regclass AND NOT EXISTS (
                SELECT FROM pg_depend fe
                WHERE fe.classid = 'pg_proc'::regclass AND fe.objid = f.refobjid AND fe.deptype = 'e')
            AND (f.classid = 'pg_type'::regclass AND f.objid = t.oid OR f.classid = 'pg_constraint'::regclass
                AND f.objid IN (SELECT k.oid FROM pg_constraint k WHERE k.contypid = t.oid))),
        'not_null_name', (
            SELECT k.conname FROM pg_constraint k
            WHERE k.contypid = t.oid AND k.contype = 'n' AND k.conname <> t.typname || '_not_null'),
        'not_null_comment', (
            SELECT obj_description(k.oid, 'pg_constraint') FROM pg_constraint k
            WHERE k.contypid = t.oid AND k.contype = 'n'))
    WHEN 'c' THEN json_build_object('attributes', (
        SELECT json_agg(json_build_object(
            'name', a.attname, 'type', format_type(a.atttypid, a.atttypmod),
            'collation', {_COLLATION.format(collation="a.attcollation", plain="at.typcollation")},
            'comment', col_description(a.attrelid, a.attnum)) ORDER BY a.attnum)
        FROM pg_attribute a JOIN pg_type at ON at.oid = a.atttypid
        WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped))
    WHEN 'r' THEN (
        SELECT json_build_object(
            'subtype', format_type(r.rngsubtype, NULL),
            'subtype_opclass',
                CASE WHEN NOT o.opcdefault THEN quote_ident(opn.nspname) || '.' || quote_ident(o.opcname) END,
            'collation', {_COLLATION.format(collation="r.rngcollation", plain="st.typcollation")},
            'canonical', nullif(r.rngcanonical::oid, 0)::regproc::text,
            'subtype_diff', nullif(r.rngsubdiff::oid, 0)::regproc::text,
            'multirange', r.rngmultitypid::regtype::text)
        FROM pg_range r JOIN pg_opclass o ON o.oid = r.rngsubopc JOIN pg_namespace opn ON opn.oid = o.opcnamespace
            JOIN pg_type st ON st.oid = r.rngsubtype
        WHERE r.rngtypid = t.oid)
    END) AS definition
FROM pg_type t JOIN used ON used.type = t.oid
JOIN pg_namespace n ON n.oid = t.typnamespace
LEFT JOIN pg_class c ON c.oid = t.typrelid
LEFT JOIN pg_type b ON b.oid = t.typbasetype
LEFT JOIN pg_depend d ON d.classid = 'pg_type'::regclass AND d.objid = t.oid AND d.deptype = 'e'
    AND d.refclassid = 'pg_extension'::regclass
LEFT JOIN pg_extension e ON e.oid = d.refobjid
LEFT JOIN pg_namespace en ON en.oid = e.extnamespace
ORDER BY t.oid
"""

_USED_EXTENSIONS = """
WITH parts (relation, class, oid) AS (
    SELECT c.oid, 'pg_class'::regclass, c.oid FROM pg_class c WHERE c.oid = ANY ({oids})
    UNION ALL
    SELECT i.indrelid, 'pg_class'::regclass, i.indexrelid FROM pg_index i WHERE i.indrelid = ANY ({oids})
    UNION ALL
    SELECT d.adrelid, 'pg_attrdef'::regclass, d.oid FROM pg_attrdef d WHERE d.adrelid = ANY ({oids})
    UNION ALL
    SELECT k.conrelid, 'pg_constraint'::regclass, k.oid FROM pg_constraint k WHERE k.conrelid = ANY ({oids})
    UNION ALL
    SELECT s.stxrelid, 'pg_statistic_ext'::regclass, s.oid FROM pg_statistic_ext s WHERE s.stxrelid = ANY ({oids})
    UNION ALL
    SELECT r.ev_class, 'pg_rewrite'::regclass, r.oid FROM pg_rewrite r
    WHERE r.ev_class = ANY ({oids}) AND r.rulename = '_RETURN'
)
SELECT DISTINCT p.relation::int8 AS relation, e.extname::text AS name, n.nspname::text AS schema
FROM parts p
JOIN pg_depend d ON d.classid = p.class AND d.objid = p.oid AND d.refclassid <> 'pg_namespace'::regclass
JOIN pg_depend x ON x.classid = d.refclassid AND x.objid = d.refobjid AND x.deptype = 'e'
JOIN pg_extension e ON x.refclassid = 'pg_extension'::regclass AND e.oid = x.refobjid
JOIN pg_namespace n ON n.oid = e.extnamespace
"""

_KINDS: Mapping[str, Literal["enum", "domain", "composite", "range"]]
_KINDS = {"e": "enum", "d": "domain", "c": "composite", "r": "range"}


@dataclass(frozen=True)
class UsedTypes:
    """Types and extensions that one relation uses.

    Attributes:
        types: User-defined types, in the order of creation.
        extensions: Extensions, sorted by name, each with its schema.
        relations: Tables whose row types are used.
    """

    types: tuple[UserType, ...] = ()
    extensions: Mapping[str, str] = field(default_factory=dict)
    relations: tuple[TableName, ...] = ()


def read_types(session: PostgresqlSession, roots: Mapping[int, Iterable[int]]) -> dict[int, UsedTypes]:
    """Return the types that relations use, directly or through other types, and the extensions that they need.

    Args:
        session: Where to read.
        roots: Oids of the types that each relation uses directly, by the relation's oid.
    """
    rows = _rows(session, {oid for used in roots.values() for oid in used})
    extensions: dict[int, dict[str, str]] = {relation: {} for relation in roots}
    for row in session.rows(_USED_EXTENSIONS.format(oids=oid_array(roots)), "reading what extensions are used"):
        extensions[row["relation"]][row["name"]] = row["schema"]
    return {relation: _used(rows, used, extensions[relation]) for relation, used in roots.items()}


def read_each_type(
    session: PostgresqlSession, oids: Collection[int]
) -> Iterator[tuple[UserType, set[TableName], dict[str, str]]]:
    """Yield types, each after those it needs, with the types and relations, and the extensions that it needs."""
    rows = _rows(session, oids)
    for row in _needed_first(rows, oids):
        if row["oid"] in oids:
            yield _user_type(row), *_needs(rows, row["children"])


def _rows(session: PostgresqlSession, oids: Collection[int]) -> dict[int, dict[str, Any]]:
    """Return types and all that they consist of, by oid."""
    query = _QUERY.format(oids=oid_array(sorted(oids)))
    return {row["oid"]: row for row in session.rows(query, "reading types")} if oids else {}


def _needs(rows: Mapping[int, dict[str, Any]], oids: Iterable[int]) -> tuple[set[TableName], dict[str, str]]:
    """Return the types and relations that must exist before a type with these children, and the extensions."""
    names: set[TableName] = set()
    extensions: dict[str, str] = {}
    for row in (rows[oid] for oid in oids):
        if row["extension"] is not None:
            extensions[row["extension"]] = row["extension_schema"]
        elif row["children"] and row["kind"] not in _KINDS:  # an array or a multirange
            further, more = _needs(rows, row["children"])
            names, extensions = names | further, extensions | more
        elif row["schema"] not in ("pg_catalog", "information_schema"):
            names.add(TableName(row["schema"], row["name"]))
    return names, extensions


def _used(rows: Mapping[int, dict[str, Any]], roots: Iterable[int], extensions: dict[str, str]) -> UsedTypes:
    types: list[UserType] = []
    relations: set[TableName] = set()
    for row in _needed_first(rows, roots):
        if row["extension"] is not None:
            extensions[row["extension"]] = row["extension_schema"]
        elif row["kind"] == "c" and row["relation_kind"] != "c":
            relations.add(TableName(row["schema"], row["name"]))
        elif row["kind"] in _KINDS and row["schema"] not in ("pg_catalog", "information_schema"):
            types.append(_user_type(row))
    return UsedTypes(tuple(types), dict(sorted(extensions.items())), tuple(sorted(relations)))


def _needed_first(rows: Mapping[int, dict[str, Any]], roots: Iterable[int]) -> Iterator[dict[str, Any]]:
    """Yield the rows of all types that the roots use, each type after its parts."""
    visited: set[int] = set()

    def visit(oids: Iterable[int]) -> Iterator[dict[str, Any]]:
        for oid in sorted(oids):
            if oid not in visited:
                visited.add(oid)
                # Also below types that an extension or a table owns: those of the user may follow.
                yield from visit(rows[oid]["children"])
                yield rows[oid]

    return visit(roots)


def _user_type(row: dict[str, Any]) -> UserType:
    definition = json.loads(row["definition"]) if row["definition"] is not None else {}
    return UserType(
        schema_name=row["schema"],
        name=row["name"],
        kind=_KINDS[row["kind"]],
        labels=tuple(row["labels"] or ()),
        definition={key: value for key, value in definition.items() if value is not False},
        comment=row["comment"],
    )
