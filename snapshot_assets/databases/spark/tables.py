"""Converts a schema of Spark to a table document, and casts a DataFrame to a document."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from snapshot_assets.databases.carriers import scanned_carrier
from snapshot_assets.databases.columns import choose_time_index
from snapshot_assets.databases.selection import carrier_override
from snapshot_assets.databases.source import Selection
from snapshot_assets.databases.spark.sql import identifier
from snapshot_assets.databases.spark.types import TIMESTAMPS, carry, collation, column_type_text
from snapshot_assets.format.arrow_types import arrow_type_text
from snapshot_assets.format.names import ColumnPath, column_text
from snapshot_assets.format.relations import Carrier, Column, Table, TableName

_DEFAULT = "CURRENT_DEFAULT"
_COMMENT = "comment"


def schema_table(name: TableName, schema: StructType, selection: Selection) -> Table:
    """Describe a Spark table from its schema; see `Database.extract` for the errors."""
    kinds = {field.name: column_type_text(field) for field in schema}
    return Table(
        schema_name=name.schema,
        name=name.table,
        columns=schema_columns(name, schema, selection),
        time_index=choose_time_index(
            name,
            selection.time_columns,
            timestamps=[column for column, kind in kinds.items() if kind in TIMESTAMPS],
            dates=[column for column, kind in kinds.items() if kind == "date"],
        ),
    )


def schema_columns(name: TableName, schema: StructType, selection: Selection) -> tuple[Column, ...]:
    """Describe the columns of a schema."""
    return tuple(_column(name, field, carrier_override(selection, name, field.name)) for field in schema)


def exact_frame(frame: DataFrame, table: Table) -> DataFrame:
    """Return a DataFrame's columns in the types and the order of a table's document.

    In Arrow, nested types still have Spark's own names and nullability: cast each batch to `table.arrow_schema()`,
    which copies nothing.

    Raises:
        DatabaseError: A column is missing, or has another type than in the document.
    """
    fields = {field.name: field for field in frame.schema}
    return frame.selectExpr(*(_selected(table, column, fields) for column in table.columns))


def _selected(table: Table, column: Column, fields: Mapping[str, StructField]) -> str:
    where = column_text(ColumnPath(table.table_name, column.name))
    quoted = identifier(column.name)
    found = column_type_text(fields[column.name]) if column.name in fields else None
    carried = scanned_carrier(
        table, column, found, lambda override: carry(fields[column.name].dataType, override, where)
    )
    return f"{carried.select(quoted)} AS {quoted}"


def _column(name: TableName, field: StructField, wanted: Carrier | None) -> Column:
    carried = carry(field.dataType, wanted, column_text(ColumnPath(name, field.name)))
    metadata = field.metadata or {}
    return Column(
        name=field.name,
        type=column_type_text(field),
        arrow_type=arrow_type_text(carried.arrow),
        carrier=carried.carrier,
        nullable=field.nullable,
        default=metadata.get(_DEFAULT),
        collation=collation(field.dataType),
        comment=metadata.get(_COMMENT),
    )
