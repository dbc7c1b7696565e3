"""Names database objects alike in every PostgreSQL database, so that a source's objects can be looked up in a target.

The search path is empty, so the server prints every name outside `pg_catalog` with its schema.
"""

from __future__ import annotations

from collections.abc import Iterable

from snapshot_assets.databases.definition import AVAILABLE_EXTENSION, Need
from snapshot_assets.databases.sql import literal

_QUOTED = "pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident({name})"
_NAMED = "pg_catalog.{catalog} x JOIN pg_catalog.pg_namespace n ON n.oid = x.{schema}"

OBJECTS = f"""
SELECT 'pg_proc'::pg_catalog.regclass::oid AS class, x.oid, CASE x.prokind WHEN 'p' THEN 'procedure'
    WHEN 'a' THEN 'aggregate' ELSE 'function' END AS kind, x.oid::pg_catalog.regprocedure::text AS name
FROM pg_catalog.pg_proc x
UNION ALL SELECT 'pg_operator'::pg_catalog.regclass, x.oid, 'operator', x.oid::pg_catalog.regoperator::text
FROM pg_catalog.pg_operator x
UNION ALL SELECT 'pg_collation'::pg_catalog.regclass, x.oid, 'collation', x.oid::pg_catalog.regcollation::text
FROM pg_catalog.pg_collation x WHERE x.collencoding IN (-1, (
    SELECT d.encoding FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()))
UNION ALL SELECT 'pg_am'::pg_catalog.regclass, x.oid, 'access method', pg_catalog.quote_ident(x.amname)
FROM pg_catalog.pg_am x
UNION ALL SELECT 'pg_opclass'::pg_catalog.regclass, x.oid, 'operator class',
    {_QUOTED.format(name="x.opcname")} || ' USING ' || pg_catalog.quote_ident(a.amname)
FROM {_NAMED.format(catalog="pg_opclass", schema="opcnamespace")} JOIN pg_catalog.pg_am a ON a.oid = x.opcmethod
UNION ALL SELECT 'pg_type'::pg_catalog.regclass, x.oid, 'type', n.nspname || '.' || x.typname
FROM {_NAMED.format(catalog="pg_type", schema="typnamespace")}
WHERE x.typisdefined AND NOT (x.typcategory = 'A' AND x.typelem <> 0)
UNION ALL SELECT 'pg_ts_config'::pg_catalog.regclass, x.oid, 'text search configuration',
    x.oid::pg_catalog.regconfig::text
FROM pg_catalog.pg_ts_config x
UNION ALL SELECT 'pg_ts_dict'::pg_catalog.regclass, x.oid, 'text search dictionary',
    x.oid::pg_catalog.regdictionary::text
FROM pg_catalog.pg_ts_dict x
UNION ALL SELECT 'pg_ts_parser'::pg_catalog.regclass, x.oid, 'text search parser', {_QUOTED.format(name="x.prsname")}
FROM {_NAMED.format(catalog="pg_ts_parser", schema="prsnamespace")}
UNION ALL SELECT 'pg_ts_template'::pg_catalog.regclass, x.oid, 'text search template',
    {_QUOTED.format(name="x.tmplname")}
FROM {_NAMED.format(catalog="pg_ts_template", schema="tmplnamespace")}
UNION ALL SELECT 'pg_language'::pg_catalog.regclass, x.oid, 'language', pg_catalog.quote_ident(x.lanname)
FROM pg_catalog.pg_language x
UNION ALL SELECT 'pg_extension'::pg_catalog.regclass, x.oid, 'extension', x.extname FROM pg_catalog.pg_extension x
"""
"""Every object of these kinds: the catalog that lists it, its oid, kind and name."""

_THERE = """
WITH wanted (kind, name) AS (VALUES {wanted})
SELECT DISTINCT o.kind, o.name FROM ({objects}) o JOIN wanted w ON w.kind = o.kind AND w.name = o.name
"""
_AVAILABLE = f"""
SELECT NULL::oid AS class, NULL::oid AS oid, '{AVAILABLE_EXTENSION}' AS kind, e.name::text AS name
FROM pg_catalog.pg_available_extensions e
"""


def lookup(needs: Iterable[Need]) -> str:
    """Return the query for kind and name of those needs that a database has."""
    wanted = ", ".join(f"({literal(need.kind)}, {literal(need.name)})" for need in needs)
    return _THERE.format(wanted=wanted, objects=f"{OBJECTS} UNION ALL {_AVAILABLE}")
