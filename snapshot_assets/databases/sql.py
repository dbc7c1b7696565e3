"""SQL text that PostgreSQL and DuckDB read alike: quoted names and values."""

from __future__ import annotations

from collections.abc import Sequence


def identifier(name: str, quote: str = '"') -> str:
    """Return a quoted identifier."""
    return quote + name.replace(quote, quote * 2) + quote


def identifiers(names: Sequence[str]) -> str:
    """Return a list of quoted identifiers in parentheses."""
    return f"({', '.join(map(identifier, names))})"


def qualified(path: Sequence[str]) -> str:
    """Return a quoted name of several parts, such as a `TableName`."""
    return ".".join(map(identifier, path))


def literal(value: str) -> str:
    """Return a string constant. A backslash in it has no special meaning."""
    return "'" + value.replace("'", "''") + "'"
