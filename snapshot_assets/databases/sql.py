"""SQL text that PostgreSQL and DuckDB read alike."""

from __future__ import annotations


def identifier(name: str) -> str:
    """Return a quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(value: str) -> str:
    """Return a string constant. A backslash in it has no special meaning."""
    return "'" + value.replace("'", "''") + "'"
