"""Evaluates predicates on Arrow batches with SQL's three-valued logic: true, false, NULL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from snapshot_assets.format.literal_values import scalar_of
from snapshot_assets.format.literals import Literal
from snapshot_assets.format.predicates import And, Comparison, IsIn, IsNull, Not, Operator, Or, Predicate

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

    Args:
        predicate: The predicate.
        columns: The columns that it uses, in the types of its literals; see `predicates.columns_of`.
        rows: Number of rows.
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
