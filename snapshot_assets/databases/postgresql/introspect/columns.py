"""Reads the columns of relations, and the base type of each column's domain."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from snapshot_assets.databases.postgresql.session import PostgresqlSession
from snapshot_assets.databases.postgresql.sql import oid_array
from snapshot_assets.databases.postgresql.types import SourceType

_QUERY = """
WITH RECURSIVE base (declared, oid, kind, next, modifier) AS (
    SELECT t.oid, t.oid, t.typtype, t.typbasetype, t.typtypmod FROM pg_type t
    WHERE t.oid IN (SELECT a.atttypid FROM pg_attribute a WHERE a.attrelid = ANY ({oids}))
    UNION ALL
    SELECT b.declared, t.oid, t.typtype, t.typbasetype, CASE t.typtype WHEN 'd' THEN t.typtypmod ELSE b.modifier END
    FROM base b JOIN pg_type t ON t.oid = b.next WHERE b.kind = 'd'
)
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
    bn.nspname::text AS base_schema, bt.typname::text AS base_name, bt.typtype::text AS base_kind,
    CASE t.typtype WHEN 'd' THEN b.modifier ELSE a.atttypmod END AS modifier, t.typtype = 'd' AS domain,
    pn.nspname::text AS output_schema, p.proname::text AS output_name,
    p.proargtypes[0] = bt.oid OR argument.typtype = 'p' AS callable
FROM pg_attribute a
JOIN pg_type t ON t.oid = a.atttypid
JOIN base b ON b.declared = a.atttypid AND b.kind <> 'd'
JOIN pg_type bt ON bt.oid = b.oid
JOIN pg_namespace bn ON bn.oid = bt.typnamespace
JOIN pg_proc p ON p.oid = bt.typoutput
JOIN pg_type argument ON argument.oid = p.proargtypes[0]
JOIN pg_namespace pn ON pn.oid = p.pronamespace
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = ANY ({oids}) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum
"""


@dataclass(frozen=True)
class SourceColumn:
    """A column of the source.

    Attributes:
        name: Its name.
        type: Its type.
        row: Its row of the query, with all other properties.
    """

    name: str
    type: SourceType
    row: dict[str, Any]


def read_columns(session: PostgresqlSession, relations: Iterable[int]) -> dict[int, list[SourceColumn]]:
    """Return the columns of relations in order, by the relation's oid."""
    columns: dict[int, list[SourceColumn]] = {}
    for row in session.rows(_QUERY.format(oids=oid_array(relations)), "reading columns"):
        source = SourceType(
            text=row["type"],
            schema=row["base_schema"],
            name=row["base_name"],
            kind=row["base_kind"],
            modifier=row["modifier"],
            domain=row["domain"],
            output=(row["output_schema"], row["output_name"]) if row["callable"] else None,
        )
        columns.setdefault(row["relation"], []).append(SourceColumn(row["name"], source, row))
    return columns
