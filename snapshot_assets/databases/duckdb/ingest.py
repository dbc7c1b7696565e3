"""How a column's values are loaded into a DuckDB table."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from duckdb.sqltypes import DuckDBPyType

from snapshot_assets.databases.carriers import recorded_carrier
from snapshot_assets.databases.duckdb.types import carry
from snapshot_assets.databases.sql import identifier
from snapshot_assets.errors import DatabaseError
from snapshot_assets.format.names import ColumnPath, column_text
from snapshot_assets.format.relations import Carrier, Column, TableName


@dataclass(frozen=True)
class DuckDBIngest:
    """How a column is loaded.

    Attributes:
        arrow_type: Arrow type of the stream; the file's type casts to it without loss.
        value: SQL expression of the column's value; it names the streamed column by the column's own name.
    """

    arrow_type: pa.DataType
    value: str


def ingest(table: TableName, column: Column, kind: DuckDBPyType) -> DuckDBIngest:
    """Return how a column is loaded.

    Args:
        table: Its table, for messages.
        column: Its document, with the carrier and Arrow type of the file.
        kind: Its type in the target.

    Raises:
        DatabaseError: Values of that carrier do not fit the type.
    """
    arrow_type, quoted, type_text = column.arrow_field().type, identifier(column.name), str(kind)
    where = column_text(ColumnPath(table, column.name))
    carried = recorded_carrier(column, lambda override: carry(kind, override, where))
    if carried is not None:
        return DuckDBIngest(arrow_type, carried.restore(quoted, type_text))
    if column.carrier is Carrier.TEXT:
        raise DatabaseError(
            f"Column {where} is {type_text} in the target; its values travelled as {column.arrow_type}, which cannot be"
            " read back into that type. Drop the table and let the import create it.",
            column=column.name,
        )
    return _foreign(arrow_type, quoted, type_text)


def _foreign(arrow_type: pa.DataType, quoted: str, type_text: str) -> DuckDBIngest:
    """Return how values from another kind of database are loaded."""
    if pa.types.is_fixed_size_binary(arrow_type) and type_text == "UUID":
        return DuckDBIngest(pa.binary(), f"CAST(lower(hex({quoted})) AS UUID)")
    if type_text == "VARCHAR" and not pa.types.is_nested(arrow_type):
        return DuckDBIngest(pa.string(), quoted)
    return DuckDBIngest(arrow_type, f"CAST({quoted} AS {type_text})")
