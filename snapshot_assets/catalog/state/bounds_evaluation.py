"""Evaluates a predicate on the statistics of many files at once: which answers are possible for the rows of each file.

An answer counts as possible unless statistics exclude it, because bounds may be wider than the values, or unknown. So a
skipped file certainly holds no matching row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from snapshot_assets.catalog.state.file_columns import Bounds, ByKind
from snapshot_assets.format.predicates import And, Comparison, IsIn, IsNull, Literal, Not, Operator, Or, Predicate

MAX_VALUES = 16
"""For longer lists, only the range from the least to the greatest value is compared with bounds."""

_EQUAL, _LESS, _GREATER = (Operator.EQUAL, Operator.LESS, Operator.GREATER)
_TRUE_IF = {  # how a value compares with the literal if the answer is true
    Operator.EQUAL: (_EQUAL,),
    Operator.NOT_EQUAL: (_LESS, _GREATER),
    Operator.LESS: (_LESS,),
    Operator.LESS_EQUAL: (_LESS, _EQUAL),
    Operator.GREATER: (_GREATER,),
    Operator.GREATER_EQUAL: (_GREATER, _EQUAL),
}


@dataclass(frozen=True)
class _Answers:
    """The answers that a predicate may give for some row, file by file; `unknown` is SQL's NULL."""

    true: np.ndarray
    false: np.ndarray
    unknown: np.ndarray


@dataclass(frozen=True)
class BoundsEvaluation:
    """Evaluates predicates on the statistics of some files.

    Attributes:
        rows: Number of rows of each file.
        schema_id: The schema that each file was written with.
        bounds: The statistics of the files.
        written: The table's columns by schema id; no columns for a schema without the table.
    """

    rows: np.ndarray
    schema_id: np.ndarray
    bounds: Bounds
    written: Mapping[int, pa.Schema]
    _columns: dict[str, _Column] = field(default_factory=dict)

    def answers(self, predicate: Predicate) -> _Answers:
        """Return the possible answers of a predicate."""
        match predicate:
            case Comparison():
                return self._comparison(predicate)
            case IsIn():
                return self._is_in(predicate)
            case IsNull():
                column = self._column(predicate.column)
                return _Answers(column.null, column.value, np.zeros_like(column.null))
            case Not():
                inner = self.answers(predicate.predicate)
                return _Answers(inner.false, inner.true, inner.unknown)
            case And():
                return reduce(_both, map(self.answers, predicate.predicates), self._constant(True))
            case Or():
                return reduce(_either, map(self.answers, predicate.predicates), self._constant(False))

    def _constant(self, answer: bool) -> _Answers:
        yes, no = self.rows > 0, np.zeros(len(self.rows), dtype=bool)
        return _Answers(yes if answer else no, no if answer else yes, no)

    def _comparison(self, predicate: Comparison) -> _Answers:
        column = self._column(predicate.column)
        order = column.order(predicate.value)
        wanted = _TRUE_IF[predicate.operator]
        true = [possible for comparison, possible in order.items() if comparison in wanted]
        false = [possible for comparison, possible in order.items() if comparison not in wanted]
        return _Answers(reduce(np.logical_or, true), reduce(np.logical_or, false), column.null)

    def _is_in(self, predicate: IsIn) -> _Answers:
        column = self._column(predicate.column)
        if len(predicate.values) > MAX_VALUES:
            least, greatest = _range(predicate.values)
            above, below = column.order(least), column.order(greatest)
            within = (above[_EQUAL] | above[_GREATER]) & (below[_EQUAL] | below[_LESS])
            return _Answers(within, column.value, column.null)
        orders = [column.order(value) for value in predicate.values]
        true = reduce(np.logical_or, (order[_EQUAL] for order in orders))
        false = reduce(np.logical_and, (order[_LESS] | order[_GREATER] for order in orders))
        return _Answers(true, false, column.null)

    def _column(self, name: str) -> _Column:
        if name not in self._columns:
            self._columns[name] = self._read(name)
        return self._columns[name]

    def _read(self, name: str) -> _Column:
        by_type: dict[pa.DataType | None, list[int]] = {}
        for number, schema in self.written.items():
            kind = schema.field(name).type if name in schema.names else None
            by_type.setdefault(kind, []).append(number)
        places = {kind: np.isin(self.schema_id, numbers) for kind, numbers in by_type.items()}
        nulls = np.full(len(self.rows), -1, dtype=np.int64)
        bounds = self.bounds.of_or_none(name)
        for table in bounds.values():
            nulls[table["file"].to_numpy()] = pc.fill_null(table["null_count"], -1).to_numpy()
        lacking = places.pop(None, np.zeros(len(self.rows), dtype=bool))
        nulls[lacking] = self.rows[lacking]
        typed = {kind: each for kind, each in places.items() if kind is not None}
        return _Column(nulls != 0, (nulls < 0) | (nulls < self.rows), typed, bounds)


def _both(one: _Answers, other: _Answers) -> _Answers:
    unknown = (one.unknown & (other.unknown | other.true)) | (other.unknown & (one.unknown | one.true))
    return _Answers(one.true & other.true, one.false | other.false, unknown)


