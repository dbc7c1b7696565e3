"""Reads what a target has already: types of a snapshot's names, limits of columns, and foreign keys to its tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from snapshot_assets.databases.definition import Definition
from snapshot_assets.databases.postgresql.session import PostgresqlConnection
from snapshot_assets.databases.protocol.target import OtherType, Reference
from snapshot_assets.databases.sql import identifier, literal
from snapshot_assets.format.options import TypeDefinition
from snapshot_assets.format.relations import Table, TableName, UserType

_EXISTING = """
SELECT n.nspname AS schema, t.typname AS name, CASE t.typtype WHEN 'e' THEN 'enum' WHEN 'd' THEN 'domain'
    WHEN 'r' THEN 'range' WHEN 'c' THEN 'composite' ELSE 'other type' END AS kind, ARRAY(
        SELECT l.enumlabel::text FROM pg_catalog.pg_enum l WHERE l.enumtypid = t.oid) AS labels, ARRAY(
        SELECT pg_catalog.concat('"', pg_catalog.replace(a.attname, '"', '""'), '" ',
            pg_catalog.format_type(a.atttypid, a.atttypmod))
        FROM pg_catalog.pg_attribute a WHERE a.attrelid = t.typrelid AND t.typtype = 'c' AND a.attnum > 0
            AND NOT a.attisdropped ORDER BY a.attnum) AS attributes,
    CASE t.typtype WHEN 'd' THEN pg_catalog.format_type(t.typbasetype, t.typtypmod) WHEN 'r' THEN (
        SELECT pg_catalog.format_type(r.rngsubtype, NULL) FROM pg_catalog.pg_range r WHERE r.rngtypid = t.oid)
    END AS of, t.typnotnull AS not_null
FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
WHERE t.typisdefined AND (n.nspname, t.typname) IN ({names})
"""

_LIMITS = re.compile(r"\((\d+)(?:,\s*(-?\d+))?\)")
_MOST_PRECISE = 6
"""Decimal digits of a second in a type without a precision."""


def conflicts(connection: PostgresqlConnection, definition: Definition) -> list[str]:
    """Return a sentence for each type that exists in another form: values of the snapshot might not fit it."""
    types = {kind.table_name: kind for table in definition.tables for kind in table.types}
    if not types:
        return []
    rows = connection.rows(_EXISTING.format(names=names_of(types)), "looking up types")
    there = {TableName(row["schema"], row["name"]): row for row in rows}
    return [f"Type {name} is in the target {way}" for name, row in there.items() for way in _ways(types[name], row)]


def _ways(kind: UserType, row: Mapping[str, Any]) -> Iterator[str]:
    """Yield each way in which a type differs so that values would change, or might not fit."""
    if row["kind"] != kind.kind:
        yield f"as {row['kind']}, not as {kind.kind}. Drop or rename it, and let the import make it."
        return
    if lacking := [label for label in kind.labels if label not in row["labels"]]:
        yield (
            f"without {', '.join(map(repr, lacking))}. Add them with ALTER TYPE … ADD VALUE, or drop the type and let"
            " the import make it."
        )
        return
    fields = TypeDefinition.of_type(kind)
    then = "Drop or rename it, and let the import make it; or restore into another schema with --map-schema."
    wanted = [f"{identifier(each.name)} {each.type}" for each in fields.attributes]
    if kind.kind == "composite" and row["attributes"] != wanted:
        yield f"as ({', '.join(row['attributes'])}), not ({', '.join(wanted)}). {then}"
    of = {"domain": fields.base, "range": fields.subtype}.get(kind.kind)
    if of is not None and row["of"] != of:
        yield f"as {kind.kind} over {row['of']}, not over {of}. {then}"
    if kind.kind == "domain" and row["not_null"] and not fields.not_null:
        yield f"with NOT NULL, which it is not in the snapshot. {then}"


def names_of(names: Iterable[TableName]) -> str:
    """Return names as the rows of an SQL list."""
    return ", ".join(f"({literal(name.schema)}, {literal(name.table)})" for name in names)


_TYPES = """
WITH RECURSIVE base (of, id) AS (
    SELECT t.oid, t.oid FROM pg_catalog.pg_type t WHERE t.typtype <> 'd'
    UNION ALL SELECT d.oid, base.id FROM pg_catalog.pg_type d JOIN base ON base.of = d.typbasetype WHERE d.typtype = 'd'
), wanted (schema, name, "column", type, made_of, computed) AS (VALUES {rows}
), compared AS (
    SELECT w.*, pg_catalog.format_type(a.atttypid, a.atttypmod) AS found, a.attgenerated <> '' AS generated,
        a.atttypmod >= 0 AS limited,
        CASE f.id WHEN 'varchar'::pg_catalog.regtype THEN 'text'::pg_catalog.regtype ELSE f.id END AS found_id,
        CASE e.id WHEN 'varchar'::pg_catalog.regtype THEN 'text'::pg_catalog.regtype ELSE e.id END AS wanted_id
    FROM wanted w JOIN pg_catalog.pg_namespace n ON n.nspname = w.schema
    JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = w.name
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attname = w."column" AND a.attnum > 0
    JOIN base f ON f.of = a.atttypid
    LEFT JOIN base e ON e.of = coalesce(pg_catalog.to_regtype(w.type), pg_catalog.to_regtype(w.made_of))
)
SELECT schema, name, "column", found, type AS expected, made_of, found_id IS NOT DISTINCT FROM wanted_id AS same,
    generated, computed
