"""Queries that are copied: their columns, and the settings that hold the bounds of a window.

Bounds are transaction-local settings, because bound parameters leave COPY, which is slow and takes memory for all rows.
"""

from __future__ import annotations

from contextlib import closing

from snapshot_assets.databases.postgresql.introspect.columns import SourceColumn, read_columns
from snapshot_assets.databases.postgresql.session import PostgresqlConnection
from snapshot_assets.databases.postgresql.types import carried, expression
from snapshot_assets.databases.query import Query, query_schema
from snapshot_assets.databases.source import DatabaseAddress, Rows, Selection, WindowRows
from snapshot_assets.databases.sql import identifier, literal
from snapshot_assets.errors import DatabaseError
from snapshot_assets.format.arrow_types import arrow_type_text
from snapshot_assets.format.relations import Column, DatabaseSchema, TableName
from snapshot_assets.format.units import time_text

OWN_PATH = "SET LOCAL search_path TO DEFAULT"
"""Lets names of a query without a schema mean what they mean for this user elsewhere."""

_READ_ONLY = "25006"


def extract_query(address: DatabaseAddress, selection: Selection, query: Query) -> DatabaseSchema:
    """Describe a query's relation, by a temporary view that is rolled back: only a view has its columns' modifiers.

    Raises:
        DatabaseError: The server refuses the query, or is read-only.
    """
    name = TableName("public", query.name)
    with closing(PostgresqlConnection(address)) as connection:
        connection.execute("BEGIN", "reading the query's columns")
        connection.execute(OWN_PATH, "reading the query's columns")
        try:
            connection.execute(f"CREATE TEMP VIEW {identifier(query.name)} AS\n{_text(query)}", "reading the query")
        except DatabaseError as error:
            if error.attributes.get("sqlstate") != _READ_ONLY:
                raise
            raise DatabaseError(
                f"{error} A standby cannot describe a query. Create it as a view on the primary, and copy the view."
            ) from None
        connection.execute("SET LOCAL search_path TO ''", "reading the query's columns")
        oid = f"SELECT 'pg_temp.{identifier(query.name)}'::pg_catalog.regclass::pg_catalog.oid::int8 AS oid"
        [row] = connection.rows(oid, "reading the query's columns")
        columns = read_columns(connection, [row["oid"]])[row["oid"]]
    found = [(column, _column(name, column, selection)) for column in columns]
    select = [expression(column.name, column.type, document.carrier) for column, document in found]
    documents = [document for _, document in found]
    return query_schema("postgresql", name, documents, query, {"sql": _text(query), "select": select})


def _text(query: Query) -> str:
    start, end = (f"pg_catalog.current_setting('snapshots.{bound}')::timestamptz" for bound in ("start", "end"))
    return query.with_bounds(start, end)


def _column(name: TableName, column: SourceColumn, selection: Selection) -> Column:
    override = selection.carriers.get((name, column.name))
    arrow_type, carrier = carried(column.type, override, f"{name}.{column.name}")
    return Column(name=column.name, type=column.type.text, arrow_type=arrow_type_text(arrow_type), carrier=carrier)


def bounds_statements(rows: Rows) -> list[str]:
    """Return the statements that set the bounds of a window; none for all rows."""
    bounds = {"start": rows.start, "end": rows.end} if isinstance(rows, WindowRows) else {}
    return [
        f"SELECT pg_catalog.set_config('snapshots.{bound}', {literal(time_text(at))}, true)"
        for bound, at in bounds.items()
    ]
