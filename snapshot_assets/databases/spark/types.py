"""Which Arrow type carries which Spark SQL type, and how names, values and windows are written in Spark SQL.

A column's type is a tree; its leaves decide. Tests prove that a native leaf's values are exact through Arrow and
Parquet and back. Every other leaf is cast to string, which Spark casts back. Nested types stay nested.

Windows are predicates that Spark pushes down to the files. All instants are microseconds in a session whose time zone
is UTC. Spark has no infinite times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from operator import methodcaller

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StringType, StructField, StructType

from snapshot_assets.databases.protocol.time_column import InstantColumn, first_date, known_zone, utc_text
from snapshot_assets.databases.selection.columns import Carried, refused_carrier, unsupported_type
from snapshot_assets.format.arrow_types import with_leaves
from snapshot_assets.format.relations import Carrier
from snapshot_assets.format.units import is_utc


def identifier(name: str) -> str:
    """Return a quoted identifier."""
    return "`" + name.replace("`", "``") + "`"


def qualified(path: Sequence[str]) -> str:
    """Return a quoted name of several parts."""
    return ".".join(map(identifier, path))


def literal(value: str) -> str:
    """Return a string constant."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


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
"""By the name of PySpark's class. The others are decimals and the nested types."""

TEXT = frozenset(("DayTimeIntervalType", "YearMonthIntervalType"))
"""Spark has no Arrow form of the second; Parquet has none of either."""

REFUSED: dict[str, str] = {
    "VariantType": "no cast from text restores its inner types; export a view that casts it, or to_json() of it",
    "GeometryType": "its text cannot be cast back; export a view of st_asbinary() of it",
    "GeographyType": "its text cannot be cast back; export a view of st_asbinary() of it",
    "CalendarIntervalType": "it cannot be stored; use an interval of days and seconds, or of years and months",
}

_WIDENED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20)}

TIMESTAMPS = frozenset(("timestamp", "timestamp_ntz"))
_CHAR_VARCHAR = "__CHAR_VARCHAR_TYPE_STRING"
_DEEPEST = 16


def carry(kind: DataType, wanted: Carrier | None, where: str) -> Carried:
    """Choose how a column of a type travels: as the plan wants, or else as the type does.

    Raises:
        UnsupportedTypeError: The type has no exact carrier.
        PlanError: The plan wants a carrier that the type does not have.
    """
    _refuse(kind, type_text(kind), where)
    own_text = _contains(kind, TEXT)
    if wanted is Carrier.TEXT and _contains(kind, frozenset(("BinaryType",))):
        raise refused_carrier(where, type_text(kind), wanted, "a cast from binary to text loses bytes")
    if wanted is Carrier.NATIVE and own_text:
        raise refused_carrier(where, type_text(kind), wanted, "only text holds all its values")
    everything = wanted is Carrier.TEXT and not own_text
    if not own_text and not everything:
        return Carried(_arrow(kind, everything), Carrier.NATIVE)

    def cast(leaf: DataType) -> str:
        return "string" if _is_text(leaf, everything) else leaf.simpleString()

    return Carried(_arrow(kind, everything), Carrier.TEXT, type_text(kind, cast))


def type_text(kind: DataType, leaf: Callable[[DataType], str] = methodcaller("simpleString")) -> str:
    """Return a type in Spark SQL, with quoted member names, which PySpark's text lacks; `leaf` writes types in it."""
    match kind:
        case ArrayType():
            return f"array<{type_text(kind.elementType, leaf)}>"
        case MapType():
            return f"map<{type_text(kind.keyType, leaf)},{type_text(kind.valueType, leaf)}>"
        case StructType():
            members = (f"{identifier(each.name)}:{type_text(each.dataType, leaf)}" for each in kind)
            return f"struct<{','.join(members)}>"
    return leaf(kind)


def column_type_text(field: StructField) -> str:
    """Return a column's type, which for char and varchar is in the column's metadata only."""
    declared: str | None = (field.metadata or {}).get(_CHAR_VARCHAR)
    return declared or type_text(field.dataType)


def collation(kind: DataType) -> str | None:
    """Return a string type's collation, or None for the default one."""
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
        reason = "a file cannot hold values of a struct without members"
    elif depth > _DEEPEST:
        reason = f"documents have no text for types nested more than {_DEEPEST} deep"
    elif reason is None and not (
        name in NATIVE or name in TEXT or isinstance(kind, ArrayType | MapType | StructType | DecimalType)
    ):
        reason = "this version of the package does not know it"
    if reason is not None:
        raise unsupported_type(where, text, kind.simpleString(), reason)
    for child in _children(kind):
        _refuse(child, text, where, depth + 1)


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


def batch_schema(fields: Iterable[pa.Field]) -> pa.Schema:
    """Return the Arrow types in which Spark takes columns of data files: for each, the nearest that loses nothing."""
    return pa.schema([pa.field(field.name, with_leaves(field.type, _nearest)) for field in fields])


def spark_schema(batches: pa.Schema) -> StructType:
    """Return Spark's own schema of the rows in such batches."""
    return from_arrow_schema(batches, prefer_timestamp_ntz=True)


def _nearest(arrow_type: pa.DataType) -> pa.DataType:
    if pa.types.is_fixed_size_binary(arrow_type) or pa.types.is_large_binary(arrow_type):
        return pa.binary()
    if pa.types.is_time(arrow_type) or pa.types.is_large_string(arrow_type) or pa.types.is_decimal256(arrow_type):
        return pa.string()
    if arrow_type in _WIDENED:
        return _WIDENED[arrow_type]
    if pa.types.is_timestamp(arrow_type):
        return pa.timestamp("us", arrow_type.tz)
    if pa.types.is_duration(arrow_type):
        return pa.duration("us")
    return arrow_type


class SparkTimeColumn(InstantColumn):
    """A table's time index in Spark SQL; see `InstantColumn`."""

    types = ("timestamp", "timestamp_ntz", "date")
    quote = "`"

    @property
    def finite(self) -> str:
        """The predicate of rows with a time."""
        return f"{self.name} IS NOT NULL"

    @property
    def timeless(self) -> str:
        """The predicate of rows without a time."""
        return f"{self.name} IS NULL"

    @property
    def _shifts(self) -> bool:
        return self.type == "timestamp_ntz" and not is_utc(self.zone)

    def _bound(self, bound: datetime) -> str:
        match self.type:
            case "date":
                date = first_date(bound, known_zone(self.zone))
                return self._constant(date if date.index("-") == 4 else f"+{date}")  # as Spark reads year 10000
            case "timestamp_ntz":
                return f"TIMESTAMP_NTZ {literal(utc_text(bound))}"
        return self._instant_constant(bound)

    def _instant(self, value: str) -> str:
        if self.type == "timestamp":
            return value
        return f"to_utc_timestamp(CAST({value} AS TIMESTAMP), {literal(self.zone)})"

    @staticmethod
    def _instant_constant(moment: datetime) -> str:
        return f"TIMESTAMP {literal(utc_text(moment) + ' UTC')}"

    @staticmethod
    def _microseconds(instant: str) -> str:
        return f"unix_micros({instant})"