FROM compared WHERE NOT computed AND (found_id IS DISTINCT FROM wanted_id OR limited) OR generated <> computed
ORDER BY schema, name, "column"
"""


def other_types(connection: PostgresqlConnection, tables: Iterable[Table]) -> list[OtherType]:
    """Return the columns to which values of the tables' types cannot be written; see `SqlTarget`.

    COPY's binary stream carries no types: the eight bytes of a bigint would become some double precision number. The
    server resolves the text of types, so spellings do not matter, and a domain counts as its base type. A smaller scale
    or precision would silently round. The server refuses a value that is too long for its column.
    """
    rows = []
    for table in tables:
        domains: dict[str, str] = {}  # base types by every spelling of a domain's name
        for kind in (each for each in table.types if each.kind == "domain"):
            for schema, name in product(*((each, identifier(each)) for each in (kind.schema_name, kind.name))):
                domains[f"{schema}.{name}"] = TypeDefinition.of_type(kind).base or ""
        for column in table.columns:
            base = column.type
            for _ in domains:  # the target may not have a domain yet
                base = domains.get(base, base)
            values = (table.schema_name, table.name, column.name, column.type, base)
            computed = "false" if column.generated is None else "true"
            rows.append(f"({', '.join((*map(literal, values), computed))})")
    others = []
    for row in connection.rows(_TYPES.format(rows=", ".join(rows)), "comparing types") if rows else ():
        table_name, plain = TableName(row["schema"], row["name"]), not row["computed"]
        if row["generated"] is plain or (plain and (not row["same"] or _rounds(row["found"], row["made_of"]))):
            found = f"{row['found']}, generated" if row["generated"] else row["found"]
            expected = row["expected"] if plain else f"{row['expected']}, generated"
            others.append(OtherType(table_name, row["column"], found, expected))
        elif plain and (limit := _smaller_limit(row["found"], row["made_of"])) is not None:
            others.append(OtherType(table_name, row["column"], row["found"], row["expected"], limit))
    return others


def _rounds(found: str, expected: str) -> bool:
    """Return whether a type rounds values of the expected type."""
    existing, wanted = _LIMITS.search(found), _LIMITS.search(expected)
    if existing is None:
        return False
    if found.startswith("numeric"):
        return wanted is None or int(existing[2] or 0) < int(wanted[2] or 0)
    if found.startswith(("time", "interval")):
        return int(existing[1]) < (int(wanted[1]) if wanted else _MOST_PRECISE)
    return False


def _smaller_limit(found: str, expected: str) -> int | None:
    """Return how long a value may be for a type, if the expected type has longer ones; else None.

    The digits of numbers after the decimal point all fit.
    """
    existing, wanted = _LIMITS.search(found), _LIMITS.search(expected)
    if existing is None or not found.startswith(("character", "bit", "numeric")):
        return None
    limit, longest = _length(found, existing), _length(expected, wanted)
    return limit if longest is None or longest > (limit or 0) else None


def _length(type_text: str, limits: re.Match[str] | None) -> int | None:
    if limits is None:
        return 1 if type_text in ("character", "bit") else None
    scale = int(limits[2] or 0) if type_text.startswith("numeric") else 0
    return int(limits[1]) - scale


# Left out: foreign keys that partitions inherit, and those of a hypertable's chunks.
_REFERENCES = """
WITH relation AS (
    SELECT c.oid, n.nspname AS schema, c.relname AS name
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
), key AS (
    SELECT k.conname, k.conkey, k.confkey, k.conpfeqop, k.conrelid, k.confrelid,
        coalesce(pg_catalog.pg_partition_root(k.conrelid), k.conrelid) AS table_id,
        coalesce(pg_catalog.pg_partition_root(k.confrelid), k.confrelid) AS parent_id
    FROM pg_catalog.pg_constraint k WHERE k.contype = 'f' AND k.conparentid = 0
)
SELECT key.conname AS name, child.schema AS child_schema, child.name AS child_name,
    own.schema AS table_schema, own.name AS table_name,
    referred.schema AS referred_schema, referred.name AS referred_name,
    parent.schema AS parent_schema, parent.name AS parent_name,
    (SELECT pg_catalog.string_agg(
            pg_catalog.format('p.%I OPERATOR(%I.%s) c.%I', there.attname, s.nspname, o.oprname, here.attname), ' AND ')
        FROM ROWS FROM (
            pg_catalog.unnest(key.conkey), pg_catalog.unnest(key.confkey), pg_catalog.unnest(key.conpfeqop)
        ) AS pair (here, there, operator)
        JOIN pg_catalog.pg_attribute here ON here.attrelid = key.conrelid AND here.attnum = pair.here
        JOIN pg_catalog.pg_attribute there ON there.attrelid = key.confrelid AND there.attnum = pair.there
        JOIN pg_catalog.pg_operator o ON o.oid = pair.operator
        JOIN pg_catalog.pg_namespace s ON s.oid = o.oprnamespace) AS match
FROM key JOIN relation child ON child.oid = key.conrelid JOIN relation own ON own.oid = key.table_id
JOIN relation referred ON referred.oid = key.confrelid JOIN relation parent ON parent.oid = key.parent_id
WHERE (parent.schema, parent.name) IN ({names}) AND child.schema <> '_timescaledb_internal'
ORDER BY own.schema, own.name, key.conname
"""


def references_to(target: PostgresqlConnection, tables: Sequence[TableName]) -> list[Reference]:
    """Return all foreign keys in the target that refer to the tables."""
    references = []
    for row in target.rows(_REFERENCES.format(names=names_of(tables)), "looking up foreign keys"):
        child, table, referred, parent = (
            TableName(row[f"{end}_schema"], row[f"{end}_name"]) for end in ("child", "table", "referred", "parent")
        )
        references.append(Reference(row["name"], child, table, referred, parent, row["match"]))
    return references
