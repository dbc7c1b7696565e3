"""Reads a table's Parquet files by Spark's own reader, where that returns the same rows as `files.read`.

Spark prunes columns, counts from footers, and pushes filters down; a Python source gets none of these. Every rule here
is about rows that would otherwise be lost or differ: those reads are left to Python.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import eq, ge, gt, le, lt, ne

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from snapshot_assets.catalog.schemas import read_schemas
from snapshot_assets.catalog.state.file_pruning import written_schemas
from snapshot_assets.databases.spark.types import batch_schema, identifier, spark_schema
from snapshot_assets.engine.reading.planning import TableRead
from snapshot_assets.engine.session import spark_errors
from snapshot_assets.engine.time_range import TimeFilter
from snapshot_assets.format.arrow_types import wider_type
from snapshot_assets.format.header import format_of
from snapshot_assets.format.predicates import (
    And,
    Comparison,
    IsIn,
    IsNull,
    Literal,
    Not,
    Operator,
    Or,
    Predicate,
    columns_of,
)

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
_MICROSECOND = timedelta(microseconds=1)
_MOST_VALUES = 500  # Spark plans and compiles each value; Python's tasks do not


class InexpressibleError(Exception):
    """Spark has no expression that selects the same rows; says why."""


def spark_column(name: str) -> Column:
    """Return a column by its name, whatever characters that has."""
    return F.col(identifier(name))


def _in_range(time: str, kind: pa.DataType, time_range: TimeFilter) -> Column:
    """Return whether a time, of a type in which Spark takes it, lies in a range.

    Raises:
        InexpressibleError: The column has no zone, and the snapshot's zone is not UTC, so its clocks may jump.
    """
    if not pa.types.is_timestamp(kind) or (kind.tz is None and time_range.zone != "UTC"):
        raise InexpressibleError(f"{kind} in the zone {time_range.zone} is compared as instants")
    bounds = ((time_range.start, ge), (time_range.end, lt))
    return _all(
        compare(
            spark_column(time), _moment((bound.astimezone(UTC).replace(tzinfo=None) - _EPOCH) // _MICROSECOND, kind)
        )
        for bound, compare in bounds
        if bound is not None
    )


def _column(predicate: Predicate) -> Column:
    """Return a predicate's value: true, false or NULL.

    Raises:
        InexpressibleError: A literal has no exact form in Spark.
    """
    match predicate:
        case Comparison():
            return _COMPARE[predicate.operator](spark_column(predicate.column), _literal(predicate.value))
        case IsIn():
            if len(predicate.values) > _MOST_VALUES or pa.types.is_floating(predicate.values[0].arrow_type):
                raise InexpressibleError("a list of many values, or of floats, whose zeros must be equal")
            return spark_column(predicate.column).isin(*map(_literal, predicate.values))
        case IsNull():
            return spark_column(predicate.column).isNull()
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


_OPTIONS = {
    # The session's settings may be others, which would change values, or leave rows out.
    "datetimeRebaseMode": "CORRECTED",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "mergeSchema": "false",
    "recursiveFileLookup": "true",  # no columns from the names of folders
}
_PATTERN = frozenset("{}[]*?\\")
_HIDDEN = ("_", ".")
_Way = tuple[bool, tuple[Predicate, ...]]
"""Whether the time range filters rows, and the predicates of deleted rows."""


@dataclass(frozen=True)
class _Group:
    """Files that are read in one way: their paths, and what is true for the rows that are returned."""

    paths: Sequence[str]
    conditions: Sequence[Column]


@dataclass(frozen=True)
class NativeRead:
    """A read that Spark's own reader can do.

    Attributes:
        schema: The columns to return.
        wide: These, and those that conditions need.
    """

    schema: pa.Schema
    wide: pa.Schema
    groups: Sequence[_Group]

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the DataFrame.

        Raises:
            InexpressibleError: It would not have all files, or other types than the read.
            TaskFailedError, TaskLostError: Spark does not reach the files.
        """
        wanted = spark_schema(self.schema)
        if not self.groups:
            return spark.createDataFrame([], wanted)
        with spark_errors():
            rows = [self._rows(spark, group) for group in self.groups]
            frame = reduce(lambda one, other: one.unionAll(other), rows)  # by the session's own class
            if frame.schema != wanted:
                raise InexpressibleError(f"Spark reads {frame.schema.simpleString()}")
            if len(frame.inputFiles()) != sum(len(group.paths) for group in self.groups):
                raise InexpressibleError("Spark's reader leaves out some of the files")
        return frame

    def _rows(self, spark: SparkSession, group: _Group) -> DataFrame:
        frame = spark.read.schema(spark_schema(self.wide)).options(**_OPTIONS).parquet(*group.paths)
        for condition in group.conditions:
            frame = frame.where(condition)
        return frame if self.wide.names == self.schema.names else frame.select(*map(spark_column, self.schema.names))


