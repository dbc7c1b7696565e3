"""Names the tables of extensions that hold rows of the user, such as the jobs of pg_cron.

An extension lists its tables whose rows pg_dump stores, each with the condition of those that are not its own. A
snapshot has no table of an extension, so such rows are named.
"""

from __future__ import annotations

from typing import Any

from snapshot_assets.databases.postgresql.session import PostgresqlSession

_TABLES = """
SELECT c.oid::regclass::text AS name, x.extname::text AS extension, f.condition, c.relkind = 'S' AS sequence,
    has_schema_privilege(c.relnamespace, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
        AND NOT row_security_active(c.oid) AS readable
FROM pg_extension x
CROSS JOIN LATERAL unnest(x.extconfig, x.extcondition) f (relation, condition)
JOIN pg_class c ON c.oid = f.relation AND c.relkind IN ('r', 'p', 'S')
ORDER BY name
"""


def read_extension_rows(session: PostgresqlSession) -> list[str]:
    """Return the names of tables and sequences of extensions that the user has changed, or may not read."""
    tables = session.rows(_TABLES, "listing tables of extensions")
    readable = [each for each in tables if each["readable"]]
    used = {each["name"] for each in tables if not each["readable"]}
    if readable:
        query = " UNION ALL ".join(map(_query, readable, range(len(readable))))
        found = session.rows(query, "looking for rows in tables of extensions")
        used |= {readable[row["number"]]["name"] for row in found if row["used"]}
    return [_named(each) for each in tables if each["name"] in used]


def _query(table: dict[str, Any], number: int) -> str:
    where = "WHERE is_called" if table["sequence"] else table["condition"] or ""
    return f"SELECT {number} AS number, EXISTS (SELECT FROM {table['name']} {where}) AS used"


def _named(table: dict[str, Any]) -> str:
    what = "place of extension sequence" if table["sequence"] else "rows of extension table"
    return f"{what} {table['name']} (extension {table['extension']})"
