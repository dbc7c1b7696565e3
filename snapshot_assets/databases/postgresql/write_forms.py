"""Decides how a column's values are loaded: by COPY into the table, or through a staging column and a cast.

COPY's binary stream holds what the receive functions of the columns' types read. The driver writes that for the Arrow
types that it knows; bytes it copies as they are, so that `wire` encodes all others. A value whose type has no encoder,
or no binary form, is loaded as text into a staging table and read by its type's input function.

The encoder is chosen by the receive function in the target, because that function alone determines the bytes: citext
has that of text, and a type of the same name in another schema has its own.

Text with NUL, and dates and times that are too early or late, are values of other databases that PostgreSQL cannot
hold.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from snapshot_assets.databases.postgresql.session import PostgresqlConnection
from snapshot_assets.databases.postgresql.wire.arrays import arrays
from snapshot_assets.databases.postgresql.wire.numbers import Encoder, decimals
from snapshot_assets.databases.postgresql.wire.texts import ENCODERS, finite_intervals
from snapshot_assets.databases.protocol.target import UnfitValues
from snapshot_assets.databases.sql import identifier, literal
from snapshot_assets.format.arrow_types import with_leaves
from snapshot_assets.format.relations import Carrier, Column, TableName
from snapshot_assets.format.time_values import written_time

# Types whose cast from text differs from their input function: regclass(text) refuses `-`, which means no class, and
# before PostgreSQL 16 "char"(text) kept only the backslash of a byte in octal form.
_INPUTS = {"regclass": "regclassin", '"char"': "charin"}

_INFINITE_INTERVALS = 170000

# The receive function of an internal type is known by its name in C; that of an extension belongs to a library.
_RECEIVERS = """
WITH RECURSIVE base (of, id) AS (
    SELECT t.oid, t.oid FROM pg_catalog.pg_type t WHERE t.typtype <> 'd'
    UNION ALL SELECT d.oid, base.id FROM pg_catalog.pg_type d JOIN base ON base.of = d.typbasetype WHERE d.typtype = 'd'
), received (of, function, element) AS (
    SELECT base.of, CASE WHEN l.lanname = 'internal' THEN p.prosrc ELSE '' END, t.typelem
    FROM base JOIN pg_catalog.pg_type t ON t.oid = base.id
    LEFT JOIN pg_catalog.pg_proc p ON p.oid = t.typreceive LEFT JOIN pg_catalog.pg_language l ON l.oid = p.prolang
)
SELECT a.attname AS name, pg_catalog.format_type(a.atttypid, a.atttypmod) AS type, coalesce(r.function, '') AS function,
    r.element::pg_catalog.int8 AS element, coalesce(e.function, '') AS element_function,
    pg_catalog.current_setting('server_version_num')::pg_catalog.int4 AS server
FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN received r ON r.of = a.atttypid LEFT JOIN received e ON e.of = r.element
WHERE n.nspname = {schema} AND c.relname = {name} AND a.attnum > 0 AND NOT a.attisdropped
"""


@dataclass(frozen=True)
class Receiver:
    """How a column of the target receives values.

    Attributes:
        function: Name in C of the internal function that reads a value's bytes; empty for others.
        element: Oid of the elements' type; 0 if the type is no array.
        element_function: `function` of the elements' type.
        server: The server's version, as `server_version_num` gives it; 0 if unknown.
    """

    type: str
    function: str = ""
    element: int = 0
    element_function: str = ""
    server: int = 0

    @property
    def encoder(self) -> Encoder | None:
        """Encodes values from text; None if nothing does exactly."""
        if self.function != "array_recv":
            return self._encoder_of(self.function)
        encode = self._encoder_of(self.element_function)
        return partial(arrays, element=self.element, encode=encode) if encode else None

    def _encoder_of(self, function: str) -> Encoder | None:
        if function == "interval_recv" and self.server < _INFINITE_INTERVALS:
            return finite_intervals
        return ENCODERS.get(function)


@dataclass(frozen=True)
class WriteForm:
    """How one column is loaded.

    Attributes:
        arrow_type: Arrow type for the driver.
        type: PostgreSQL type of a staging column.
        value: SQL expression of the value, from a staging column with the column's own name. If it is more than that
            name, rows go through a staging table.
        encode: Makes values of `arrow_type`; None to cast them, which loses nothing.
    """

    arrow_type: pa.DataType
    type: str
    value: str
    encode: Callable[[pa.Array], pa.Array] | None = None


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
"""Arrow types that the driver cannot write, and the type to cast them to."""


def receivers(connection: PostgresqlConnection, table: TableName) -> dict[str, Receiver]:
    """Return the receivers of a table by column."""
    query = _RECEIVERS.format(schema=literal(table.schema), name=literal(table.table))
    rows = connection.rows(query, f"looking up the types of {table}")
    return {row.pop("name"): Receiver(**row) for row in rows}


def write_form(column: Column, receiver: Receiver) -> WriteForm:
    """Return how a column is loaded, whose document is PostgreSQL's, or another database's with types of `type_for`."""
    name, arrow_type = identifier(column.name), column.arrow_field().type
    if column.carrier is Carrier.TEXT:
        if (encode := receiver.encoder) is not None:
            return WriteForm(pa.binary(), receiver.type, name, encode)
        function = _INPUTS.get(column.type)
        value = f"pg_catalog.{function}(pg_catalog.textout({name}))" if function else f"{name}::{column.type}"
        return WriteForm(pa.string(), "text", value)
    if pa.types.is_nested(arrow_type):
        return _nested(column, name)
    if receiver.function == "time_recv" and pa.types.is_time(arrow_type):
        return WriteForm(pa.int64(), receiver.type, name, lambda values: values.cast(pa.time64("us")).view(pa.int64()))
    # The driver does not write these.
    if receiver.function == "uuid_recv" and arrow_type == pa.binary(16):
        return WriteForm(pa.binary(), receiver.type, name, lambda values: values.cast(pa.binary()))
    if receiver.function == "numeric_recv" and pa.types.is_decimal128(arrow_type) and arrow_type.scale >= 0:
        return WriteForm(pa.binary(), receiver.type, name, decimals)
    if receiver.function == "numeric_recv" and arrow_type == pa.uint64():
        return WriteForm(pa.binary(), receiver.type, name, lambda values: decimals(values.cast(pa.decimal128(20))))
    return _scalar(arrow_type, column.type, name)


def _nested(column: Column, name: str) -> WriteForm:
    """Return how nested values are loaded, which the driver cannot write: as JSON text."""
    if column.type == "json":
        return WriteForm(pa.string(), "json", name, _json_texts)
    value = f"{name}::{column.type}"
    if column.type.endswith("[]"):
        element = column.type.removesuffix("[]")
        elements = f"pg_catalog.json_array_elements_text({name}::json) WITH ORDINALITY AS e (value, number)"
        array = f"ARRAY(SELECT e.value::{element} FROM {elements} ORDER BY e.number)"
        value = f"CASE WHEN {name} IS NOT NULL THEN {array} END"
    return WriteForm(pa.string(), "text", value, _json_texts)


def _scalar(arrow_type: pa.DataType, type_text: str, name: str) -> WriteForm:
    if pa.types.is_time(arrow_type) or pa.types.is_decimal(arrow_type) or arrow_type == pa.uint64():
        return WriteForm(pa.string(), "text", f"{name}::{type_text}")
    if type_text == "text":  # also of values for which PostgreSQL has no type
        return WriteForm(pa.string(), "text", name)
    if pa.types.is_fixed_size_binary(arrow_type):
        if type_text == "uuid":
            return WriteForm(pa.binary(), "bytea", f"pg_catalog.encode({name}, 'hex')::pg_catalog.uuid")
        return WriteForm(pa.binary(), type_text, name)
    return WriteForm(_WIDENED.get(arrow_type, arrow_type), type_text, name)


def _json_texts(array: pa.Array) -> pa.Array:
    """Return each nested value as JSON text, which PostgreSQL casts to arrays; NULL stays NULL.

    JSON itself has finite numbers, texts and booleans. All other values are the text that PostgreSQL reads: decimals,
    dates, times, `NaN`, hex digits for bytes. A map becomes a list of pairs, because its keys may have any type.
    """
    dumps = partial(json.dumps, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    kind = array.type

    def leaf(kind: pa.DataType) -> pa.DataType:  # Python's temporal and decimal types cannot hold all values
        if pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
            return pa.int32() if pa.types.is_date32(kind) else pa.int64()
        return pa.string() if pa.types.is_temporal(kind) or pa.types.is_decimal(kind) else kind

    values = array.cast(with_leaves(kind, leaf)).to_pylist()
    return pa.array([None if value is None else dumps(_plain(value, kind)) for value in values], pa.string())


def _plain(value: Any, kind: pa.DataType) -> Any:
    match value:
        case int() if pa.types.is_temporal(kind):
            return written_time(value, kind)
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case bytes():
            return "\\x" + value.hex()
        case dict():
            return {member.name: _plain(value[member.name], member.type) for member in kind}
        case list() if pa.types.is_map(kind):
            return [[_plain(key, kind.key_type), _plain(item, kind.item_type)] for key, item in value]
        case list():
            return [_plain(item, kind.value_type) for item in value]
    return value


_DAYS = (-2_440_588, 2_145_042_905)
"""4714-11-24 BC and 5874897-12-31, in days from 1970 on."""
_FIRST_MICROSECOND, _LAST_MICROSECOND = -210_866_803_200_000_000, (1 << 63) - 1
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000}


def unfit_values(column: Column) -> UnfitValues | None:
    """Return which values of a column's Arrow type PostgreSQL cannot hold; see `SqlTarget.unfit_values`."""
    kind = of = column.arrow_field().type
    while pa.types.is_list(of):
        of = of.value_type
    count = partial(_unfit, type_text=column.type)
    if _holds_text(of):
        return UnfitValues("with the character NUL, which PostgreSQL does not hold in text", count)
    if _limits(of, column.type) is None:
        return None
    early = f"before 4714-11-24 BC, or later than type {column.type} has"
    return UnfitValues(early, count, _limits(kind, column.type))


