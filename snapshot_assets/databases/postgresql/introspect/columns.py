"""Reads the columns of relations, the base type of each column's domain, and the sequences that columns use.

A column uses the sequences that it owns or draws its default from. The last value of each is read too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from snapshot_assets.databases.postgresql.session import PostgresqlConnection, PostgresqlSession, oid_array
from snapshot_assets.databases.postgresql.types import SourceType
from snapshot_assets.databases.sql import qualified
from snapshot_assets.errors import DatabaseDeniedError
from snapshot_assets.format.relations import Sequence, TableName

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
    CASE t.typtype WHEN 'd' THEN b.modifier ELSE a.atttypmod END AS modifier, {_BASE_COLUMNS}
FROM pg_attribute a
JOIN pg_type t ON t.oid = a.atttypid {_BASE_JOINS}
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = ANY ({{oids}}) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum
"""

_SEQUENCES = """
WITH used AS (
    SELECT d.objid AS sequence, d.refobjid AS relation, d.refobjsubid AS number, true AS owned,
        d.deptype = 'i' AS internal
    FROM pg_depend d
    WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjsubid > 0
        AND d.deptype IN ('a', 'i') AND d.refobjid = ANY ({oids})
    UNION ALL
    SELECT d.refobjid, f.adrelid, f.adnum, false, false FROM pg_attrdef f JOIN pg_depend d ON d.objid = f.oid
    WHERE d.classid = 'pg_attrdef'::regclass AND d.refclassid = 'pg_class'::regclass AND f.adrelid = ANY ({oids})
)
SELECT u.relation::int8 AS relation, n.nspname::text AS schema, c.relname::text AS name,
    format_type(s.seqtypid, NULL) AS type, a.attname::text AS column, bool_or(u.owned) AS owned,
    bool_or(u.internal) AS internal, s.seqstart AS start, s.seqincrement AS increment, s.seqmin AS minimum,
    s.seqmax AS maximum, s.seqcache AS cache, s.seqcycle AS cycle, obj_description(c.oid, 'pg_class') AS comment,
    has_schema_privilege(n.oid, 'USAGE') AND has_sequence_privilege(c.oid, 'SELECT') AS readable
FROM used u
JOIN pg_sequence s ON s.seqrelid = u.sequence
JOIN pg_class c ON c.oid = u.sequence
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = u.relation AND a.attnum = u.number
GROUP BY u.relation, n.oid, n.nspname, c.oid, c.relname, a.attnum, a.attname, s.seqrelid, s.seqtypid, s.seqstart,
    s.seqincrement, s.seqmin, s.seqmax, s.seqcache, s.seqcycle
ORDER BY u.relation, a.attnum, n.nspname, c.relname
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


@dataclass(frozen=True)
class SourceSequence:
    """A sequence of the source, as one column uses it; `internal` if PostgreSQL created it for an identity column."""

    document: Sequence
    internal: bool
    comment: str | None


def read_sequences(session: PostgresqlSession, relations: Iterable[int]) -> dict[int, list[SourceSequence]]:
    """Return sequences by relation.

    Raises:
        DatabaseDeniedError: This user may not read a sequence. Without its last value, a restored sequence would
            return numbers that are already used.
    """
    rows = session.rows(_SEQUENCES.format(oids=oid_array(relations)), "reading sequences")
    names = sorted({TableName(row["schema"], row["name"]) for row in rows})
    if denied := sorted({f"{row['schema']}.{row['name']}" for row in rows if not row["readable"]}):
        raise DatabaseDeniedError(
            f"This user may not read {len(denied)} sequence(s) that selected tables draw numbers from:"
            f" {', '.join(denied)}. Grant SELECT on them, or leave their tables out.",
            sequences=tuple(denied),
        )
    last_values = _last_values(session, names)
    sequences: dict[int, list[SourceSequence]] = {}
    for row in rows:
        relation, comment, internal = row.pop("relation"), row.pop("comment"), row.pop("internal")
        del row["readable"]
        last_value = _last_value(row, *last_values[TableName(row["schema"], row["name"])])
        document = Sequence(**row, last_value=last_value)
        sequences.setdefault(relation, []).append(SourceSequence(document, internal, comment))
    return sequences


def recorded_identity_sequences(sequences: Iterable[SourceSequence]) -> dict[str, list[str]]:
    """Return schema and name of each identity column's sequence; only for columns that own several sequences."""
    owned = [each for each in sequences if each.document.owned]
    columns = Counter(each.document.column for each in owned)
    return {
        str(each.document.column): [each.document.schema_name, each.document.name]
        for each in owned
        if each.internal and columns[each.document.column] > 1
    }


def _last_values(session: PostgresqlSession, names: list[TableName]) -> dict[TableName, tuple[int, bool]]:
    if not names:
        return {}
    parts = (
        f"SELECT {number} AS number, last_value, is_called FROM {qualified(name)}" for number, name in enumerate(names)
    )
    rows = session.rows(" UNION ALL ".join(parts), "reading where sequences stand")
    return {names[row["number"]]: (row["last_value"], row["is_called"]) for row in rows}


def _last_value(row: dict[str, Any], value: int, called: bool) -> int | None:
    """Return the last value that the sequence returned; after a RESTART, the value before the next one."""
    if called:
        return value
    before = value - int(row["increment"])
    restarted = value != row["start"] and row["minimum"] <= before <= row["maximum"]
    return before if restarted else None
