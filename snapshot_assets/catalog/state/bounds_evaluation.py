"""What a predicate can answer for the rows of each of many files, read off their statistics, one column at a time.

An answer that is not excluded counts as possible: bounds may be wider than the values, and of some files nothing is
known. So a file that is passed over holds no matching row for certain, and never the other way round.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from snapshot_assets.catalog.state.column_bounds import Bounds, ByKind
from snapshot_assets.format.literals import Literal
from snapshot_assets.format.predicates import And, Comparison, IsIn, IsNull, Not, Operator, Or, Predicate

MAX_VALUES = 16
"""Of a longer list, only the span from the least to the greatest value is compared with bounds."""

_EQUAL, _LESS, _GREATER = (Operator.EQUAL, Operator.LESS, Operator.GREATER)
_TRUE = {  # what a value may be, compared with the literal, for the answer to be true
    Operator.EQUAL: (_EQUAL,),
    Operator.NOT_EQUAL: (_LESS, _GREATER),
    Operator.LESS: (_LESS,),
    Operator.LESS_EQUAL: (_LESS, _EQUAL),
    Operator.GREATER: (_GREATER,),
    Operator.GREATER_EQUAL: (_GREATER, _EQUAL),
}


@dataclass(frozen=True)
class Outcomes:
    """Which answers are possible, file by file.

    Attributes:
        true: Whether a predicate may be true of some row.
        false: Whether it may be false of some row.
        unknown: Whether its answer may be not known for some row.
    """

    true: np.ndarray
    false: np.ndarray
    unknown: np.ndarray


@dataclass(frozen=True)
class Files:
    """The files that a predicate is asked of.

    Attributes:
        rows: How many rows each has.
        schema_id: With which schema each was written.
        bounds: Their statistics.
        written: The columns that the table had in a schema, by id; none for a schema that lacks the table.
    """

    rows: np.ndarray
    schema_id: np.ndarray
    bounds: Bounds
    written: Mapping[int, pa.Schema]
    _columns: dict[str, _Column] = field(default_factory=dict)

    def outcomes(self, predicate: Predicate) -> Outcomes:
        """Return what a predicate can answer."""
        match predicate:
            case Comparison():
                return self._comparison(predicate)
            case IsIn():
                return self._is_in(predicate)
            case IsNull():
                column = self._column(predicate.column)
                return Outcomes(column.null, column.value, np.zeros_like(column.null))
            case Not():
                inner = self.outcomes(predicate.predicate)
                return Outcomes(inner.false, inner.true, inner.unknown)
            case And():
                return reduce(_both, map(self.outcomes, predicate.predicates), self._always(True))
            case Or():
                return reduce(_either, map(self.outcomes, predicate.predicates), self._always(False))

    def _always(self, answer: bool) -> Outcomes:
        yes, no = self.rows > 0, np.zeros(len(self.rows), dtype=bool)
        return Outcomes(yes if answer else no, no if answer else yes, no)

    def _comparison(self, predicate: Comparison) -> Outcomes:
        column = self._column(predicate.column)
        order = column.order(predicate.value)
        true = [order[how] for how in _TRUE[predicate.operator]]
        false = [order[how] for how in order if how not in _TRUE[predicate.operator]]
        return Outcomes(reduce(np.logical_or, true), reduce(np.logical_or, false), column.null)

    def _is_in(self, predicate: IsIn) -> Outcomes:
        column = self._column(predicate.column)
        if len(predicate.values) > MAX_VALUES:
            least, greatest = _span(predicate.values)
            above, below = column.order(least), column.order(greatest)
            within = (above[_EQUAL] | above[_GREATER]) & (below[_EQUAL] | below[_LESS])
            return Outcomes(within, column.value, column.null)
        orders = [column.order(value) for value in predicate.values]
        true = reduce(np.logical_or, (order[_EQUAL] for order in orders))
        false = reduce(np.logical_and, (order[_LESS] | order[_GREATER] for order in orders))
        return Outcomes(true, false, column.null)

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
        bounds = self.bounds.known(name)
        for table in bounds.values():
            nulls[table["file"].to_numpy()] = pc.fill_null(table["null_count"], -1).to_numpy()
        lacking = places.pop(None, np.zeros(len(self.rows), dtype=bool))
        nulls[lacking] = self.rows[lacking]
        typed = {kind: each for kind, each in places.items() if kind is not None}
        return _Column(nulls != 0, (nulls < 0) | (nulls < self.rows), typed, bounds)


def _both(one: Outcomes, other: Outcomes) -> Outcomes:
    unknown = (one.unknown & (other.unknown | other.true)) | (other.unknown & (one.unknown | one.true))
    return Outcomes(one.true & other.true, one.false | other.false, unknown)


def _either(one: Outcomes, other: Outcomes) -> Outcomes:
    unknown = (one.unknown & (other.unknown | other.false)) | (other.unknown & (one.unknown | one.false))
    return Outcomes(one.true | other.true, one.false & other.false, unknown)


def _span(values: Sequence[Literal]) -> tuple[Literal, Literal]:
    """Return the least and the greatest of several values of one type; a NaN is the greatest."""
    decimal = pa.types.is_decimal(values[0].arrow_type)

    def key(literal: Literal) -> tuple[bool, Any]:
        value = literal.value
        return value != value, literal.unscaled if decimal else value.encode() if isinstance(value, str) else value

    ordered = sorted(values, key=key)
    return ordered[0], ordered[-1]


@dataclass(frozen=True)
class _Column:
    """One column of the files.

    Attributes:
        null: Whether a file may hold a NULL there.
        value: Whether a file may hold a value there.
        places: Which files have it, by type.
        bounds: Its statistics.
    """

    null: np.ndarray
    value: np.ndarray
    places: Mapping[pa.DataType, np.ndarray]
    bounds: ByKind

    def order(self, literal: Literal) -> dict[Operator, np.ndarray]:
        """Tell of each file whether some value of it may be less than, equal to, or greater than a literal."""
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
                greater[places] = self.value[places]  # a NaN, which lies outside the bounds
        return {_LESS: less, _EQUAL: equal, _GREATER: greater}


def _physical(literal: Literal, kind: pa.DataType) -> Iterator[tuple[str, Any]]:
    """Yield how bounds of a column of some type hold a literal's value: the kind of bounds, and the value.

    Nothing where the values of the file are converted before they are compared, but for whole numbers, which stay what
    they are.
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
        yield "integer", value * 1000 if kind.unit == "s" else value  # Parquet has no seconds
    else:
        yield _KINDS[type(value)], value


