"""How the server sends the values of each type, and what becomes of them on this side.

| type | the server sends | the driver returns | this side makes of it |
| --- | --- | --- | --- |
| native types | the column | its Arrow type, or the bytes of a uuid | the carrier, without copying |
| enums, every type carried as text | its output function's result | bytes | strings, without copying |
| numeric(p, s), p at most 38 | its output function's result | bytes | decimals: digits without the point are integers |

These are the forms that cost least processor time of server and client together. Sent as `cstring`, a text is copied
once less than as `text`. numeric has cheaper forms to read (`(c * 10 ^ s)::int8`) or to send (its own binary form), but
each loses more at the other end, and the driver reads the binary form of numeric slowly in most of its versions.

The driver shifts dates and timestamps from the epoch 2000 to 1970 without a check. `infinity` and every time beyond 64
bits then overflow to values below PostgreSQL's smallest one, so the minimum of a batch reveals them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from snapshot_assets.databases.postgresql.session import PostgresqlConnection
from snapshot_assets.databases.postgresql.types import SourceType
from snapshot_assets.databases.selection.columns import unfit_value
from snapshot_assets.databases.selection.hidden import masked
from snapshot_assets.databases.sql import identifier, literal
from snapshot_assets.format.relations import Carrier, Column, Table

_AS_TEXT = "pg_catalog.textin("
_INTEGER_DIGITS = 18
"""Every integer of so many digits fits into 64 bits."""


def expression(column: str, source: SourceType, carrier: Carrier, mask: str | None = None) -> str:
    """Return the SQL expression of a column's carried values, or of its mask, by which they are sorted; see `sent`.

    Decimals and enums are read as text too: the driver reads numeric slowly, and knows only the enums that existed when
    it connected.
    """
    value = identifier(column) if mask is None else masked(mask, source.text)
    if source.domain:
        value = f"{value}::{identifier(source.schema)}.{identifier(source.name)}"
    if carrier is Carrier.NATIVE and source.kind != "e" and source.builtin != "numeric":
        return value
    if source.output is None:
        return f"{value}::pg_catalog.text"
    function = ".".join(identifier(part) for part in source.output)
    return f"{_AS_TEXT}{function}({value}))"


def sent(carried: str) -> str:
    """Return the SQL expression that the server sends for one of `expression`.

    Where that turns the result of an output function (`cstring`) into a text, the result is sent as it is.
    """
    return carried.removeprefix(_AS_TEXT)[:-1] if carried.startswith(_AS_TEXT) else carried


def decoding(carried: str, column: Column, encoding: str | None) -> str:
    """Return the SQL expression of a column's carried values in UTF-8, whose texts have an encoding of its own.

    A database of encoding SQL_ASCII converts no text, so the text is converted as bytes.
    """
    if encoding is None or column.arrow_type != "string":
        return carried
    as_bytes = f"pg_catalog.convert_to({carried}, 'SQL_ASCII')"
    return f"pg_catalog.convert_from(pg_catalog.convert({as_bytes}, '{encoding}', 'UTF8'), 'UTF8')"


def received(array: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    """Return the driver's array in the Arrow type of its column.

    Raises:
        pa.ArrowInvalid: The type cannot represent a value, such as NaN in a decimal.
    """
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if array.type == arrow_type:
        return array
    if pa.types.is_binary(array.type) and not pa.types.is_fixed_size_binary(arrow_type):
        array = array.view(pa.string())  # the driver returns texts of the server without a check too
    if pa.types.is_decimal128(arrow_type) and pa.types.is_string(array.type):
        decimals = _decimals(array, arrow_type) if arrow_type.precision <= _INTEGER_DIGITS else None
        if decimals is not None:
            return decimals
    return array.cast(arrow_type)


def _decimals(texts: pa.Array, arrow_type: pa.DataType) -> pa.Array | None:
    """Parse decimals of at most 18 digits; None where Arrow's own cast has to judge or refuse a value.

    Every text of a column has the digits of its scale. So without the points they are integers, which Arrow parses in
    half the time that it takes for decimals.
    """
    if texts.offset or texts.null_count == len(texts):
        return None
    bitmap, starts, data = texts.buffers()
    offsets = np.frombuffer(starts, np.int32)[: len(texts) + 1]
    digits = bytes(memoryview(data)[: offsets[-1]])
    text = np.frombuffer(digits, np.uint8)
    if not digits or text.max() > ord("9"):  # NaN and infinities; Arrow would also parse hexadecimal digits
        return None
    if arrow_type.scale:
        valid = np.ones(len(texts), bool) if not texts.null_count else texts.is_valid().to_numpy(zero_copy_only=False)
        points = offsets[1:][valid] - arrow_type.scale - 1
        if points[0] < 0 or (text[points] != ord(".")).any():
            return None
        digits = digits.translate(None, b".")
        if len(text) - len(digits) != len(points):
            return None
        offsets = offsets - np.concatenate(([0], valid.cumsum())).astype(np.int32)
    integers = pa.StringArray.from_buffers(len(texts), pa.py_buffer(offsets), pa.py_buffer(digits), bitmap)
    try:
        numbers = integers.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    extremes = pc.min_max(numbers)
    limit = 10**arrow_type.precision
    if not -limit < extremes["min"].as_py() <= extremes["max"].as_py() < limit:
        return None  # too many digits
    values = np.frombuffer(numbers.buffers()[1], np.int64)[: len(numbers)]
    unscaled = np.empty((len(numbers), 2), np.int64)
    unscaled[:, 0] = values
    np.right_shift(values, 63, out=unscaled[:, 1])
    return pa.Array.from_buffers(arrow_type, len(numbers), [numbers.buffers()[0], pa.py_buffer(unscaled)])


NO_PATH = "SET LOCAL search_path TO ''"
CLEARED = "(SELECT pg_catalog.set_config('search_path', '', true)) OPERATOR(pg_catalog.=) ''"
"""A condition that holds, and that the server evaluates once, after planning and before it reads."""

UNRESOLVED = ("42883", "42P01", "42704", "42703", "3F000")
"""SQLSTATEs of names that were not found: functions, relations, other objects, columns and schemas."""

# pg_catalog comes first, so nothing hides its operators. Then come the path that this user has elsewhere, the table's
# schema, and all others, because the path that an application uses is not known.
_PATH = """
SELECT pg_catalog.concat_ws(', ', 'pg_catalog', nullif(nullif(s.reset_val, ''), '""'), (
    SELECT string_agg(quote_ident(n.nspname), ', ' ORDER BY n.nspname <> {schema}, n.nspname) FROM pg_namespace n
    WHERE n.nspname !~ '^pg_' AND n.nspname <> 'information_schema')) AS path
