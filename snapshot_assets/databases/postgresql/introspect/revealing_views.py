"""Finds views that may show what a plan hides, by PostgreSQL's own dependencies and the parsed form of their queries.

A view is taken for safe only if that is certain. `pg_depend` has the columns that a query names; its parsed form tells
whole rows, which are no columns there, and objects of the system, which `pg_depend` does not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from snapshot_assets.databases.postgresql.introspect.relations import SourceRelation, root_of
from snapshot_assets.databases.postgresql.introspect.types_and_extensions import TYPE_PARTS
from snapshot_assets.databases.postgresql.session import PostgresqlSession, oid_array
from snapshot_assets.databases.protocol.refusals import Refusals
from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.databases.selection.hidden import (
    column_name,
    excludes,
    hidden_of,
    hides,
    hides_of,
    revealing_row_type_error,
    revealing_view_error,
)
from snapshot_assets.format.relations import TableName

# What each view reads, directly, through other views, and through the tables that inherit from what it reads.
_READ = """
WITH RECURSIVE read (view, oid) AS (
    SELECT v, v FROM unnest({oids}) v
    UNION
    SELECT r.view, x.oid FROM read r CROSS JOIN LATERAL (
        SELECT d.refobjid FROM pg_rewrite w JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = w.oid
        WHERE w.ev_class = r.oid AND w.rulename = '_RETURN' AND d.refclassid = 'pg_class'::regclass
        UNION ALL SELECT i.inhrelid FROM pg_inherits i WHERE i.inhparent = r.oid) x (oid)
), query (view, rule, tree) AS (
    SELECT r.view, w.oid, w.ev_action::text FROM read r
    JOIN pg_rewrite w ON w.ev_class = r.oid AND w.rulename = '_RETURN'
), used (view, oid, "column") AS (
    SELECT q.view, d.refobjid, a.attname FROM query q
    JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = q.rule AND d.refclassid = 'pg_class'::regclass
    JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid AND a.attnum > 0
    UNION
    SELECT u.view, i.inhrelid, u."column" FROM used u JOIN pg_inherits i ON i.inhparent = u.oid
)"""

_WHOLE = "it uses whole rows"

_USED = f"""{_READ}
SELECT u.view::int8 AS view, u.oid::int8 AS oid, u."column"::text AS "column", NULL AS doubt FROM used u
UNION ALL SELECT r.view::int8, r.oid::int8, NULL, NULL FROM read r WHERE r.oid <> r.view
UNION ALL SELECT q.view::int8, NULL, NULL, '{_WHOLE}' FROM query q WHERE q.tree ~ ':varattno 0[ }}}}]'
UNION ALL SELECT q.view::int8, NULL, NULL, 'it reads ' || s.oid::regclass::text || ', which shows values of tables'
FROM query q CROSS JOIN LATERAL regexp_matches(q.tree, ':relid (\\d+)', 'g') m
JOIN pg_class s ON s.oid = m[1]::oid AND s.oid < 16384
UNION ALL SELECT q.view::int8, NULL, NULL, 'it calls ' || p.oid::regprocedure::text || ', which may read tables'
FROM query q CROSS JOIN LATERAL regexp_matches(q.tree, ':funcid (\\d+)', 'g') m
JOIN pg_proc p ON p.oid = m[1]::oid AND p.oid < 16384 AND (p.provolatile = 'v' OR p.proname LIKE '%\\_to\\_xml%')
UNION ALL SELECT q.view::int8, NULL, NULL, 'it calls ' || p.oid::regprocedure::text || ', which may read tables'
FROM query q JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = q.rule
LEFT JOIN pg_operator o ON d.refclassid = 'pg_operator'::regclass AND o.oid = d.refobjid
JOIN pg_proc p ON p.oid = CASE d.refclassid WHEN 'pg_proc'::regclass THEN d.refobjid ELSE o.oprcode END
WHERE NOT EXISTS (
    SELECT FROM pg_depend x JOIN pg_extension e ON e.oid = x.refobjid
    WHERE x.classid = 'pg_proc'::regclass AND x.objid = p.oid AND x.deptype = 'e' AND e.extname <> 'dblink')
"""

_HELD = f"""
WITH RECURSIVE held (root, type) AS (
    SELECT o, o FROM unnest({{oids}}) o
    UNION SELECT h.root, x.type FROM held h CROSS JOIN LATERAL ({TYPE_PARTS.format(type="h.type")}) x (type)
)
SELECT DISTINCT h.root::int8 AS type, c.oid::int8 AS relation
FROM held h JOIN pg_type t ON t.oid = h.type JOIN pg_class c ON c.oid = t.typrelid AND c.relkind <> 'c'
"""


def refuse_revealing_rows(
    session: PostgresqlSession,
    selection: Selection,
    relations: Iterable[SourceRelation],
    tables: Sequence[SourceRelation],
    refusals: Refusals,
) -> None:
    """Note exported columns that may hold hidden values: those of views, and those of row types.

    Args:
        session: Where to read.
        selection: The plan's selection.
        relations: Every relation of the database.
        tables: Those whose rows are exported.
        refusals: Collects the errors.
    """
    if not hides(selection):
        return
    by_oid = {each.oid: each for each in relations}
    held: dict[int, set[int]] = {column.row["type_oid"]: set() for table in tables for column in table.columns}
    for row in session.rows(_HELD.format(oids=oid_array(held)), "reading row types"):
        held[row["type"]].add(row["relation"])
    rows = {oid for oids in held.values() for oid in oids if oid in by_oid}
    views = {oid for oid in rows | {table.oid for table in tables} if by_oid[oid].kind in "vm"}
    revealing = _revealing(session, selection, by_oid, views) if views else {}
    for table in tables:
        undecided = [each for each in table.columns if each.name not in hidden_of(selection, table.name).masks]
        if table.oid in revealing and undecided:
            refusals.note(revealing_view_error(table.name, [each.name for each in undecided], revealing[table.oid]))
        for column in undecided:
            for oid in sorted(held[column.row["type_oid"]] & rows):
                root = root_of(by_oid[oid])
                why = revealing.get(oid) or hides_of(selection, root.name)
                if why is not None:
                    refusals.note(revealing_row_type_error(table.name, column.name, root.name, why))


def _revealing(
    session: PostgresqlSession, selection: Selection, relations: Mapping[int, SourceRelation], views: Iterable[int]
) -> dict[int, str]:
    """Return the views that may show hidden values, with the reason of each; all by oid."""
    whole: set[int] = set()
    read: dict[int, set[TableName]] = {oid: set() for oid in views}
    found: dict[int, str] = {}
    for row in session.rows(_USED.format(oids=oid_array(read)), "reading what views show"):
        view, column, relation = row["view"], row["column"], relations.get(row["oid"])
        if row["doubt"] == _WHOLE:
            whole.add(view)
        elif row["doubt"] is not None:
            found.setdefault(view, row["doubt"])
        elif relation is not None:
            name = root_of(relation).name
            read[view].add(name)
            if excludes(selection, name):
                found[view] = f"it reads {name}, which the plan excludes"
            elif column is not None and column in hidden_of(selection, name).names:
                found[view] = f"it uses {column_name(name, column)}, which the plan hides"
    for view in whole - set(found):
        reasons = sorted(why for name in read[view] if (why := hides_of(selection, name)))
        if reasons:
            found[view] = f"{_WHOLE}, and {reasons[0]}"
    return found
