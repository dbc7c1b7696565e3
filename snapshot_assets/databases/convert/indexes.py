"""Reads the definition of an index: its access method, and whether another kind of database can have it too."""

from __future__ import annotations

import re

from snapshot_assets.databases.sql import identifier
from snapshot_assets.format.relations import Index

_NAME = r'(?:"(?:[^"]|"")+"|[^\s".(),;]+)'
_HEAD = re.compile(
    rf"CREATE (?:UNIQUE )?INDEX {_NAME} ON (?:ONLY )?{_NAME}(?:\.{_NAME})*(?: USING (?P<method>{_NAME}))? ?(?=\()",
    re.IGNORECASE,
)
_UNQUOTED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ORDERED = ("btree", "art")
"""The methods that PostgreSQL and DuckDB use by default: both find equal values and keep unique ones apart."""


def other_method(index: Index) -> bool:
    """Return whether an index names another access method than the default ones."""
    head = _HEAD.match(index.definition.strip())
    method = head["method"] if head else None
    return method is not None and method.strip('"').lower() not in _ORDERED


def is_plain(index: Index) -> bool:
    """Return whether an index is a B-tree, or DuckDB's own tree, of columns alone, in ascending order."""
    definition = index.definition.strip()
    head = _HEAD.match(definition)
    if head is None or not index.columns or other_method(index):
        return False
    keys = r",\s*".join(map(_spellings, index.columns))
    return re.fullmatch(rf"\({keys}\)\s*;?", definition[head.end() :]) is not None


def _spellings(column: str) -> str:
    """Return the pattern of a column's name in a definition."""
    quoted = identifier(column)
    plain = [column] if _UNQUOTED.fullmatch(column) else []
    return f"(?:{'|'.join(map(re.escape, (*plain, quoted, _in_quotes(quoted))))})"


def _in_quotes(quoted: str) -> str:
    """Return a quoted name as DuckDB prints some of them, in single quotes again."""
    return f"'{quoted}'"