FROM pg_settings s WHERE s.name = 'search_path'
"""


def reading_path(session: PostgresqlConnection, schema: str) -> str:
    """Return the statement that sets the path for planning a query of a table in a schema."""
    [row] = session.rows(_PATH.format(schema=literal(schema)), "reading the search_path")
    return f"SELECT pg_catalog.set_config('search_path', {literal(row['path'])}, true)"


_FIRST_DAY = -2440588  # 4714-11-24 BC, Julian day 0: PostgreSQL's first date
_FIRST_MICROSECOND = _FIRST_DAY * 86_400_000_000
_DAY_MICROSECONDS = 86_400_000_000


def shaped(batches: Iterable[pa.RecordBatch], table: Table) -> Iterator[pa.RecordBatch]:
    """Yield batches of exactly the table's schema, whose columns share the driver's buffers if they have their type."""
    schema = table.arrow_schema()
    for batch in batches:
        if not table.columns:  # a table without columns can have rows
            yield batch.replace_schema_metadata(None)
            continue
        arrays = [
            _shaped_column(array, field.type, table, column)
            for array, field, column in zip(batch.columns, schema, table.columns, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _shaped_column(array: pa.Array, arrow_type: pa.DataType, table: Table, column: Column) -> pa.Array:
    try:
        array = received(array, arrow_type)
        unfit = _out_of_range(array)
    except pa.ArrowInvalid:
        if not pa.types.is_decimal(arrow_type):
            raise
        texts = received(array, pa.string())
        odd = texts.filter(pc.is_in(texts, pa.array(["NaN", "Infinity", "-Infinity"])))
        unfit = str(odd[0]) if len(odd) else "a number of another precision"
    if unfit:
        raise unfit_value(table, column, unfit)
    return array


def _out_of_range(array: pa.Array) -> str | None:
    """Return the kind of values in an array that Arrow cannot represent, or None."""
    if pa.types.is_timestamp(array.type):
        least = pc.min(array.view(pa.int64())).as_py()
        if least is not None and least < _FIRST_MICROSECOND:
            return "infinity, -infinity or a time after the year 294246"
    elif pa.types.is_date32(array.type):
        least = pc.min(array.view(pa.int32())).as_py()
        if least is not None and least < _FIRST_DAY:
            return "infinity or -infinity"
    elif pa.types.is_time64(array.type):
        greatest = pc.max(array.view(pa.int64())).as_py()
        if greatest is not None and greatest >= _DAY_MICROSECONDS:
            return "24:00:00"
    return None
