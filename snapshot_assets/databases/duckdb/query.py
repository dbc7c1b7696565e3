"""Queries that are copied: their columns, and the variables that hold the bounds of a window."""

from __future__ import annotations

from datetime import UTC, datetime

import duckdb
from duckdb.sqltypes import DuckDBPyType

from snapshot_assets.databases.duckdb.session import DuckDBSession
from snapshot_assets.databases.duckdb.types import carry
from snapshot_assets.databases.protocol.query import Query, query_schema
from snapshot_assets.databases.protocol.source import Rows, Selection, WindowRows
from snapshot_assets.databases.selection.spelled_selection import SpelledNames
from snapshot_assets.format.arrow_types import arrow_type_text
from snapshot_assets.format.names import ColumnPath, column_text, rule_of
from snapshot_assets.format.relations import Column, DatabaseSchema, TableName
from snapshot_assets.format.units import time_text

_ANY_WINDOW = WindowRows(datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 2, tzinfo=UTC))


def extract_query(session: DuckDBSession, selection: Selection, query: Query) -> DatabaseSchema:
    """Describe a query's relation."""
    name = TableName("main", query.name)
    start, end = (f"getvariable('snapshots_{bound}')" for bound in ("start", "end"))
    sql = query.with_bounds(start, end)
    types = query_types(session, sql, _ANY_WINDOW)
    selection = SpelledNames(rule_of("duckdb"), [name.schema], {name: types}).selection(selection)
    columns = [_column(name, column, kind, selection) for column, kind in types.items()]
    return query_schema("duckdb", name, columns, query, {"sql": sql})


def _column(name: TableName, column: str, kind: DuckDBPyType, selection: Selection) -> Column:
    carried = carry(kind, selection.carriers.get((name, column)), column_text(ColumnPath(name, column)))
    return Column(name=column, type=str(kind), arrow_type=arrow_type_text(carried.arrow), carrier=carried.carrier)


def query_types(session: DuckDBSession, sql: str, rows: Rows) -> dict[str, DuckDBPyType]:
    """Return the columns of a query and their types, without running it."""
    with session.cursor() as cursor, session.translated("reading the query"):
        set_bounds(cursor, rows)
        relation = cursor.sql(f"FROM (\n{sql}\n)")
        return dict(zip(relation.columns, relation.types, strict=True))


def set_bounds(cursor: duckdb.DuckDBPyConnection, rows: Rows) -> None:
    """Set the bounds of a window; nothing for all rows."""
    if isinstance(rows, WindowRows):
        for bound, at in (("start", rows.start), ("end", rows.end)):
            cursor.execute(f"SET VARIABLE snapshots_{bound} = TIMESTAMPTZ '{time_text(at)}'")
