"""Which Arrow type carries which PostgreSQL type: the one table of the mapping.

A type is native where its values were proved exact from the server through Arrow and Parquet and back into a column
of the same type. Every other type travels as the text of its own output function and is restored through its input
function. The text is taken from the output function itself, not from a cast: `bool`, `"char"`, `name`, `inet`, `cidr`,
`bpchar` and `xml` have casts to text that say something else.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from snapshot_assets.databases.postgresql.sql import identifier
from snapshot_assets.errors import PlanError, UnsupportedTypeError
from snapshot_assets.format.relations import Carrier

NATIVE: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "text": pa.string(),
    "varchar": pa.string(),
    "bpchar": pa.string(),
    "name": pa.string(),
    "json": pa.string(),
    "bytea": pa.binary(),
    "uuid": pa.binary(16),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
}
"""Types of pg_catalog with a native carrier. Besides them: enums as strings, and numeric(p, s) as decimal128 where
p is at most 38 and s lies between 0 and p."""

TIMESTAMPS = ("timestamp", "timestamptz")
_MAX_PRECISION = 38


@dataclass(frozen=True)
class SourceType:
    """What the catalog says of a column's type, a domain followed down to what it is made of.

    Attributes:
        text: The type as the column declares it.
        schema: Schema of the base type.
        name: Name of the base type, such as `int4`.
        kind: `typtype` of the base type: b, c, e, m, p or r.
        modifier: Type modifier of the base type, -1 for none.
        domain: Whether the column's own type is a domain.
        output: Schema and name of the base type's output function; None where it is another type's (refcursor has
            that of text), so that SQL cannot call it.
    """

    text: str
    schema: str
    name: str
    kind: str
    modifier: int
    domain: bool
    output: tuple[str, str] | None

    @property
    def builtin(self) -> str | None:
        """The base type's name if it is PostgreSQL's own, else None."""
        return self.name if self.schema == "pg_catalog" else None


def native_type(source: SourceType) -> pa.DataType | None:
    """Return the Arrow type that carries a type natively, or None if only text does."""
    if source.kind == "e":
        return pa.string()
    if source.builtin == "numeric":
        return _decimal(source.modifier)
    return NATIVE.get(source.builtin or "")


def carried(source: SourceType, override: Carrier | None, column: str) -> tuple[pa.DataType, Carrier]:
    """Return the Arrow type and the carrier of a column.

    Args:
        source: The column's type.
        override: Carrier that the plan asks for, if any.
        column: `schema.table.column`, for messages.

    Raises:
        UnsupportedTypeError: The type is a pseudo-type, which has no values to carry.
        PlanError: The plan asks for a native carrier, and there is none.
    """
    if source.kind == "p":
        raise UnsupportedTypeError(
            f"Column {column} is of the pseudo-type {source.text}, whose values cannot be read back. Leave its table"
            " out, or export a view without the column.",
            column=column,
            type=source.text,
        )
    native = native_type(source)
    if override is Carrier.NATIVE and native is None:
        raise PlanError(
            f"The plan asks for the native carrier for column {column}, but {source.text} has none: its values travel"
            " as text. Leave the column out of `carriers`.",
            column=column,
            type=source.text,
        )
    if native is None or override is Carrier.TEXT:
        return pa.string(), Carrier.TEXT
    return native, Carrier.NATIVE


def expression(column: str, source: SourceType, carrier: Carrier) -> str:
    """Return the SQL expression that yields a column's values as its carrier takes them from the driver.

    Numbers with a fixed scale and enums come as text too: the driver is slow at numeric, and knows an enum only if it
    existed when the connection was made.

    Args:
        column: The column's true name.
        source: The column's type.
        carrier: The carrier its document names.
    """
    value = identifier(column)
    if source.domain:
        value = f"{value}::{identifier(source.schema)}.{identifier(source.name)}"
    if carrier is Carrier.NATIVE and source.kind != "e" and source.builtin != "numeric":
        return value
    if source.output is None:
        return f"{value}::pg_catalog.text"
    function = ".".join(identifier(part) for part in source.output)
    return f"pg_catalog.textin({function}({value}))"


def _decimal(modifier: int) -> pa.DataType | None:
    if modifier < 0:
        return None
    precision = ((modifier - 4) >> 16) & 0xFFFF
    scale = (((modifier - 4) & 0x7FF) ^ 0x400) - 0x400  # eleven bits, signed
    if precision > _MAX_PRECISION or not 0 <= scale <= precision:
        return None
    return pa.decimal128(precision, scale)
