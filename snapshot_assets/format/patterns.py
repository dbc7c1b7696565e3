"""Patterns of tables' names: `schema.table`, in which `*` stands for any text and `?` for any character.

A part that contains a dot, or a star that is meant, is quoted as in SQL: `"a.b".t`, `public."what*"`.
"""

from __future__ import annotations

import re
from functools import cache

from snapshot_assets.errors import PlanError
from snapshot_assets.format.name_rules import NameRule
from snapshot_assets.format.relations import TableName

_PART = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')
_WILD = {"*": ".*", "?": "."}


def check_pattern(text: object) -> str:
    """Return a pattern if it is valid.

    Raises:
        PlanError: It is not a schema and a table.
    """
    if isinstance(text, str) and len(_parts(text)) == 2:
        return text
    raise PlanError(
        f"{text!r} is not a pattern of a schema and a table; write one such as public.audit, public.tmp_* or *.audit"
    )


def pattern_of(name: TableName) -> str:
    """Return the pattern that matches one table."""
    special = {'"', ".", *_WILD}
    quoted = ('"' + part.replace('"', '""') + '"' if special & set(part) else part for part in name)
    return ".".join(quoted)


def table_of_pattern(pattern: str) -> TableName | None:
    """Return the only table that a pattern can match; None if it may match several."""
    (schema, schema_quoted), (table, table_quoted) = _parts(pattern)
    wild = (not quoted and set(part) & set(_WILD) for part, quoted in ((schema, schema_quoted), (table, table_quoted)))
    return None if any(wild) else TableName(schema, table)


def is_wild(pattern: str) -> bool:
    """Return whether a pattern may match several tables."""
    return table_of_pattern(pattern) is None


def matches(pattern: str, name: TableName, rule: NameRule = NameRule.EXACT) -> bool:
    """Return whether a table's name matches a pattern, by how the database compares names."""
    parts = zip(_compiled(rule.key(pattern)), rule.key(name), strict=True)
    return all(part.fullmatch(text) for part, text in parts)


@cache
def _compiled(pattern: str) -> tuple[re.Pattern[str], ...]:
    return tuple(
        re.compile(re.escape(part) if quoted else "".join(_WILD.get(each, re.escape(each)) for each in part), re.DOTALL)
        for part, quoted in _parts(pattern)
    )


def _parts(text: str) -> list[tuple[str, bool]]:
    """Return the dotted parts of a pattern, unquoted, and whether each was quoted; none for an invalid pattern."""
    parts: list[tuple[str, bool]] = []
    position = 0
    while match := _PART.match(text, position):
        parts.append((match[2], False) if match[1] is None else (match[1].replace('""', '"'), True))
        if match.end() == len(text):
            return parts
        if text[match.end()] != ".":
            break
        position = match.end() + 1
    return []
