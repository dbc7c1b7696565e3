"""Batches of rows, of whatever format: checks them before they are written, and conforms them after they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from snapshot_assets.databases.selection.columns import columnless_rows
from snapshot_assets.engine.time_range import in_zone
from snapshot_assets.errors import DatabaseError, DocumentError, LimitExceededError
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.literal_values import scalar_of
from snapshot_assets.format.name_texts import printed_name
from snapshot_assets.format.names import table_text
from snapshot_assets.format.predicates import And, Comparison, IsIn, IsNull, Literal, Not, Operator, Or, Predicate
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.units import counted

_COMPARE: dict[Operator, Callable[[pa.Array, pa.Scalar], pa.Array]] = {
    Operator.EQUAL: pc.equal,
    Operator.NOT_EQUAL: pc.not_equal,
    Operator.LESS: pc.less,
    Operator.LESS_EQUAL: pc.less_equal,
    Operator.GREATER: pc.greater,
    Operator.GREATER_EQUAL: pc.greater_equal,
}
_WITH_GREATER = (Operator.NOT_EQUAL, Operator.GREATER, Operator.GREATER_EQUAL)
_WITH_LESS = (Operator.NOT_EQUAL, Operator.LESS, Operator.LESS_EQUAL)
_WITH_EQUAL = (Operator.EQUAL, Operator.LESS_EQUAL, Operator.GREATER_EQUAL)


def true_rows(predicate: Predicate, columns: Mapping[str, pa.Array], rows: int) -> pa.BooleanArray:
    """Return for each row whether a predicate is true; NULL counts as false."""
    return pc.fill_null(evaluate(predicate, columns, rows), False)


def evaluate(predicate: Predicate, columns: Mapping[str, pa.Array], rows: int) -> pa.BooleanArray:
    """Return a predicate's value for each row: true, false or NULL.

    The columns have the types of its literals; see `predicates.columns_of`.
    """
    match predicate:
        case Comparison():
            return _compared(columns[predicate.column], predicate.operator, predicate.value)
        case IsIn():
            return _is_in(columns[predicate.column], predicate.values)
        case IsNull():
            return columns[predicate.column].is_null()
        case Not():
            return pc.invert(evaluate(predicate.predicate, columns, rows))
        case And():
            answers = [evaluate(part, columns, rows) for part in predicate.predicates]
            return reduce(pc.and_kleene, answers, pa.repeat(True, rows))
        case Or():
            answers = [evaluate(part, columns, rows) for part in predicate.predicates]
            return reduce(pc.or_kleene, answers, pa.repeat(False, rows))


def _compared(values: pa.Array, operator: Operator, literal: Literal) -> pa.Array:
    if not pa.types.is_floating(values.type):
        return _COMPARE[operator](values, scalar_of(literal))
    is_nan = pc.is_nan(values)  # NULL where the value is NULL
    if literal.value != literal.value:
        # NaN is the greatest number: every other number is less.
        equal = is_nan if operator in _WITH_EQUAL else pc.and_(is_nan, False)
        return pc.or_(equal, pc.invert(is_nan)) if operator in _WITH_LESS else equal
    compared = _COMPARE[operator](values, scalar_of(literal))
    return pc.or_(compared, is_nan) if operator in _WITH_GREATER else compared


def _is_in(values: pa.Array, literals: Sequence[Literal]) -> pa.Array:
    wanted = pa.array([scalar_of(literal) for literal in literals], values.type)
    if pa.types.is_floating(values.type):  # -0 equals 0
        zero = pa.scalar(0.0, values.type)
        values, wanted = pc.add(values, zero), pc.add(wanted, zero)
    is_in = pc.is_in(values, value_set=wanted)
    return pc.if_else(values.is_valid(), is_in, pa.scalar(None, pa.bool_()))


MAX_ALLOCATED_BYTES = 256 << 20
"""Most bytes that are allocated at once for rows of a file, which may be hostile."""


def checked(batches: Iterable[pa.RecordBatch], name: TableName, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Compare the batches' schema, and yield those with rows, without metadata of their source.

    Raises:
        DatabaseError: A batch has another schema, or rows without columns, which no data file can store.
    """
    for batch in batches:
        if not batch.schema.equals(schema):
            raise DatabaseError(
                f"A batch of {name} has the columns {_text(batch.schema)}; expected"
                f" {_text(schema)}. Extract the schema again: the table may have changed meanwhile.",
                table=table_text(name),
            )
        if batch.num_rows and not schema.names:
            raise columnless_rows(name)
        if batch.num_rows:
            yield batch.replace_schema_metadata(schema.metadata)


