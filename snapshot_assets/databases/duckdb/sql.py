"""SQL text: the only place where names and values of foreign origin become DuckDB SQL."""

from __future__ import annotations

from collections.abc import Sequence


def identifier(name: str) -> str:
    """Return a quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


def qualified(path: Sequence[str]) -> str:
    """Return a quoted name of several parts."""
    return ".".join(map(identifier, path))


def literal(value: str) -> str:
    """Return a string constant; DuckDB gives a backslash in one no meaning."""
    return "'" + value.replace("'", "''") + "'"
