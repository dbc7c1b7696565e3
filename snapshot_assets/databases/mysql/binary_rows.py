"""Values of rows in MySQL's binary protocol as Arrow arrays: NumPy finds the values of a column in all rows at once.

The protocol is that of the page "Binary Protocol Resultset Row" of MySQL's internals manual.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pymysql.constants import FIELD_TYPE, FLAG

_LONG = 0xFB  # from which on a value's first byte is no length, but says how many bytes have it
_WIDTHS = {0xFC: 2, 0xFD: 3, 0xFE: 8}
_NULL_BITS = 2  # before the first column's in the bits that say which values are NULL
SPARE = bytes(12)
"""Bytes behind the last row, and before the first one unless a packet's head is there: numbers are read also where a
row has none."""

_INTEGERS = {
    FIELD_TYPE.TINY: 1,
    FIELD_TYPE.SHORT: 2,
    FIELD_TYPE.YEAR: 2,
    FIELD_TYPE.INT24: 4,
    FIELD_TYPE.LONG: 4,
    FIELD_TYPE.LONGLONG: 8,
}
_FLOATS = {FIELD_TYPE.FLOAT: "<f4", FIELD_TYPE.DOUBLE: "<f8"}
_MOST_DIGITS = 18  # of the decimals that 64 bits hold
_WORD = 8  # bytes
_PAIRS = tuple(
    tuple(map(np.uint64, each))
    for each in (
        (0x0F0F0F0F0F0F0F0F, 10 << 8 | 1, 8),
        (0x00FF00FF00FF00FF, 100 << 16 | 1, 16),
        (0x0000FFFF0000FFFF, 10_000 << 32 | 1, 32),
    )
)
"""Masks, factors and shifts that make numbers of two, four and eight digits, of which the first is the lowest byte."""
_TIMES = (FIELD_TYPE.DATE, FIELD_TYPE.DATETIME, FIELD_TYPE.TIMESTAMP)
_DAYS_IN = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], np.int64)  # by month
_FIRST_DAY = -719_162  # 0001-01-01, in days since 1970

Numbers = npt.NDArray[np.int64]
Nulls = npt.NDArray[np.bool_] | None
"""Which values of a column are NULL; None if none is."""


class NoDateError(ValueError):
    """A date is none, such as 0000-00-00, or of the year 0.

    Attributes:
        column: Number of its column.
    """

    def __init__(self, column: int) -> None:
        self.column = column
        super().__init__(f"column {column} has a date that is none")


class Rows:
    """Rows whose values are read column by column.

    Args:
        payload: Bytes that have the rows, four or more before them, and `SPARE` behind them.
        starts: Where each row begins.
        fields: The columns, as the driver describes them.
    """

    def __init__(self, payload: bytes, starts: Sequence[int], fields: Sequence[Any]) -> None:
        self._payload, self._fields = payload, fields
        self._bytes = np.frombuffer(payload, np.uint8)
        bitmap = (len(fields) + _NULL_BITS + 7) // 8
        begins = np.array(starts, np.int64) + 1
        bits = np.unpackbits(self._bytes[begins[:, None] + np.arange(bitmap)], axis=1, bitorder="little")
        self._nulls = bits[:, _NULL_BITS:].astype(np.bool_)
        self._place = begins + bitmap  # of each row's value in the next column
        self._edges: list[Numbers] = []  # where the values of a column that has bytes begin, and end; by turns

    def columns(self) -> list[pa.Array]:
        """Return the columns; those that have bytes of any length are large binary.

        Raises:
            NoDateError: A date is none.
        """
        found = [self._column(number, field) for number, field in enumerate(self._fields)]
        if self._edges:
            edges = np.stack(self._edges, axis=1)
            # Large offsets, because a row may have more than 2 GiB.
            buffers = [None, pa.py_buffer(np.ascontiguousarray(edges)), pa.py_buffer(self._payload)]
            values = pa.Array.from_buffers(pa.large_binary(), edges.size - 1, buffers)
            rows = np.arange(len(edges), dtype=np.int64) * len(self._edges)
            wanted = iter(range(0, len(self._edges), 2))
            for number, column in enumerate(found):
                if column is None:
                    found[number] = values.take(pa.array(rows + next(wanted), mask=self._null(number)))
        return found

    def _null(self, number: int) -> Nulls:
        null = self._nulls[:, number]
        return null if null.any() else None

    def _column(self, number: int, field: Any) -> pa.Array | None:
        """Return a column, which is the next one; None for one of bytes, after noting where they are."""
        kind, null = field.type_code, self._null(number)
        if kind == FIELD_TYPE.NULL:
            return pa.nulls(len(self._place))
        if kind in _TIMES:
            return self._times(number, kind, null)
        if kind in _INTEGERS or kind in _FLOATS:
            sign = "u" if field.flags & FLAG.UNSIGNED else "i"
            values = self._at(0, _FLOATS.get(kind) or f"<{sign}{_INTEGERS[kind]}")
            self._skip(values.itemsize, null)
            return pa.array(values, mask=null)
        head, length = self._lengths(null)
        begin = self._place + head
        self._place = begin + length
        if kind == FIELD_TYPE.NEWDECIMAL and (decimals := self._decimals(field, begin, null)) is not None:
            return decimals
        self._edges += [begin, self._place]
        return None

    def _decimals(self, field: Any, begin: Numbers, null: Nulls) -> pa.Array | None:
        """Return the texts that end at the places as decimals; None for long ones, and those without a fixed point."""
        scale, unsigned = field.scale, bool(field.flags & FLAG.UNSIGNED)
        precision = field.length - (scale > 0) - (not unsigned)
        behind = scale + 1 if scale else 0  # with the point
        negative = self._bytes[begin] == ord("-")
        whole = self._place - begin - negative - behind
        if not 1 <= precision <= _MOST_DIGITS or scale > precision or whole.max() > max(precision - scale, 1):
            return None
        if scale and not ((self._place == begin) | ((whole > 0) & (self._at(-behind, "u1") == ord(".")))).all():
            return None
        values = self._number(whole, behind) * 10**scale + self._number(np.full_like(whole, scale), 0)
        values[negative] *= -1
        wide = np.stack((values, values >> 63), axis=1)  # of 128 bits, the lowest first
        known = None if null is None else pa.py_buffer(np.packbits(~null, bitorder="little"))
        return pa.Array.from_buffers(pa.decimal128(precision, scale), len(values), [known, pa.py_buffer(wide)])

    def _number(self, digits: Numbers, behind: int) -> Numbers:
        """Return the numbers of so many digits each that end some bytes before the places."""
        found = np.zeros(len(digits), np.int64)
        for done in range(0, int(digits.max()), _WORD):
            begin = np.maximum(self._place - behind - done - _WORD, 0)  # before the first byte is no digit
            others = (8 * (_WORD - np.clip(digits - done, 0, _WORD))).astype(np.uint64)  # bits, the lowest
            word = self._from("<u8", begin) >> others << others
            for mask, factor, bits in _PAIRS:
                word = (word & mask) * factor >> bits
            found += word.astype(np.int64) * 10**done
        return found

    def _at(self, offset: int, kind: str, among: npt.NDArray[Any] | slice = slice(None)) -> npt.NDArray[Any]:
        """Return the numbers of a NumPy type some bytes behind the places of some rows."""
        return self._from(kind, self._place[among] + offset)

    def _from(self, kind: str, begin: Numbers) -> npt.NDArray[Any]:
        count = len(self._payload) - np.dtype(kind).itemsize + 1
        return np.ndarray(count, kind, self._payload, strides=(1,))[begin]

    def _skip(self, size: int | Numbers, null: Nulls) -> None:
        self._place = self._place + (size if null is None else np.where(null, 0, size))

    def _lengths(self, null: Nulls) -> tuple[int | Numbers, Numbers]:
        """Return how many bytes the length of each value takes, and the length; both are 0 for NULL."""
        first = self._at(0, "u1")
        length = first.astype(np.int64)
        if null is None and not (first >= _LONG).any():
            return 1, length
        head = np.ones(len(length), np.int64)
        if null is not None:
            head[null] = length[null] = 0
        for mark, width in _WIDTHS.items():
            long = length == mark
            if long.any():
                head[long] = 1 + width
                length[long] = sum(
                    self._at(1 + byte, "u1", long).astype(np.int64) << (8 * byte) for byte in range(width)
                )
        return head, length

    def _times(self, number: int, kind: int, null: Nulls) -> pa.Array:
        """Return dates, or times of a day in microseconds. A value has no more bytes than it needs."""
        size = self._at(0, "u1").astype(np.int64)
        days = self._days(number, size, null)
        if kind == FIELD_TYPE.DATE:
            values = pa.array(days.astype(np.int32), mask=null).view(pa.date32())
        else:
            hour, minute, second = (self._at(offset, "u1").astype(np.int64) for offset in (5, 6, 7))
            seconds = np.where(size > 4, (hour * 60 + minute) * 60 + second, 0)
            parts = np.where(size > 7, self._at(8, "<u4").astype(np.int64), 0)
            micros = ((days * 86_400) + seconds) * 1_000_000 + parts
            values = pa.array(micros, mask=null).view(pa.timestamp("us"))
        self._skip(1 + size, null)
        return values

    def _days(self, number: int, size: Numbers, null: Nulls) -> Numbers:
        """Return the days since 1970 of dates; a server keeps also some that are none."""
        year, month, day = (
            self._at(1, "<u2").astype(np.int64),
            *(self._at(at, "u1").astype(np.int64) for at in (3, 4)),
        )
        leap = (month == 2) & (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
        fits = (size > 0) & (year > 0) & (month > 0) & (day > 0)
        fits &= day <= _DAYS_IN[np.where(month <= 12, month, 0)] + leap
        if not (fits if null is None else fits | null).all():
            raise NoDateError(number)
        before = year - (month <= 2)  # the year begins in March, so that a leap day is its last one
        since_march = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
        return before * 365 + before // 4 - before // 100 + before // 400 + since_march - 306 + _FIRST_DAY
