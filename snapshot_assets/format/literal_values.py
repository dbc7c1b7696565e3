"""Converts user input to typed literals, and literals to Arrow scalars. It loads Arrow, which `predicates` does not."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TypeVar

import pyarrow as pa

from snapshot_assets.errors import DocumentError, PlanError
from snapshot_assets.format.arrow_types import arrow_type_text
from snapshot_assets.format.predicates import DIGITS, Literal, Value

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_CLOCK = r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?"
_TIMESTAMP = re.compile(rf"(\d{{4}}-\d\d-\d\d)[Tt ]{_CLOCK}([Zz]|[+-]\d\d:\d\d)?", re.ASCII)
_TIME = re.compile(_CLOCK, re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_NUMBER = re.compile(r"-?\d{1,400}(\.\d{1,400})?([eE][+-]?\d{1,3})?", re.ASCII)
_T = TypeVar("_T")
_STORAGE: dict[type, tuple[Callable[[pa.DataType], bool], ...]] = {
    bool: (pa.types.is_boolean,),
    int: (pa.types.is_integer, pa.types.is_temporal),
    float: (pa.types.is_floating,),
    str: (pa.types.is_string, pa.types.is_large_string, pa.types.is_decimal),
    bytes: (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary),
}
_FLOATS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def scalar_of(literal: Literal) -> pa.Scalar:
    """Return a literal's value as an Arrow scalar; raise a DocumentError if it does not belong to the type."""
    try:
        return _scalar(literal.value, literal.arrow_type)
    except (pa.ArrowException, ArithmeticError, ValueError, TypeError, OverflowError) as cause:
        raise DocumentError(f"{literal.value!r} is not a value of type {literal.type}: {cause}.") from cause


def storage_of(arrow_type: pa.DataType) -> type | None:
    """Return the Python type of a literal's value; None for nested types and null, which cannot be compared."""
    return next((storage for storage, tests in _STORAGE.items() if any(test(arrow_type) for test in tests)), None)


def _scalar(value: Value, arrow_type: pa.DataType) -> pa.Scalar:
    wanted = storage_of(arrow_type)
    if type(value) is not wanted:
        raise TypeError(f"expected {'no value of this type' if wanted is None else wanted.__name__}")
    if pa.types.is_decimal(arrow_type):
        number = Decimal(str(value))
        if not number.is_finite() or str(value) != _decimal_text(number, arrow_type):
            raise ValueError("it is not written with the digits of its scale")
        return pa.scalar(number, arrow_type)
    if pa.types.is_temporal(arrow_type):
        storage = pa.int32() if arrow_type.bit_width == pa.int32().bit_width else pa.int64()
        return pa.array([value], storage).view(arrow_type)[0]
    if wanted is float and pa.scalar(value, arrow_type).as_py() != value and value == value:
        raise ValueError("it has more digits than the type")
    return pa.scalar(value, arrow_type)


def _decimal_text(number: Decimal, arrow_type: pa.DataType) -> str:
    """Return a decimal's canonical text: all digits of its scale, no exponent, no minus before 0."""
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    shift = exponent + arrow_type.scale
    unscaled = int("".join(map(str, digits)))
    unscaled, rest = (unscaled * 10**shift, 0) if shift >= 0 else divmod(unscaled, 10**-shift)
    if rest or unscaled >= 10**arrow_type.precision:
        raise ValueError(f"more digits than {arrow_type} has")
    text = f"{Decimal(unscaled).scaleb(-arrow_type.scale, DIGITS):f}"
    return f"-{text}" if number.is_signed() and unscaled else text


Given = bool | Decimal | str | bytes
"""A value in a predicate's text: a boolean, number, text or bytes."""


def to_literal(given: Given, arrow_type: pa.DataType, column: str) -> Literal:
    """Convert a value to a literal of a column's type, exactly except for floats, or raise a PlanError.

    Floats are rounded. Times, dates and the floats NaN, Infinity and -Infinity are given as text.
    """
    kind = arrow_type_text(arrow_type) if storage_of(arrow_type) else str(arrow_type)
    if storage_of(arrow_type) is None:
        raise PlanError(f"column {column} is {kind}, a type that cannot be compared; only 'is null' works")
    try:
        literal = Literal(kind, _value(given, arrow_type))
        scalar_of(literal)
    except (ValueError, DocumentError) as cause:
        reason = "" if isinstance(cause, DocumentError) else f": {cause}"
        raise PlanError(
            f"column {column} is {kind}, and {_given_text(given)} is not a value of that type{reason};"
            f" {_hint(arrow_type)}"
        ) from None
    return literal


