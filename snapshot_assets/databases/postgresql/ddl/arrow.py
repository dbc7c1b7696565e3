"""Which PostgreSQL type holds every value of an Arrow type, for tables that come from another kind of database."""

from __future__ import annotations

import pyarrow as pa

from snapshot_assets.errors import UnsupportedTypeError

_SIMPLE: dict[pa.DataType, str] = {
    pa.null(): "text",
    pa.bool_(): "boolean",
    pa.int8(): "smallint",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.uint8(): "smallint",
    pa.uint16(): "integer",
    pa.uint32(): "bigint",
    pa.uint64(): "numeric(20,0)",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.string(): "text",
    pa.large_string(): "text",
    pa.binary(): "bytea",
    pa.large_binary(): "bytea",
    pa.date32(): "date",
    # PostgreSQL counts microseconds: nanoseconds are kept as their text.
    **dict.fromkeys((pa.time32("s"), pa.time32("ms"), pa.time64("us")), "time without time zone"),
    pa.time64("ns"): "text",
    **{pa.timestamp(unit): "timestamp without time zone" for unit in ("s", "ms", "us")},
    **{pa.timestamp(unit, "UTC"): "timestamp with time zone" for unit in ("s", "ms", "us")},
    **{pa.timestamp("ns", zone): "text" for zone in (None, "UTC")},
    **{pa.duration(unit): "interval" for unit in ("s", "ms", "us")},
    pa.duration("ns"): "text",
}


def type_for(arrow_type: pa.DataType) -> str:
    """Return the type that holds an Arrow type's values; see `TargetModule`.

    Lists become arrays; what is nested otherwise becomes JSON, because an array must be rectangular and a composite
    type needs a name.

    Raises:
        UnsupportedTypeError: There is none.
    """
    if arrow_type in _SIMPLE:
        return _SIMPLE[arrow_type]
    if pa.types.is_decimal(arrow_type):
        # Before PostgreSQL 15 a scale lies between 0 and the precision.
        scale = max(arrow_type.scale, 0)
        return f"numeric({max(arrow_type.precision - min(arrow_type.scale, 0), scale)},{scale})"
    if pa.types.is_fixed_size_binary(arrow_type):
        return "uuid" if arrow_type.byte_width == 16 else "bytea"
    if pa.types.is_nested(arrow_type):
        flat = pa.types.is_list(arrow_type) and not pa.types.is_nested(arrow_type.value_type)
        return f"{type_for(arrow_type.value_type)}[]" if flat else "json"
    raise UnsupportedTypeError(f"PostgreSQL has no type for Arrow's {arrow_type}.", type=str(arrow_type))
