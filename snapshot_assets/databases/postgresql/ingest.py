"""How the values of a column get back in: ingested as they are, or through a staging column and a cast.

Columns that travelled as text are ingested as text and read by their type's input function. So are the few native
types that the driver can read from the server but not write to it. Columns of other kinds of databases are cast to
what the driver writes; nested values that are no flat list become JSON.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from snapshot_assets.databases.postgresql.sql import identifier
from snapshot_assets.format.relations import Carrier, Column

# Casts from text that are functions of their own: regclass(text) refuses the `-` of no class, and before
# PostgreSQL 16 "char"(text) cut the octal form of a byte to its backslash.
_INPUTS = {"regclass": "regclassin", '"char"': "charin"}


@dataclass(frozen=True)
class Ingest:
    """How one column is loaded.

    Attributes:
        arrow_type: Arrow type that the driver is given; the file's type casts to it without loss.
        type: PostgreSQL type of the column that is ingested into.
        value: SQL that makes the value out of that column, which has the column's own name.
        staged: Whether `value` is more than the column: then rows go through a staging table.
        json: Whether the file's values become JSON text before they are ingested.
    """

    arrow_type: pa.DataType
    type: str
    value: str
    staged: bool
    json: bool = False


_WIDENED = {
    pa.int8(): pa.int16(),
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
    **{pa.timestamp(unit): pa.timestamp("us") for unit in ("s", "ms")},
    **{pa.timestamp(unit, "UTC"): pa.timestamp("us", "UTC") for unit in ("s", "ms")},
}
"""Arrow types that no PostgreSQL column has, and the one that the driver is given."""


def ingest(column: Column) -> Ingest:
    """Return how a column of a PostgreSQL table is loaded.

    Args:
        column: Its document, of a table that was extracted from PostgreSQL, or of another kind's with the type that
            `type_for` chose.
    """
    name, arrow_type = identifier(column.name), column.arrow_field().type
    if column.carrier is Carrier.TEXT:
        return Ingest(pa.string(), "text", restored(name, column.type), True)
    if pa.types.is_nested(arrow_type):
        value = f"{name}::{column.type}"
        if column.type.endswith("[]"):
            element = column.type.removesuffix("[]")
            elements = f"pg_catalog.json_array_elements_text({name}::json) WITH ORDINALITY AS e (value, number)"
            array = f"ARRAY(SELECT e.value::{element} FROM {elements} ORDER BY e.number)"
            value = f"CASE WHEN {name} IS NOT NULL THEN {array} END"
        return Ingest(pa.string(), "text", value, True, json=True)
    if pa.types.is_fixed_size_binary(arrow_type) and column.type != "bytea":  # uuid
        return Ingest(pa.binary(), "bytea", f"pg_catalog.encode({name}, 'hex')::{column.type}", True)
    return _scalar(arrow_type, column.type, name)


def _scalar(arrow_type: pa.DataType, type_text: str, name: str) -> Ingest:
    if pa.types.is_time(arrow_type) or pa.types.is_decimal(arrow_type) or arrow_type == pa.uint64():
        return Ingest(pa.string(), "text", f"{name}::{type_text}", True)
    if type_text == "text":  # of whatever PostgreSQL has no type for
        return Ingest(pa.string(), "text", name, False)
    if pa.types.is_fixed_size_binary(arrow_type):
        return Ingest(pa.binary(), type_text, name, False)
    return Ingest(_WIDENED.get(arrow_type, arrow_type), type_text, name, False)


def restored(value: str, type_text: str) -> str:
    """Return the SQL expression that makes a column's value of its text.

    Args:
        value: SQL of the text.
        type_text: The type as the column's document declares it.
    """
    if function := _INPUTS.get(type_text):
        return f"pg_catalog.{function}(pg_catalog.textout({value}))"
    return f"{value}::{type_text}"
