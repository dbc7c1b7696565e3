"""Expresses predicates of tombstones, and time ranges, as Spark columns with the same rows as `files.batches`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from operator import eq, ge, gt, le, lt, ne

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from snapshot_assets.databases.spark.sql import identifier
from snapshot_assets.databases.spark.types import batch_schema, spark_schema
from snapshot_assets.engine.time_range import TimeFilter
from snapshot_assets.format.predicates import And, Comparison, IsIn, IsNull, Literal, Not, Operator, Or, Predicate

_COMPARE: Mapping[Operator, Callable[[Column, Column], Column]] = {
    Operator.EQUAL: eq,
    Operator.NOT_EQUAL: ne,
    Operator.LESS: lt,
    Operator.LESS_EQUAL: le,
    Operator.GREATER: gt,
    Operator.GREATER_EQUAL: ge,
}
_MICROS = {"s": 10**6, "ms": 10**3, "us": 1}
_EPOCH = datetime(1970, 1, 1)
_MOST_VALUES = 500  # Spark plans and compiles each value; Python's tasks do not


class InexpressibleError(Exception):
    """Spark has no expression that selects the same rows; says why."""


def named(name: str) -> Column:
    """Return a column by its name, whatever characters that has."""
    return F.col(identifier(name))


def true_for(predicate: Predicate) -> Column:
    """Return whether a predicate is true, as a column that is never NULL.

    Raises:
        InexpressibleError: A literal has no exact form in Spark.
    """
    return F.coalesce(_column(predicate), F.lit(False))


def in_range(time: str, kind: pa.DataType, time_range: TimeFilter) -> Column:
    """Return whether a time lies in a range.

    Args:
        time: The column's name.
        kind: Its type in the batches that Spark takes.
        time_range: The range.

    Raises:
        InexpressibleError: The column has no zone, and the snapshot's zone is not UTC, so its clocks may jump.
    """
    if not pa.types.is_timestamp(kind) or (kind.tz is None and time_range.zone != "UTC"):
        raise InexpressibleError(f"{kind} in the zone {time_range.zone} is compared as instants")
    bounds = ((time_range.start, ge), (time_range.end, lt))
    compared = [compare(named(time), _moment(_micros(bound), kind)) for bound, compare in bounds if bound is not None]
    return _all(compared)


def _column(predicate: Predicate) -> Column:
    match predicate:
        case Comparison():
            return _COMPARE[predicate.operator](named(predicate.column), _literal(predicate.value))
        case IsIn():
            if len(predicate.values) > _MOST_VALUES or pa.types.is_floating(predicate.values[0].arrow_type):
                raise InexpressibleError("a list of many values, or of floats, whose zeros must be equal")
            return named(predicate.column).isin(*map(_literal, predicate.values))
        case IsNull():
            return named(predicate.column).isNull()
        case Not():
            return ~_column(predicate.predicate)
        case And():
            return _all(map(_column, predicate.predicates))
        case Or():
            return ~_all(~_column(part) for part in predicate.predicates)


def _all(conditions: Iterable[Column]) -> Column:
    every = F.lit(True)
    for condition in conditions:
        every = every & condition
    return every


def _literal(literal: Literal) -> Column:
    """Return a literal in the type of the column that Spark reads."""
    kind, value = literal.arrow_type, literal.value
    is_ = pa.types
    if is_.is_timestamp(kind) and kind.unit in _MICROS:
        return _moment(int(value) * _MICROS[kind.unit], kind)
    if is_.is_date32(kind):
        return F.date_from_unix_date(F.lit(value).cast("int"))
    if isinstance(value, bytes):
        return F.unhex(F.lit(value.hex()))
    if is_.is_temporal(kind) or is_.is_decimal256(kind) or is_.is_float16(kind):
        raise InexpressibleError(f"values of {kind}")
    own = spark_schema(batch_schema([pa.field("value", kind)]))[0].dataType
    exact = str(value) if is_.is_decimal(kind) or is_.is_uint64(kind) else value
    return F.lit(exact).cast(own)


def _moment(micros: int, kind: pa.DataType) -> Column:
    if abs(micros) >= 1 << 63:
        raise InexpressibleError("a time outside Spark's")
    if kind.tz is not None:
        return F.timestamp_micros(F.lit(micros).cast("bigint"))
    try:
        return F.lit((_EPOCH + timedelta(microseconds=micros)).isoformat()).cast("timestamp_ntz")
    except OverflowError as error:
        raise InexpressibleError("a time without a zone outside the years 1 to 9999") from error


def _micros(moment: datetime) -> int:
    return (moment.astimezone(UTC).replace(tzinfo=None) - _EPOCH) // timedelta(microseconds=1)
