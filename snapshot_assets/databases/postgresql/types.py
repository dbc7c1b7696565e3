"""Maps PostgreSQL types to Arrow types, and Arrow types of other databases to PostgreSQL types.

A type is native if tests prove that its values survive the way through Arrow and Parquet and back exactly. Every other
type is carried as the text of its output function and restored through its input function. The query calls the output
function itself (`read_forms`), because the casts of `bool`, `"char"`, `name`, `inet`, `cidr`, `bpchar` and `xml` return
other text.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

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

_NANOSECONDS = (pa.time64("ns"), pa.timestamp("ns"), pa.timestamp("ns", "UTC"), pa.duration("ns"))
"""PostgreSQL stores microseconds; these become text."""

_ARROW_TYPES: dict[str, tuple[pa.DataType, ...]] = {
    "boolean": (pa.bool_(),),
    "smallint": (pa.int8(), pa.int16(), pa.uint8()),
    "integer": (pa.int32(), pa.uint16()),
    "bigint": (pa.int64(), pa.uint32()),
    "numeric(20,0)": (pa.uint64(),),
    "real": (pa.float32(),),
    "double precision": (pa.float64(),),
    "bytea": (pa.binary(), pa.large_binary()),
    "date": (pa.date32(),),
    "time without time zone": (pa.time32("s"), pa.time32("ms"), pa.time64("us")),
    "timestamp without time zone": tuple(map(pa.timestamp, ("s", "ms", "us"))),
    "timestamp with time zone": tuple(pa.timestamp(unit, "UTC") for unit in ("s", "ms", "us")),
    "interval": tuple(map(pa.duration, ("s", "ms", "us"))),
    "text": (pa.null(), pa.string(), pa.large_string(), *_NANOSECONDS),
}
"""Types for Arrow types of tables that come from another kind of database."""

_FOR_ARROW = {arrow_type: name for name, arrow_types in _ARROW_TYPES.items() for arrow_type in arrow_types}
TIMESTAMPS = ("timestamp", "timestamptz")
RANGED = ("smallint", "integer", "bigint", "date", "timestamp without time zone", "timestamp with time zone", "uuid")
"""Types by whose ranges a query is divided."""
_MAX_PRECISION = 38


@dataclass(frozen=True)
class SourceType:
    """A column's type, and the base type of a domain.

    Attributes:
        text: The type as the column declares it.
        schema: Schema of the base type.
        name: Name of the base type, such as `int4`.
        kind: `typtype` of the base type: b, c, e, m, p or r.
        modifier: Type modifier of the base type, -1 for none.
        domain: Whether the column's own type is a domain.
        output: Schema and name of the base type's output function; None if SQL cannot call it, because it belongs to
            another type (refcursor uses that of text).
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


def carried(source: SourceType, override: Carrier | None, column: str) -> tuple[pa.DataType, Carrier]:
    """Return the Arrow type and the carrier of a column; `override` is the carrier that the plan asks for.

    Raises:
        UnsupportedTypeError: The type is a pseudo-type.
        PlanError: The plan asks for a native carrier, and the type has none.
    """
    if source.kind == "p":
        raise UnsupportedTypeError(
            f"Column {column} is of the pseudo-type {source.text}, whose values cannot be read back. Leave its table"
            " out, or export a view without the column.",
            column=column,
            type=source.text,
        )
    native = NATIVE.get(source.builtin or "")
    if source.kind == "e":
        native = pa.string()
    elif source.builtin == "numeric" and source.modifier >= 0:
        precision = ((source.modifier - 4) >> 16) & 0xFFFF
        scale = (((source.modifier - 4) & 0x7FF) ^ 0x400) - 0x400  # eleven bits, signed
        fits = precision <= _MAX_PRECISION and 0 <= scale <= precision
        native = pa.decimal128(precision, scale) if fits else None
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


def type_for(arrow_type: pa.DataType) -> str:
    """Return the type that holds an Arrow type's values; see `DatabaseModule`.

    Flat lists become arrays. All other nested types become JSON: arrays must be rectangular, and composite types need
    names.
    """
    if arrow_type in _FOR_ARROW:
        return _FOR_ARROW[arrow_type]
    if pa.types.is_decimal(arrow_type):
        # Before PostgreSQL 15 a scale lies between 0 and the precision.
        scale = max(arrow_type.scale, 0)
        return f"numeric({max(arrow_type.precision - min(arrow_type.scale, 0), scale)},{scale})"
    if pa.types.is_fixed_size_binary(arrow_type):
        return "uuid" if arrow_type.byte_width == 16 else "bytea"
    if pa.types.is_nested(arrow_type):
        flat = pa.types.is_list(arrow_type) and not pa.types.is_nested(arrow_type.value_type)
        return f"{type_for(arrow_type.value_type)}[]" if flat else "json"
    raise UnsupportedTypeError(f"PostgreSQL has no type for the Arrow type {arrow_type}.", type=str(arrow_type))
