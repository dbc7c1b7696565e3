"""Defaults that mean the same in every kind of database: NULL, numbers, strings, TRUE, FALSE and the present time."""

from __future__ import annotations

import re
from datetime import date, datetime

import pyarrow as pa

from snapshot_assets.format.relations import Carrier, Column

NOW = "CURRENT_TIMESTAMP"
_CAST = re.compile(r"CAST\((.*) AS ([\w ]+)\)|\((.*)\)|(.*)::([\w \".]+)", re.IGNORECASE | re.DOTALL)
_STRING = re.compile(r"'((?:[^'\\]|'')*)'")
"""Without a backslash, which escapes in some kinds only."""

_NOW = re.compile(r"(?:now|get_current_timestamp)\(\)|current_timestamp(?:\((\d?)\))?", re.IGNORECASE)
_INTEGER = re.compile(r"-?\d+")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", re.IGNORECASE)
_BOOLEANS = {"true": "TRUE", "t": "TRUE", "false": "FALSE", "f": "FALSE"}
_PADDED = ("character(", "bpchar")


def plain_default(column: Column) -> str | None:
    """Return a column's default as every kind of database writes it; "" for NULL, None for more than a constant."""
    text, kind = column.default or "", column.arrow_field().type
    cast = ""
    while match := _CAST.fullmatch(text):
        text, cast = match[1] or match[3] or match[4] or "", f"{cast} {match[2] or match[5] or ''}"
    quoted = _STRING.fullmatch(text)
    value = quoted[1] if quoted else text
    if text.upper() == "NULL":
        return ""  # what a column without a default has; one that is NOT NULL may have no such default in MySQL
    if column.carrier is not Carrier.NATIVE:
        return None
    if pa.types.is_boolean(kind):
        return _BOOLEANS.get(value.lower())
    if pa.types.is_timestamp(kind) and (now := _NOW.fullmatch(text)):
        rounds = now[1] and now[1] != "6" and f"({now[1]})" not in column.type
        return None if rounds or "date" in cast.lower() else NOW
    number = _INTEGER if pa.types.is_integer(kind) or (cast.strip() and not quoted) else _NUMBER  # a cast may round
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return value if number.fullmatch(value) else None
    return text if quoted and _is_exact(column, kind, value, cast) else None


def _is_exact(column: Column, kind: pa.DataType, value: str, cast: str) -> bool:
    """Return whether a string is the same value of a type in each kind of database."""
    try:
        if pa.types.is_date32(kind):
            return date.fromisoformat(value).isoformat() == value
        if pa.types.is_timestamp(kind) and kind.tz is None:
            return datetime.fromisoformat(value).tzinfo is None and "date" not in cast.lower()
    except ValueError:  # such as 0000-00-00
        return False
    return pa.types.is_string(kind) and not column.type.startswith(_PADDED)
