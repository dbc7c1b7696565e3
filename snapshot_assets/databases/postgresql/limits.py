"""Compares the lengths, precisions and scales of two types of PostgreSQL."""

from __future__ import annotations

import re

_LIMITS = re.compile(r"\((\d+)(?:,\s*(-?\d+))?\)")
_MOST_PRECISE = 6
"""Decimal digits of a second in a type without a precision."""


def rounds(found: str, expected: str) -> bool:
    """Return whether a type rounds values of the expected type."""
    existing, wanted = _LIMITS.search(found), _LIMITS.search(expected)
    if existing is None:
        return False
    if found.startswith("numeric"):
        return wanted is None or int(existing[2] or 0) < int(wanted[2] or 0)
    if found.startswith(("time", "interval")):
        return int(existing[1]) < (int(wanted[1]) if wanted else _MOST_PRECISE)
    return False


def smaller_limit(found: str, expected: str) -> int | None:
    """Return how long a value may be for a type, if the expected type has longer ones; else None.

    Args:
        found: The type that a column has: of characters, bits, or numbers.
        expected: The type of the values, whose digits after the decimal point all fit.
    """
    existing, wanted = _LIMITS.search(found), _LIMITS.search(expected)
    if existing is None or not found.startswith(("character", "bit", "numeric")):
        return None
    limit, longest = _length(found, existing), _length(expected, wanted)
    return limit if longest is None or longest > (limit or 0) else None


def _length(type_text: str, limits: re.Match[str] | None) -> int | None:
    if limits is None:
        return 1 if type_text in ("character", "bit") else None
    scale = int(limits[2] or 0) if type_text.startswith("numeric") else 0
    return int(limits[1]) - scale
