"""The query of a plan of kind `query`."""

from __future__ import annotations

from snapshot_assets.databases.protocol.query import Query, parse_query
from snapshot_assets.format.names import table_of


def checked_query(query: str) -> str:
    """Return a query as it runs, or the table that it names.

    Raises:
        PlanError: See `parse_query`.
    """
    return query if table_of(query) is not None else parse_query(query)


def query_of(name: str, text: str) -> Query | None:
    """Return the query of a plan; None if it names a table."""
    return None if table_of(text) is not None else Query(name, text)


def is_windowed(query: str) -> bool:
    """Return whether a query names the bounds of a window."""
    parsed = query_of("query", query)
    return parsed is not None and parsed.windowed