def plan_native(read: TableRead, root: str) -> NativeRead:
    """Plan to read a table by Spark's own reader, below a root in Hadoop's form, not percent-encoded.

    Raises:
        InexpressibleError: Spark's reader might return other rows or types; says why.
    """
    if format_of(read.state.header).is_text:
        raise InexpressibleError("text files need the snapshot's own reader")
    ways: dict[_Way, list[str]] = {}
    for part in read.parts:
        ways.setdefault((part.cut, part.deleted), []).append(f"{root}/{part.file.path}")
        _check_path(ways[part.cut, part.deleted][-1])
    wide = _with_filtered(read, ways)
    if read.parts:
        _check_columns(read, wide)
    groups, time = [], read.table.time_index
    for (cut, deleted), paths in ways.items():
        conditions = []
        if cut:
            assert read.time_range is not None
            assert time is not None
            conditions.append(_in_range(time, wide.field(time).type, read.time_range))
        conditions += [~F.coalesce(_column(predicate), F.lit(False)) for predicate in deleted]
        groups.append(_Group(paths, conditions))
    return NativeRead(batch_schema(read.schema), wide, groups)


def _with_filtered(read: TableRead, ways: Iterable[_Way]) -> pa.Schema:
    """Return the columns to read: those of the read, then those that filters need."""
    needed: dict[str, pa.DataType | None] = {}
    own = {field.name: field.type for field in batch_schema(read.table.arrow_schema())}
    for cut, deleted in ways:
        if cut and read.table.time_index is not None:
            needed.setdefault(read.table.time_index, None)
        for predicate in deleted:
            needed |= {name: kind or needed.get(name) for name, kind in columns_of(predicate).items()}
    fields = {field.name: field for field in batch_schema(read.schema)}
    for name, kind in needed.items():
        compared = own.get(name) if kind is None else batch_schema([pa.field(name, kind)]).field(0).type
        if compared is None or compared != own.get(name, compared):
            raise InexpressibleError(f"column {name!r} is compared in another type than it has now")
        fields.setdefault(name, pa.field(name, compared))
    return pa.schema(list(fields.values()))


def _check_columns(read: TableRead, schema: pa.Schema) -> None:
    """Refuse columns that Spark's reader would confuse, or whose values it would convert in another way."""
    documents = read_schemas(read.store, read.state)
    every = written_schemas(documents, read.table.table_name)
    used = {part.file.schema_id for part in read.parts}
    for written in (each for number, each in every.items() if number in used):
        _check_names([*written.names, *(name for name in schema.names if name not in written.names)])
        for field in schema:
            if field.name in written.names:
                _check_type(field.name, written.field(field.name).type, field.type)
    if not used <= every.keys() or not schema.names:
        raise InexpressibleError("files have no columns")


def _check_names(names: Iterable[str]) -> None:
    """Refuse names that differ only by case, which Spark ignores unless the session says otherwise, and no name."""
    twice = [name for name, count in Counter(name.lower() for name in names).items() if count > 1 or not name]
    if twice:
        raise InexpressibleError(f"columns {twice} are ambiguous for Spark")


def _check_type(name: str, written: pa.DataType, wanted: pa.DataType) -> None:
    if reason := next(_unlike(written), None):
        raise InexpressibleError(f"column {name!r}: {reason}")
    nearest = batch_schema([pa.field(name, written)]).field(0).type
    if nearest != wanted and not (pa.types.is_primitive(wanted) and wider_type(nearest, wanted) == wanted):
        raise InexpressibleError(f"column {name!r} was written as {written}")


def _unlike(kind: pa.DataType) -> Iterator[str]:
    """Yield why Spark reads values of a type otherwise than `files.read` does, or not at all."""
    is_ = pa.types
    if is_.is_struct(kind):
        _check_names(member.name for member in kind)
        for member in kind:
            yield from _unlike(member.type)
    elif is_.is_map(kind):
        yield from _unlike(kind.key_type)
        yield from _unlike(kind.item_type)
    elif is_.is_list(kind):
        yield from _unlike(kind.value_type)
    elif is_.is_time(kind) or is_.is_decimal256(kind) or is_.is_float16(kind) or is_.is_null(kind):
        yield f"{kind} has no equal in Spark"
    elif is_.is_decimal(kind) and not 0 <= kind.scale <= kind.precision:
        yield f"{kind} has a scale that Spark lacks"
    elif is_.is_duration(kind) and kind.unit != "us":
        yield f"{kind} is a number for Spark"
    elif is_.is_timestamp(kind) and kind.unit == "ns":
        yield f"{kind} is finer than Spark's times"


def _check_path(path: str) -> None:
    """Refuse a path that Spark takes for a pattern, and names that it takes for hidden files, which it leaves out."""
    name = path.rpartition("/")[2]
    if _PATTERN.intersection(path) or name.startswith(_HIDDEN) or name.endswith("._COPYING_"):
        raise InexpressibleError(f"Spark does not open {path} by its name")