def _limits(kind: pa.DataType, type_text: str) -> tuple[int, int] | None:
    """Return the first and last value that a PostgreSQL type can hold, as Arrow's integers; None if all fit."""
    if pa.types.is_date32(kind) and type_text.startswith("date"):
        return _DAYS
    if pa.types.is_timestamp(kind) and type_text.startswith("timestamp") and kind.unit in _PER_SECOND:
        factor = 1_000_000 // _PER_SECOND[kind.unit]
        return _FIRST_MICROSECOND // factor, _LAST_MICROSECOND // factor
    return None


def _holds_text(kind: pa.DataType) -> bool:
    """Return whether values are text, in which PostgreSQL has no NUL."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _unfit(values: pa.Array, type_text: str) -> int:
    """Return how many values PostgreSQL cannot hold; those of lists count one by one."""
    while pa.types.is_list(values.type):
        values = values.flatten()
    if _holds_text(values.type):
        return pc.sum(pc.match_substring(values, "\0")).as_py() or 0
    if (bounds := _limits(values.type, type_text)) is None:
        return 0
    numbers = values.cast(pa.int32() if pa.types.is_date32(values.type) else pa.int64())
    outside = pc.or_(pc.less(numbers, bounds[0]), pc.greater(numbers, bounds[1]))
    return pc.sum(outside).as_py() or 0
