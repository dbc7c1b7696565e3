"""Columns of tables that are there already whose type is another than an import would make.

COPY's binary stream says nothing of types: eight bytes of a bigint go into a double precision as some number. The
server is asked what a type's text means, so that spellings do not matter, and a domain is what it is made of. Neither
do lengths, since too long a value is an error; but a smaller scale or precision would round values without a word.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from snapshot_assets.databases.postgresql.sql import identifier, literal
from snapshot_assets.databases.target import OtherType
from snapshot_assets.format.relations import Table, TableName

_LIMITS = re.compile(r"\((\d+)(?:,\s*(-?\d+))?\)")
_MOST_PRECISE = 6
"""Digits of a second that PostgreSQL keeps unless told otherwise."""

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


def other_types_query(tables: Sequence[Table]) -> str:
    """Return the query of the columns of some tables that may have another type; "" where no column has one.

    Args:
        tables: As the import would make them. Those that are not there yield no row.

    Returns:
        A query whose rows `other_type` judges.
    """
    rows = []
    for table in tables:
        domains = _domains(table)
        for column in table.columns:
            if column.generated is None:
                facts = (table.schema_name, table.name, column.name, column.type, _made_of(column.type, domains))
                rows.append(f"({', '.join(map(literal, facts))})")
    return _QUERY.format(rows=", ".join(rows)) if rows else ""


def other_type(row: Mapping[str, Any]) -> OtherType | None:
    """Return a column whose type is another one, or that values cannot be written to; None if they can."""
    name, column = TableName(row["schema"], row["name"]), row["column"]
    if row["generated"]:
        return OtherType(name, column, f"{row['found']}, generated", row["expected"])
    if row["same"] and not _rounds(row["found"], row["made_of"]):
        return None
    return OtherType(name, column, row["found"], row["expected"])


def _rounds(found: str, expected: str) -> bool:
    """Tell whether a type rounds values that the expected one holds; too long a text is an error, and so is none."""
    there, wanted = _LIMITS.search(found), _LIMITS.search(expected)
    if there is None:
        return False
    if found.startswith("numeric"):
        return wanted is None or int(there[2] or 0) < int(wanted[2] or 0)
    if found.startswith(("time", "interval")):
        return int(there[1]) < (int(wanted[1]) if wanted else _MOST_PRECISE)
    return False


def _domains(table: Table) -> dict[str, str]:
    """Return what the domains of a table's document are made of, by each way in which a type's text may name them."""
    found = {}
    for kind in table.types:
        if kind.kind == "domain":
            for schema, name in product(*((each, identifier(each)) for each in (kind.schema_name, kind.name))):
                found[f"{schema}.{name}"] = str(kind.definition.get("base"))
    return found


def _made_of(type_text: str, domains: Mapping[str, str]) -> str:
    """Return what a type is made of, for a domain that may not be there yet."""
    for _ in domains:
        type_text = domains.get(type_text, type_text)
    return type_text