def _either(one: _Answers, other: _Answers) -> _Answers:
    unknown = (one.unknown & (other.unknown | other.false)) | (other.unknown & (one.unknown | one.false))
    return _Answers(one.true | other.true, one.false & other.false, unknown)


def _range(values: Sequence[Literal]) -> tuple[Literal, Literal]:
    """Return the least and the greatest of some values of one type; a NaN is the greatest."""
    decimal = pa.types.is_decimal(values[0].arrow_type)

    def key(literal: Literal) -> tuple[bool, Any]:
        value = literal.value
        return value != value, literal.unscaled if decimal else value.encode() if isinstance(value, str) else value

    ordered = sorted(values, key=key)
    return ordered[0], ordered[-1]


@dataclass(frozen=True)
class _Column:
    """One column: whether each file may hold a NULL or a value in it, the files that have it by type, its bounds."""

    null: np.ndarray
    value: np.ndarray
    places: Mapping[pa.DataType, np.ndarray]
    bounds: ByKind

    def order(self, literal: Literal) -> dict[Operator, np.ndarray]:
        """Return for each file whether some value may be less than, equal to, or greater than a literal."""
        less, equal, greater = self.value.copy(), self.value.copy(), self.value.copy()
        for kind, places in self.places.items():
            if pa.types.is_floating(kind) and kind == literal.arrow_type and literal.value != literal.value:
                greater[places] = False
                continue
            for physical, wanted in _physical(literal, kind):
                if physical in self.bounds:
                    table = self.bounds[physical]
                    files = table["file"].to_numpy()
                    here = np.flatnonzero(places[files])
                    files, table = files[here], table.take(pa.array(here))
                    least, known_least = _signs(table["minimum"], kind, wanted)
                    greatest, known_greatest = _signs(table["maximum"], kind, wanted)
                    less[files] &= ~known_least | (least < 0)
                    greater[files] &= ~known_greatest | (greatest > 0)
                    equal[files] &= (~known_least | (least <= 0)) & (~known_greatest | (greatest >= 0))
            if pa.types.is_floating(kind):
                greater[places] = self.value[places]  # bounds do not cover NaN
        return {_LESS: less, _EQUAL: equal, _GREATER: greater}


def _physical(literal: Literal, kind: pa.DataType) -> Iterator[tuple[str, Any]]:
    """Yield a literal's value as the bounds of a column hold it: the kind of bounds, and the value.

    Yields nothing if the file's values are converted before they are compared, except between integer types.
    """
    wanted, value = literal.arrow_type, literal.value
    if kind != wanted:
        if pa.types.is_integer(kind) and pa.types.is_integer(wanted):
            yield "integer", value
    elif pa.types.is_decimal(kind):
        yield "integer", literal.unscaled
        yield "binary", literal.unscaled
    elif isinstance(value, str):
        yield "binary", value.encode()
    elif isinstance(value, int) and (pa.types.is_timestamp(kind) or pa.types.is_time(kind)):
        yield "integer", value * 1000 if kind.unit == "s" else value  # Parquet has no unit of seconds
    else:
        yield _KINDS[type(value)], value


_KINDS = {bool: "boolean", int: "integer", float: "floating", bytes: "binary"}


def _signs(bounds: pa.ChunkedArray, kind: pa.DataType, wanted: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the sign of each bound minus a value (of a decimal, its unscaled integer), and whether it is known."""
    known = bounds.is_valid().to_numpy()
    if pa.types.is_binary(bounds.type):
        if pa.types.is_decimal(kind):
            return _decimal_signs(bounds, kind, wanted)
        scalar = pa.scalar(wanted, bounds.type)
        above, below = (pc.fill_null(compare(bounds, scalar), False).to_numpy() for compare in (pc.greater, pc.less))
        return above.astype(np.int8) - below, known
    numbers = pc.fill_null(bounds, False if pa.types.is_boolean(bounds.type) else 0).to_numpy()
    if pa.types.is_unsigned_integer(kind):  # Parquet stores them in its signed types
        numbers = numbers.view(np.uint64) & np.uint64((1 << kind.bit_width) - 1)
    return (numbers > wanted).astype(np.int8) - (numbers < wanted), known & (numbers == numbers)


def _decimal_signs(bounds: pa.ChunkedArray, kind: pa.DataType, wanted: int) -> tuple[np.ndarray, np.ndarray]:
    """Compare decimals: big-endian two's complement numbers of the width that the precision requires."""
    width = next(size for size in range(1, 33) if 10**kind.precision <= 1 << (8 * size - 1))
    known = pc.fill_null(pc.equal(pc.binary_length(bounds), width), False).to_numpy()
    numbers = [int.from_bytes(each, "big", signed=True) for each in bounds.filter(pa.array(known)).to_pylist()]
    signs = np.zeros(len(bounds), dtype=np.int8)
    signs[known] = [(number > wanted) - (number < wanted) for number in numbers]
    return signs, known
