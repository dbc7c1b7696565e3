"""Finds columns of existing tables that have another type than an import would create.

COPY's binary stream carries no types: the eight bytes of a bigint would become some double precision number. The server
resolves the text of types, so spellings do not matter, and a domain counts as its base type. Lengths do not matter
either, because the server refuses a value that is too long. But a smaller scale or precision would silently round.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

from snapshot_assets.databases.postgresql.sql import literal
from snapshot_assets.databases.sql import identifier
from snapshot_assets.databases.target import OtherType
from snapshot_assets.format.relations import Table, TableName

_LIMITS = re.compile(r"\((\d+)(?:,\s*(-?\d+))?\)")
_MOST_PRECISE = 6
"""Decimal digits of a second in a type without a precision."""

_QUERY = """
WITH RECURSIVE base (of, id) AS (
    SELECT t.oid, t.oid FROM pg_catalog.pg_type t WHERE t.typtype <> 'd'
    UNION ALL SELECT d.oid, base.id FROM pg_catalog.pg_type d JOIN base ON base.of = d.typbasetype WHERE d.typtype = 'd'
), wanted (schema, name, "column", type, made_of) AS (VALUES {rows}
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
    generated
FROM compared WHERE found_id IS DISTINCT FROM wanted_id OR generated OR limited ORDER BY schema, name, "column"
"""


def other_types(tables: Sequence[Table], run: Callable[[str, str], list[dict[str, Any]]]) -> list[OtherType]:
    """Return the columns to which values of the expected type cannot be written.

    Args:
        tables: Tables as the import would create them. Those that the target does not have are left out.
        run: Returns the rows of a query, given with its purpose for messages.
    """
    rows = []
    for table in tables:
        domains = _domains(table)
        for column in table.columns:
            if column.generated is None:
                values = (table.schema_name, table.name, column.name, column.type, _base_type(column.type, domains))
                rows.append(f"({', '.join(map(literal, values))})")
    others = []
    for row in run(_QUERY.format(rows=", ".join(rows)), "comparing types") if rows else ():
        if row["generated"] or not row["same"] or _rounds(row["found"], row["made_of"]):
            found = f"{row['found']}, generated" if row["generated"] else row["found"]
            others.append(OtherType(TableName(row["schema"], row["name"]), row["column"], found, row["expected"]))
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


def _domains(table: Table) -> dict[str, str]:
    """Return the base types of a table's domains, by every spelling of their names."""
    bases = {}
    for kind in table.types:
        if kind.kind == "domain":
            for schema, name in product(*((each, identifier(each)) for each in (kind.schema_name, kind.name))):
                bases[f"{schema}.{name}"] = str(kind.definition.get("base"))
    return bases


def _base_type(type_text: str, domains: Mapping[str, str]) -> str:
    """Return the base type of a domain, which the target may not have yet; other types do not change."""
    for _ in domains:
        type_text = domains.get(type_text, type_text)
    return type_text