def _text(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}{'' if field.nullable else ' not null'}" for field in schema)


def pieces(batch: pa.RecordBatch, limit: int, rows: int | None = None) -> Iterator[pa.RecordBatch]:
    """Split a batch in halves until each is small enough: rows may differ in width by orders of magnitude.

    A piece has at most `limit` bytes in Arrow's memory, unless it is a single row, and at most `rows` rows.
    """
    if batch.num_rows == 1 or (batch.nbytes <= limit and (rows is None or batch.num_rows <= rows)):
        yield batch
        return
    half = batch.num_rows // 2
    yield from pieces(batch.slice(0, half), limit, rows)
    yield from pieces(batch.slice(half), limit, rows)


def visible(
    batch: pa.RecordBatch, filters: Sequence[tuple[Predicate, dict[str, pa.DataType | None]]], file: DataFile, zone: str
) -> pa.RecordBatch:
    """Return the rows that no tombstone deletes; columns are compared in the types of the predicates."""
    for predicate, kinds in filters:
        values = {name: _column(batch, name, kind, file, zone) for name, kind in kinds.items()}
        kept = pc.invert(true_rows(predicate, values, batch.num_rows))
        # Without columns all rows are equal, and Arrow's filter would lose them.
        batch = batch.filter(kept) if batch.num_columns else batch.slice(0, kept.true_count)
    return batch


def conformed(batch: pa.RecordBatch, schema: pa.Schema, file: DataFile, zone: str) -> pa.RecordBatch:
    """Return rows of a file in the given schema; see `read_batches`."""
    columns = [_column(batch, field.name, field.type, file, zone) for field in schema]
    if not columns:  # a table without columns still has rows
        return batch.select([])
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(batch: pa.RecordBatch, name: str, kind: pa.DataType | None, file: DataFile, zone: str) -> pa.Array:
    """Return a column in a type, or in its own for None; NULLs if the file lacks it."""
    place, rows = batch.schema.get_field_index(name), batch.num_rows
    if place < 0:
        kind = kind or pa.null()
        if pa.types.is_fixed_size_binary(kind) and rows * kind.byte_width > MAX_ALLOCATED_BYTES:
            raise LimitExceededError(
                f"{counted(rows, 'value')} of column {name!r}, a {kind}, which {file.path} lacks, take more"
                f" than the {MAX_ALLOCATED_BYTES:,} bytes that are allocated at once.",
                object=file.path,
            )
        return pa.nulls(rows, kind)
    array = batch.column(place)
    if kind is None or array.type == kind:
        return array
    try:
        return _zoned(array, kind, zone).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DocumentError(
            f"Column {printed_name(file.schema, file.table, name)} is {array.type} in {file.path}, and its values"
            f" cannot be read as {kind} without loss: {error}.",
            object=file.path,
            column=name,
        ) from error


def _zoned(array: pa.Array, wanted: pa.DataType, zone: str) -> pa.Array:
    """Return times with or without a zone, as wanted; Arrow's own cast would treat every time as UTC."""
    if not (pa.types.is_timestamp(array.type) and pa.types.is_timestamp(wanted)):
        return array
    if array.type.tz is None and wanted.tz is not None:
        return in_zone(array, zone)
    if array.type.tz is not None and wanted.tz is None:
        return pc.local_timestamp(array.cast(pa.timestamp(array.type.unit, zone)))
    return array