def _given_text(given: Given) -> str:
    match given:
        case bool():
            return f"the boolean {str(given).lower()}"
        case Decimal():
            return f"the number {given}"
        case str():
            return f"the text {given!r}"
    return f"the bytes x'{given.hex()}'"


def _hint(arrow_type: pa.DataType) -> str:
    is_ = pa.types
    if is_.is_timestamp(arrow_type):
        example = "'2025-01-31T12:00:00Z'" if arrow_type.tz else "'2025-01-31T12:00:00', without a zone like the column"
        return f"write a time in quotes, no finer than {arrow_type.unit}, such as {example}"
    if is_.is_date(arrow_type):
        return "write a date such as '2025-01-31'"
    if is_.is_time(arrow_type):
        return f"write a time of day no finer than {arrow_type.unit}, such as '12:00:00'"
    if is_.is_duration(arrow_type):
        return f"write a whole number of {arrow_type.unit}"
    hints = {
        bool: "write true or false",
        int: "write a whole number in its range",
        float: "write a number, or 'NaN', 'Infinity' or '-Infinity' in quotes",
        str: "write a number that fits" if is_.is_decimal(arrow_type) else "write a text in single quotes",
        bytes: "write bytes in hexadecimal digits such as x'00ff'",
    }
    return hints[storage_of(arrow_type) or str]


def _value(given: Given, arrow_type: pa.DataType) -> Value:
    is_ = pa.types
    if is_.is_decimal(arrow_type):
        if isinstance(given, str) and _NUMBER.fullmatch(given):
            given = Decimal(given)
        return _decimal_text(_require_type(given, Decimal), arrow_type)
    if is_.is_floating(arrow_type):
        if isinstance(given, str) and given in _FLOATS:
            return _FLOATS[given]
        double = pa.scalar(float(_require_type(given, Decimal)), pa.float64())
        rounded = float(double.cast(arrow_type, safe=False).as_py())
        if abs(rounded) == float("inf"):
            raise ValueError("it is too large")
        return rounded
    if is_.is_integer(arrow_type) or is_.is_duration(arrow_type):
        number = _require_type(given, Decimal)
        if number != number.to_integral_value():
            raise ValueError("it is not whole")
        return int(number)
    if is_.is_temporal(arrow_type):
        return _moment(_require_type(given, str), arrow_type)
    return _require_type(given, storage_of(arrow_type) or str)


def _require_type(given: object, wanted: type[_T]) -> _T:
    if not isinstance(given, wanted):
        raise ValueError("it is of another kind")
    if isinstance(given, str):
        given.encode()
    return given


def _moment(text: str, arrow_type: pa.DataType) -> int:
    """Convert a time, date or timestamp to its storage form."""
    if pa.types.is_date(arrow_type):
        if not _DATE.fullmatch(text):
            raise ValueError("it is not a date")
        return (date.fromisoformat(text) - date(1970, 1, 1)).days
    if pa.types.is_time(arrow_type):
        match = _TIME.fullmatch(text)
        if match is None or int(match[1]) >= 24 or int(match[2]) >= 60 or int(match[3]) >= 60:
            raise ValueError("it is not a time of day")
        return _units(int(match[1]) * 3600 + int(match[2]) * 60 + int(match[3]), match[4], arrow_type.unit)
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError("it is not a time")
    if bool(match[6]) != bool(arrow_type.tz):
        raise ValueError("it has a zone" if match[6] else "it has no zone")
    zone = "+00:00" if match[6] in (None, "Z", "z") else match[6]
    moment = datetime.fromisoformat(f"{match[1]}T{match[2]}:{match[3]}:{match[4]}{zone}")
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return _units(since.days * 86400 + since.seconds, match[5], arrow_type.unit)


def _units(seconds: int, fraction: str | None, unit: str) -> int:
    per_second = _PER_SECOND[unit]
    parts, rest = divmod(int(f"{fraction or '0':0<9}") * per_second, 10**9)
    if rest:
        raise ValueError(f"it is finer than {unit}")
    return seconds * per_second + parts
