"""Reads the columns of relations, and the base type of each column's domain."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from snapshot_assets.databases.postgresql.session import PostgresqlConnection, oid_array
from snapshot_assets.databases.postgresql.types import SourceType

# The base type of each type, after all domains.
_BASE = """
WITH RECURSIVE base (declared, oid, kind, next, modifier) AS (
    SELECT t.oid, t.oid, t.typtype, t.typbasetype, t.typtypmod FROM pg_type t WHERE t.oid IN ({types})
    UNION ALL
    SELECT b.declared, t.oid, t.typtype, t.typbasetype, CASE t.typtype WHEN 'd' THEN t.typtypmod ELSE b.modifier END
    FROM base b JOIN pg_type t ON t.oid = b.next WHERE b.kind = 'd'
)"""

_BASE_COLUMNS = """
    bn.nspname::text AS base_schema, bt.typname::text AS base_name, bt.typtype::text AS base_kind,
    t.typtype = 'd' AS domain, pn.nspname::text AS output_schema, p.proname::text AS output_name,
    p.proargtypes[0] = bt.oid OR argument.typtype = 'p' AS callable"""

_BASE_JOINS = """
JOIN base b ON b.declared = t.oid AND b.kind <> 'd'
JOIN pg_type bt ON bt.oid = b.oid
JOIN pg_namespace bn ON bn.oid = bt.typnamespace
JOIN pg_proc p ON p.oid = bt.typoutput
JOIN pg_type argument ON argument.oid = p.proargtypes[0]
JOIN pg_namespace pn ON pn.oid = p.pronamespace"""

_TYPES = f"""{_BASE}
SELECT t.oid::int8 AS oid, format_type(t.oid, -1) AS type,
    CASE t.typtype WHEN 'd' THEN b.modifier ELSE -1 END AS modifier, {_BASE_COLUMNS}
FROM pg_type t {_BASE_JOINS}
WHERE t.oid IN ({{types}})
"""

_COLUMNS = f"""{_BASE.format(types="SELECT a.atttypid FROM pg_attribute a WHERE a.attrelid = ANY ({oids})")}
SELECT a.attrelid::int8 AS relation, a.attname::text AS name, format_type(a.atttypid, a.atttypmod) AS type,
    a.atttypid::int8 AS type_oid, a.attnotnull AS not_null,
    CASE WHEN a.atthasdef THEN pg_get_expr(d.adbin, d.adrelid) END AS default,
    CASE a.attgenerated WHEN 's' THEN 'stored' WHEN 'v' THEN 'virtual' END AS generated_kind,
    CASE a.attidentity WHEN 'a' THEN 'always' WHEN 'd' THEN 'by default' END AS identity,
    CASE WHEN a.attcollation <> t.typcollation THEN
        (SELECT quote_ident(n.nspname) || '.' || quote_ident(l.collname)
         FROM pg_collation l JOIN pg_namespace n ON n.oid = l.collnamespace WHERE l.oid = a.attcollation)
    END AS collation,
    col_description(a.attrelid, a.attnum) AS comment,
    CASE WHEN a.attstorage <> t.typstorage THEN
        CASE a.attstorage WHEN 'p' THEN 'plain' WHEN 'e' THEN 'external' WHEN 'm' THEN 'main' ELSE 'extended' END
    END AS storage,
    CASE a.attcompression WHEN 'p' THEN 'pglz' WHEN 'l' THEN 'lz4' END AS compression,
    nullif(a.attstattarget, -1)::int AS statistics_target, a.attoptions::text[] AS options,
    NOT a.attislocal AS inherited,
    t.oid < 16384 AND coalesce((SELECT e.typtype FROM pg_type e WHERE e.oid = t.typelem), t.typtype) <> 'c' AS built_in,
    CASE t.typtype WHEN 'd' THEN b.modifier ELSE a.atttypmod END AS modifier, {_BASE_COLUMNS}
FROM pg_attribute a
JOIN pg_type t ON t.oid = a.atttypid {_BASE_JOINS}
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = ANY ({{oids}}) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum
"""


@dataclass(frozen=True)
class SourceColumn:
    """A column of the source; `row` is its row of the query, with all other properties."""

    name: str
    type: SourceType
    row: dict[str, Any]


def read_columns(session: PostgresqlConnection, relations: Iterable[int]) -> dict[int, list[SourceColumn]]:
    """Return the columns of relations in order, by the relation's oid."""
    columns: dict[int, list[SourceColumn]] = {}
    for row in session.rows(_COLUMNS.format(oids=oid_array(relations)), "reading columns"):
        columns.setdefault(row["relation"], []).append(SourceColumn(row["name"], _type_of(row), row))
    return columns


def read_types(session: PostgresqlConnection, oids: Iterable[int]) -> dict[int, SourceType]:
    """Return types by their oid, without a modifier but that of a domain."""
    types = ", ".join(map(str, sorted(set(oids))))
    return {row["oid"]: _type_of(row) for row in session.rows(_TYPES.format(types=types), "reading types")}


def _type_of(row: dict[str, Any]) -> SourceType:
    return SourceType(
        text=row["type"],
        schema=row["base_schema"],
        name=row["base_name"],
        kind=row["base_kind"],
        modifier=row["modifier"],
        domain=row["domain"],
        output=(row["output_schema"], row["output_name"]) if row["callable"] else None,
    )
