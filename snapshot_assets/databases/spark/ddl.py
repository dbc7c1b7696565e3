"""The statements that create a snapshot's tables in a Spark catalog, with columns and comments. Spark has no more."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa
from pyspark.errors import PySparkException

from snapshot_assets.databases.clashes import clashes
from snapshot_assets.databases.definition import Definition, ObjectKey, Statement
from snapshot_assets.databases.exclusions import uncarried
from snapshot_assets.databases.spark.sql import identifier, literal
from snapshot_assets.databases.spark.types import batch_schema, spark_schema, type_text
from snapshot_assets.errors import DocumentError, UnsupportedTypeError
from snapshot_assets.format.relations import Column, DatabaseSchema, Table

TABLE = ":relation"
"""Parameter of a statement: the quoted name, catalog included, of its table. Only the target knows the catalog."""

_WORDS = (
    "boolean|tinyint|smallint|int|bigint|float|double|string|binary|date|timestamp|timestamp_ntz|time|decimal|char"
    "|varchar|void|interval|year|month|day|hour|minute|second|to|array|map|struct"
)
_TOKEN = re.compile(
    rf" *(?:(?P<word>\b(?:{_WORDS})\b|(?<=string )collate \w+)|(?P<size>\(\d+(?:, ?\d+)?\))|(?P<name>`(?:[^`]|``)+`)"
    r"|(?P<mark>[<>:,]))"
)


def define(schema: DatabaseSchema, *, expressions: bool = True) -> Definition:
    """Return the statements that create a schema; see `DatabaseModule.define`. `expressions` changes nothing."""
    return Definition(
        tables=tuple(table.model_copy(update={"foreign_keys": ()}) for table in schema.tables),
        before=tuple(_create(table) for table in schema.tables),
        lost=(
            *uncarried(schema),
            *_lost_views(schema),
            *(sentence for table in schema.tables for sentence in _lost(table)),
        ),
        refused=clashes(schema, "Spark"),
    )


def type_for(arrow_type: pa.DataType) -> str:
    """Return the Spark type that holds an Arrow type's values; see `DatabaseModule.type_for`."""
    if pa.types.is_null(arrow_type):
        return "string"  # a column of type void cannot be stored
    try:
        return type_text(spark_schema(batch_schema([pa.field("value", arrow_type)]))["value"].dataType)
    except (TypeError, ValueError, pa.ArrowException, PySparkException) as error:
        raise UnsupportedTypeError(f"Spark has no type for {arrow_type}: {error}") from error


def _create(table: Table) -> Statement:
    if not table.columns:
        raise UnsupportedTypeError(f"{table.table_name} has no column; a Spark table needs one. Leave it out.")
    comment = f" COMMENT {literal(table.comment)}" if table.comment else ""
    columns = ", ".join(_column(table, column) for column in table.columns)
    return Statement(
        ObjectKey("table", table.table_name), f"CREATE TABLE IDENTIFIER({TABLE}) ({columns}){comment}", table.table_name
    )


def _column(table: Table, column: Column) -> str:
    null = "" if column.nullable else " NOT NULL"
    comment = f" COMMENT {literal(column.comment)}" if column.comment else ""
    return f"{identifier(column.name)} {_checked(table, column)}{null}{comment}"


def _checked(table: Table, column: Column) -> str:
    """Return a column's type if it is exactly one type: documents may come from anyone."""
    place, depth = 0, 0
    while place < len(column.type):
        match = _TOKEN.match(column.type, place)
        mark = match["mark"] if match else None
        depth += (mark == "<") - (mark == ">")
        if match is None or depth < 0 or (depth == 0 and (match["name"] or mark in (",", ":"))):
            break
        place = match.end()
    if place < len(column.type) or depth or not column.type:
        raise DocumentError(
            f"Column {table.table_name}.{column.name} has the type {column.type!r}, which is no type of Spark."
        )
    return column.type


def _lost_views(schema: DatabaseSchema) -> Iterator[str]:
    for view in schema.views:
        yield f"View {view.table_name} is left out: an import into Spark creates no views."
    for each in schema.schemas:
        if each.comment:
            yield f"The comment of schema {each.name} is left out."


def _lost(table: Table) -> Iterator[str]:
    name = table.table_name
    if table.primary_key is not None:
        yield f"Primary key {table.primary_key.name} of {name} is left out: Spark does not keep keys."
    for unique in table.unique:
        yield f"Unique constraint {unique.name} of {name} is left out: Spark does not keep keys."
    for foreign in table.foreign_keys:
        yield f"Foreign key {foreign.name} of {name} is left out: Spark does not keep keys."
    for column in table.columns:
        if column.default is not None:
            yield f"Default {column.default} of column {name}.{column.name} is left out."
    if provider := table.options.get("provider"):
        yield f"Table {name} was stored as {provider}; the target's catalog chooses its format."