_KINDS = {bool: "boolean", int: "integer", float: "floating", bytes: "binary"}


def _signs(bounds: pa.ChunkedArray, kind: pa.DataType, wanted: Any) -> tuple[np.ndarray, np.ndarray]:
    """Compare bounds with a value.

    Args:
        bounds: Least or greatest values as Parquet holds them.
        kind: The column's type in the files.
        wanted: The value, a decimal's as a whole number.

    Returns:
        -1, 0 or 1 where a bound is less than, equal to or greater than the value, and whether the bound is known.
    """
    known = bounds.is_valid().to_numpy()
    if pa.types.is_binary(bounds.type):
        if pa.types.is_decimal(kind):
            return _decimal_signs(bounds, kind, wanted)
        scalar = pa.scalar(wanted, bounds.type)
        above, below = (pc.fill_null(compare(bounds, scalar), False).to_numpy() for compare in (pc.greater, pc.less))
        return above.astype(np.int8) - below, known
    numbers = pc.fill_null(bounds, False if pa.types.is_boolean(bounds.type) else 0).to_numpy()
    if pa.types.is_unsigned_integer(kind):  # Parquet keeps them in its signed types
        numbers = numbers.view(np.uint64) & np.uint64((1 << kind.bit_width) - 1)
    return (numbers > wanted).astype(np.int8) - (numbers < wanted), known & (numbers == numbers)


def _decimal_signs(bounds: pa.ChunkedArray, kind: pa.DataType, wanted: int) -> tuple[np.ndarray, np.ndarray]:
    """Compare decimals, which are big-endian numbers in two's complement, each as wide as the precision asks for."""
    width = next(size for size in range(1, 33) if 10**kind.precision <= 1 << (8 * size - 1))
    known = pc.fill_null(pc.equal(pc.binary_length(bounds), width), False).to_numpy()
    signs = np.zeros(len(bounds), dtype=np.int8)
    signs[known] = _word_signs(_words(b"".join(bounds.filter(pa.array(known)).to_pylist()), width), wanted)
    return signs, known


def _words(numbers: bytes, width: int) -> np.ndarray:
    """Return numbers in rows of 64-bit words that compare like them, the first word first."""
    flat = np.frombuffer(numbers, dtype=np.uint8).reshape(-1, width)
    padded = np.zeros((len(flat), 32), dtype=np.uint8)
    padded[:, :-width] = np.where(flat[:, :1] & 0x80, 0xFF, 0)
    padded[:, -width:] = flat
    padded[:, 0] ^= 0x80
    return padded.view(">u8")


def _word_signs(words: np.ndarray, wanted: int) -> np.ndarray:
    signs = np.zeros(len(words), dtype=np.int8)
    for number, word in zip(words.T, _words(wanted.to_bytes(32, "big", signed=True), 32)[0], strict=True):
        signs = np.where(signs == 0, (number > word).astype(np.int8) - (number < word), signs)
    return signs
