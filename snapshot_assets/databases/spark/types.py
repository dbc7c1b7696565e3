"""Which Arrow type carries which Spark SQL type: the one table of the mapping.

A column's type is a tree; its leaves decide. A native leaf's values were proved exact through Arrow and Parquet and
back. Every other leaf is cast to string, which Spark casts back. Nested types stay nested.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StringType, StructField, StructType

from snapshot_assets.databases.carriers import unsupported_type
from snapshot_assets.databases.spark.sql import identifier
from snapshot_assets.errors import PlanError
from snapshot_assets.format.relations import Carrier

NATIVE: dict[str, pa.DataType] = {
    "BooleanType": pa.bool_(),
    "ByteType": pa.int8(),
    "ShortType": pa.int16(),
    "IntegerType": pa.int32(),
    "LongType": pa.int64(),
    "FloatType": pa.float32(),
    "DoubleType": pa.float64(),
    "StringType": pa.string(),
    "CharType": pa.string(),
    "VarcharType": pa.string(),
    "BinaryType": pa.binary(),
    "DateType": pa.date32(),
    "TimestampType": pa.timestamp("us", "UTC"),
    "TimestampNTZType": pa.timestamp("us"),
    "TimeType": pa.time64("ns"),
    "NullType": pa.null(),
}
"""By the name of PySpark's class. Besides them: decimals, and the nested types."""

TEXT = frozenset(("DayTimeIntervalType", "YearMonthIntervalType"))
"""Spark has no Arrow form of the second; Parquet has none of either."""

REFUSED: dict[str, str] = {
    "VariantType": "no cast from text gives its inner types back; export a view that casts it, or to_json() of it",
    "GeometryType": "its text cannot be cast back; export a view of st_asbinary() of it",
    "GeographyType": "its text cannot be cast back; export a view of st_asbinary() of it",
    "CalendarIntervalType": "it cannot be stored; use an interval of days and seconds, or of years and months",
}

TIMESTAMPS = frozenset(("timestamp", "timestamp_ntz"))
_CHAR_VARCHAR = "__CHAR_VARCHAR_TYPE_STRING"
_DEEPEST = 16


@dataclass(frozen=True)
class SparkCarried:
    """How a column travels.

    Attributes:
        arrow: The Arrow type of its values in the data files.
        carrier: `text` if any of it is text.
        via: Spark type that the column is cast to on the way out; None if it is its own.
    """

    arrow: pa.DataType
    carrier: Carrier
    via: str | None

    def select(self, column: str) -> str:
        """Return the SQL expression that yields the carried value of a quoted column."""
        return column if self.via is None else f"CAST({column} AS {self.via})"


def carry(kind: DataType, wanted: Carrier | None, where: str) -> SparkCarried:
    """Choose how a column travels.

    Args:
        kind: Its type.
        wanted: What the plan says, or None to leave the choice here.
        where: The column's name, for error messages.

    Raises:
        UnsupportedTypeError: The type has no exact carrier.
        PlanError: The plan wants a carrier that the type does not have.
    """
    _refuse(kind, type_text(kind), where)
    own_text = _contains(kind, TEXT)
    if wanted is Carrier.TEXT and _contains(kind, frozenset(("BinaryType",))):
        raise _wrong_carrier(kind, wanted, where, "a cast from binary to text loses bytes")
    if wanted is Carrier.NATIVE and own_text:
        raise _wrong_carrier(kind, wanted, where, "only text holds all its values")
    everything = wanted is Carrier.TEXT and not own_text
    if not own_text and not everything:
        return SparkCarried(_arrow(kind, everything), Carrier.NATIVE, None)
    return SparkCarried(_arrow(kind, everything), Carrier.TEXT, _cast(kind, everything))


def type_text(kind: DataType) -> str:
    """Return a type as Spark SQL writes it, member names quoted; PySpark's own text quotes none."""
    match kind:
        case ArrayType():
            return f"array<{type_text(kind.elementType)}>"
        case MapType():
            return f"map<{type_text(kind.keyType)},{type_text(kind.valueType)}>"
        case StructType():
            return f"struct<{','.join(f'{identifier(each.name)}:{type_text(each.dataType)}' for each in kind)}>"
    return kind.simpleString()


def column_type_text(field: StructField) -> str:
    """Return a column's type, which for char and varchar stands in the column's metadata only."""
    declared: str | None = (field.metadata or {}).get(_CHAR_VARCHAR)
    return declared or type_text(field.dataType)


def collation(kind: DataType) -> str | None:
    """Return a string type's collation, if it is not the usual one."""
    name = getattr(kind, "collation", None) if isinstance(kind, StringType) else None
    return None if name in (None, "UTF8_BINARY") else str(name)


def _children(kind: DataType) -> list[DataType]:
    match kind:
        case ArrayType():
            return [kind.elementType]
        case MapType():
            return [kind.keyType, kind.valueType]
        case StructType():
            return [each.dataType for each in kind]
    return []


def _contains(kind: DataType, names: frozenset[str]) -> bool:
    return type(kind).__name__ in names or any(_contains(child, names) for child in _children(kind))


def _refuse(kind: DataType, text: str, where: str, depth: int = 0) -> None:
    name = type(kind).__name__
    reason = REFUSED.get(name)
    if isinstance(kind, StructType) and not len(kind):
        reason = "a struct without members has no values that a file could hold"
    elif depth > _DEEPEST:
        reason = f"types nested more than {_DEEPEST} deep have no text in the documents"
    elif reason is None and not (
        name in NATIVE or name in TEXT or isinstance(kind, ArrayType | MapType | StructType | DecimalType)
    ):
        reason = "this version of the package does not know it"
    if reason is not None:
        raise unsupported_type(where, text, kind.simpleString(), reason)
    for child in _children(kind):
        _refuse(child, text, where, depth + 1)


def _wrong_carrier(kind: DataType, wanted: Carrier, where: str, reason: str) -> PlanError:
    return PlanError(
        f"The plan wants column {where} of type {type_text(kind)} carried as {wanted.value}, but {reason}."
        " Leave the override out.",
        column=where,
        type=type_text(kind),
    )


def _is_text(kind: DataType, everything: bool) -> bool:
    return everything or type(kind).__name__ in TEXT


def _arrow(kind: DataType, everything: bool) -> pa.DataType:
    match kind:
        case ArrayType():
            return pa.list_(_arrow(kind.elementType, everything))
        case MapType():
            return pa.map_(_arrow(kind.keyType, everything), _arrow(kind.valueType, everything))
        case StructType():
            return pa.struct([pa.field(each.name, _arrow(each.dataType, everything)) for each in kind])
    if _is_text(kind, everything):
        return pa.string()
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    return NATIVE[type(kind).__name__]


def _cast(kind: DataType, everything: bool) -> str:
    match kind:
        case ArrayType():
            return f"array<{_cast(kind.elementType, everything)}>"
        case MapType():
            return f"map<{_cast(kind.keyType, everything)},{_cast(kind.valueType, everything)}>"
        case StructType():
            members = (f"{identifier(each.name)}:{_cast(each.dataType, everything)}" for each in kind)
            return f"struct<{','.join(members)}>"
    return "string" if _is_text(kind, everything) else kind.simpleString()
