"""Queries that are copied: their columns, and the settings that hold the bounds of a window.

Bounds are transaction-local settings, because bound parameters leave COPY, which is slow and takes memory for all rows.
"""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime

from snapshot_assets.databases.postgresql.introspect.columns import read_columns, read_types
from snapshot_assets.databases.postgresql.read_forms import NO_PATH, decoding, expression
from snapshot_assets.databases.postgresql.session import PostgresqlConnection
from snapshot_assets.databases.postgresql.types import SourceType, carried
from snapshot_assets.databases.protocol.query import Query, query_schema
from snapshot_assets.databases.protocol.source import DatabaseAddress, Rows, Selection, WindowRows
from snapshot_assets.databases.sql import identifier, literal
from snapshot_assets.errors import DatabaseError
from snapshot_assets.format.arrow_types import arrow_type_text
from snapshot_assets.format.names import ColumnPath, column_text
from snapshot_assets.format.relations import Column, DatabaseSchema, TableName
from snapshot_assets.format.units import time_text

OWN_PATH = "SET LOCAL search_path TO DEFAULT"
"""Lets names of a query without a schema mean what they mean for this user elsewhere."""

_REMEDIES = {
    "42P16": "Cast it to text.",  # a pseudo-type
    "42701": "Give each column a name of its own, with AS.",  # two columns of one name, or without any
}
_CANNOT_CREATE = ("0A000", "42501")
"""On a standby nothing is created, and some users may not create temporary views."""
_ANY_WINDOW = WindowRows(datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 2, tzinfo=UTC))
_DOING = "reading the query"


def extract_query(address: DatabaseAddress, selection: Selection, query: Query) -> DatabaseSchema:
    """Describe a query's relation.

    Raises:
        DatabaseError: The server refuses the query.
    """
    name = TableName("public", query.name)
    with closing(PostgresqlConnection(address)) as connection:
        try:
            types = _types_of_view(connection, query)
        except DatabaseError as error:
            if error.attributes.get("sqlstate") not in _CANNOT_CREATE:
                raise
            connection.execute("ROLLBACK", _DOING)
            types = _types_of_row(connection, query)
    documents, select = [], []
    for column, kind in types.items():
        override = selection.carriers.get((name, column))
        arrow_type, carrier = carried(kind, override, column_text(ColumnPath(name, column)))
        document = Column(name=column, type=kind.text, arrow_type=arrow_type_text(arrow_type), carrier=carrier)
        documents.append(document)
        select.append(decoding(expression(column, kind, carrier), document, address.encoding))
    return query_schema("postgresql", name, documents, query, {"sql": _text(query), "select": select})


def _types_of_view(connection: PostgresqlConnection, query: Query) -> dict[str, SourceType]:
    """Read the columns of a temporary view that is rolled back: only a view has its columns' modifiers."""
    connection.execute("BEGIN READ WRITE", _DOING)
    connection.execute(OWN_PATH, _DOING)
    connection.execute(f"CREATE TEMP VIEW {identifier(query.name)} AS\n{_text(query)}", _DOING, _REMEDIES)
    connection.execute(NO_PATH, _DOING)
    oid = f"SELECT 'pg_temp.{identifier(query.name)}'::pg_catalog.regclass::pg_catalog.oid::int8 AS oid"
    [row] = connection.rows(oid, _DOING)
    return {column.name: column.type for column in read_columns(connection, [row["oid"]]).get(row["oid"], ())}


def _types_of_row(connection: PostgresqlConnection, query: Query) -> dict[str, SourceType]:
    """Read the columns of a row of NULLs that the query is joined to: they have no modifiers.

    Nothing is created, and the query is not run.
    """
    connection.execute("BEGIN READ ONLY", _DOING)
    for statement in (OWN_PATH, *bounds_statements(_ANY_WINDOW)):
        connection.execute(statement, _DOING)
    joined = f"(SELECT 1) AS one (one) LEFT JOIN (\n{_text(query)}\n) AS copied ON false"
    # As JSON, because some types have no binary form, in which the driver reads values.
    keys = "pg_catalog.json_object_keys(pg_catalog.row_to_json(named))"
    named = connection.rows(f"SELECT {keys} AS name FROM (SELECT copied.* FROM {joined}) AS named", _DOING)
    names = [row["name"] for row in named]
    kinds = ", ".join(f"pg_catalog.pg_typeof(copied.{identifier(name)})::pg_catalog.oid::int8" for name in names)
    [row] = connection.rows(f"SELECT ARRAY[{kinds}] AS oids FROM {joined}", _DOING)
    connection.execute(NO_PATH, _DOING)
    types = read_types(connection, row["oids"])
    return {name: types[oid] for name, oid in zip(names, row["oids"], strict=True)}


def _text(query: Query) -> str:
    start, end = (f"pg_catalog.current_setting('snapshots.{bound}')::timestamptz" for bound in ("start", "end"))
    return query.with_bounds(start, end)


def bounds_statements(rows: Rows) -> list[str]:
    """Return the statements that set the bounds of a window; none for all rows."""
    bounds = {"start": rows.start, "end": rows.end} if isinstance(rows, WindowRows) else {}
    return [
        f"SELECT pg_catalog.set_config('snapshots.{bound}', {literal(time_text(at))}, true)"
        for bound, at in bounds.items()
    ]
