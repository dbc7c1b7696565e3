"""The search_path under which the server plans a query of a table whose expressions call functions that rely on one.

The server inlines and simplifies the functions of indexes, statistics and checks while it plans, before a row is read.
Their names are resolved for that alone: the query itself clears the path again before its first row, so that values
are printed as everywhere. pg_dump copies whole tables without a plan, which has no windows and no carriers.
"""

from __future__ import annotations

from snapshot_assets.databases.postgresql.session import PostgresqlConnection
from snapshot_assets.databases.sql import literal
from snapshot_assets.errors import SnapshotError

NO_PATH = "SET LOCAL search_path TO ''"
CLEARED = "(SELECT pg_catalog.set_config('search_path', '', true)) OPERATOR(pg_catalog.=) ''"
"""A condition that holds, and that the server evaluates once, after planning and before it reads."""

_UNRESOLVED = ("42883", "42P01", "42704", "42703", "3F000")
"""Functions, relations, other objects, columns and schemas that do not exist."""

# pg_catalog comes first, so nothing hides its operators. Then come the path that this user has elsewhere, the table's
# schema, and all others, because the path that an application uses is not known.
_PATH = """
SELECT pg_catalog.concat_ws(', ', 'pg_catalog', nullif(nullif(s.reset_val, ''), '""'), (
    SELECT string_agg(quote_ident(n.nspname), ', ' ORDER BY n.nspname <> {schema}, n.nspname) FROM pg_namespace n
    WHERE n.nspname !~ '^pg_' AND n.nspname <> 'information_schema')) AS path
FROM pg_settings s WHERE s.name = 'search_path'
"""


def is_unresolved(error: SnapshotError) -> bool:
    """Return whether a name was not found under the path."""
    return error.attributes.get("sqlstate") in _UNRESOLVED


def reading_path(session: PostgresqlConnection, schema: str) -> str:
    """Return the statement that sets the path for planning a query of a table in a schema."""
    [row] = session.rows(_PATH.format(schema=literal(schema)), "reading the search_path")
    return f"SELECT pg_catalog.set_config('search_path', {literal(row['path'])}, true)"
