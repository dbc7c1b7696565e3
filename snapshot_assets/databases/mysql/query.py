"""The document of a query that is copied: its columns' types are those that the server sends with an empty result."""

from __future__ import annotations

from typing import Any

from pymysql.constants import FIELD_TYPE, FLAG

from snapshot_assets.databases.mysql.session import MysqlSession
from snapshot_assets.databases.mysql.types import ColumnType
from snapshot_assets.databases.protocol.query import Query, query_schema
from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.format.arrow_types import arrow_type_text
from snapshot_assets.format.names import ColumnPath, column_text
from snapshot_assets.format.relations import Column, DatabaseSchema, TableName

_BINARY = 63  # the character set of bytes
_INTEGERS = {
    FIELD_TYPE.TINY: "tinyint",
    FIELD_TYPE.SHORT: "smallint",
    FIELD_TYPE.INT24: "mediumint",
    FIELD_TYPE.LONG: "int",
    FIELD_TYPE.LONGLONG: "bigint",
}
_PLAIN = {
    FIELD_TYPE.FLOAT: "float",
    FIELD_TYPE.DOUBLE: "double",
    FIELD_TYPE.YEAR: "year",
    FIELD_TYPE.DATE: "date",
    FIELD_TYPE.NEWDATE: "date",
    FIELD_TYPE.JSON: "json",
    FIELD_TYPE.GEOMETRY: "geometry",
}
_TIMES = {FIELD_TYPE.DATETIME: "datetime", FIELD_TYPE.TIMESTAMP: "timestamp", FIELD_TYPE.TIME: "time"}
_FRACTIONS = range(1, 7)
_ANY_WINDOW = "@snapshots_start = '1970-01-01', @snapshots_end = '1970-01-02'"


def extract_query(session: MysqlSession, selection: Selection, query: Query) -> DatabaseSchema:
    """Describe a query's relation; see `Database.extract`."""
    name = TableName(session.database or "query", query.name)
    sql = query.with_bounds(*(f"CAST(@snapshots_{bound} AS DATETIME(6))" for bound in ("start", "end")))
    session.execute(f"SET {_ANY_WINDOW}", "reading the query")
    columns = []
    for field in session.fields(f"SELECT * FROM (\n{sql}\n) AS copied LIMIT 0", "reading the query"):
        kind = ColumnType(_type_text(field))
        path = column_text(ColumnPath(name, field.name))
        carried = kind.carry(selection.carriers.get((name, field.name)), path)
        columns.append(
            Column(name=field.name, type=kind.text, arrow_type=arrow_type_text(carried.arrow), carrier=carried.carrier)
        )
    return query_schema("mysql", name, columns, query, {"sql": sql})


def _type_text(field: Any) -> str:
    """Return the type of a result's column as the catalog would write it."""
    code, unsigned = field.type_code, " unsigned" if field.flags & FLAG.UNSIGNED else ""
    if code in _INTEGERS:
        return f"{_INTEGERS[code]}{unsigned}"
    if code in (FIELD_TYPE.DECIMAL, FIELD_TYPE.NEWDECIMAL):
        precision = field.length - (1 if field.scale else 0) - (0 if unsigned else 1)
        return f"decimal({max(precision, field.scale, 1)},{field.scale}){unsigned}"
    if code in _TIMES:
        return f"{_TIMES[code]}({field.scale})" if field.scale in _FRACTIONS else _TIMES[code]
    if code == FIELD_TYPE.BIT:
        return f"bit({field.length})"
    if code in _PLAIN:
        return _PLAIN[code]
    return "longblob" if field.charsetnr == _BINARY else "longtext"
