"""TimescaleDB: the column by which it cuts a hypertable by time.

Written from TimescaleDB's documentation; the servers of the tests do not have the extension.
"""

from __future__ import annotations

from snapshot_assets.databases.postgresql.session import Session
from snapshot_assets.format.relations import TableName

_DIMENSIONS = """
SELECT d.hypertable_schema::text AS schema, d.hypertable_name::text AS name, d.column_name::text AS column
FROM timescaledb_information.dimensions d
WHERE d.dimension_number = 1 AND d.time_interval IS NOT NULL
"""


def read_dimensions(session: Session) -> dict[TableName, str]:
    """Return the time dimension of every hypertable that is cut by a date or timestamp."""
    installed = session.rows(
        "SELECT 1 AS one FROM pg_extension e WHERE e.extname = 'timescaledb'", "listing extensions"
    )
    if not installed:
        return {}
    rows = session.rows(_DIMENSIONS, "reading TimescaleDB's dimensions")
    return {TableName(row["schema"], row["name"]): row["column"] for row in rows}
