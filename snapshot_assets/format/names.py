"""Names of tags, tables (`schema.table`) and columns (`schema.table.column`): read, written and compared.

A part that contains a dot is quoted as in SQL: `"a.b"."c"`, with quotes inside doubled. Case is preserved. In a
pattern, `*` stands for any text and `?` for any character; a star that is meant is quoted: `public."what*"`.

Names of a plan stand without the quotes of SQL, and each kind of database compares them in its own way (`NameRule`):
PostgreSQL exactly. DuckDB ignores the case of ASCII letters, of quoted names too. Spark ignores case. Names of a
snapshot are compared as its source compares them, which its documents record for other kinds.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from enum import Enum
from functools import cache
from typing import Any, Generic, NamedTuple, TypeVar

from snapshot_assets.errors import PlanError
from snapshot_assets.format.layout import TAG_NAME
from snapshot_assets.format.name_texts import printed_name, written_name
from snapshot_assets.format.relations import DatabaseSchema, TableName

_TAG_NAME = re.compile(TAG_NAME, re.ASCII)
_PART = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')
_NAME = r'(?:"(?:[^"]|"")+"|[^\s".(),;\']+)'
_TABLE = re.compile(rf"{_NAME}\.{_NAME}")


class ColumnPath(NamedTuple):
    """A column of a table. As a text it is for people; see `printed_name`."""

    table: TableName
    column: str

    def __str__(self) -> str:
        return printed_name(*self.table, self.column)

    @property
    def written(self) -> str:
        """The column as plans and options take it."""
        return written_name(*self.table, self.column)


def parse_table(value: object) -> TableName:
    """Return the table of `schema.table`, `"sche.ma"."ta.ble"`, or a mapping of both, or raise a PlanError."""
    if isinstance(value, TableName):
        return value
    if isinstance(value, Mapping) and set(value) == {"schema", "table"}:
        parts: list[object] | None = [value["schema"], value["table"]]
    else:
        parts = [part for part, _ in _split_name(value)] if isinstance(value, str) else None
    match parts:
        case [str(schema), str(table)] if schema and table:
            return TableName(schema, table)
    raise PlanError(
        f"{value!r} is not a schema and a table; write one such as public.trips, or "
        '"my.schema"."my.table" where a name holds a dot'
    )


def table_text(name: TableName) -> str:
    """Return the text that `parse_table` reads as this table."""
    return ".".join(map(_quote, name))


def table_of(query: str) -> TableName | None:
    """Return the table that a query names in place of SQL, `schema.table`; None for SQL."""
    return parse_table(query) if _TABLE.fullmatch(query) else None


def parse_column(value: object) -> ColumnPath:
    """Return the column that a text such as `schema.table.column` names; raise a PlanError for another value."""
    if isinstance(value, ColumnPath):
        return value
    match _split_name(value) if isinstance(value, str) else ():
        case [(schema, _), (table, _), (column, _)]:
            return ColumnPath(TableName(schema, table), column)
    raise PlanError(
        f"{value!r} is not a schema, a table and a column; write one such as public.trips.fare, "
        'quoting a part that holds a dot: public."my.table".fare'
    )


def column_text(path: ColumnPath) -> str:
    """Return the text that `parse_column` reads as this column."""
    return f"{table_text(path.table)}.{_quote(path.column)}"


def check_tag_name(name: str) -> str:
    """Return `name` if it is a valid tag name, else raise a PlanError."""
    if _TAG_NAME.fullmatch(name) is None:
        raise PlanError(
            f"{name[:200]!r} cannot name a tag; a name starts with a letter or _ and goes on with letters, digits, "
            "_ . - up to 100 characters, such as before-migration",
            name=name,
        )
    return name


def _split_name(text: str) -> list[tuple[str, bool]]:
    """Return the dotted parts of a name, unquoted, and whether each was quoted; none for an invalid name."""
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


def _quote(part: str) -> str:
    return part if part and not set('."') & set(part) else '"' + part.replace('"', '""') + '"'


_Name = TypeVar("_Name", bound=Hashable)


class NameRule(Enum):
    """What two names have in common that mean the same thing."""

    EXACT = "every letter"
    ASCII_CASE_IGNORED = "every letter, those of ASCII in any case"
    CASE_IGNORED = "every letter, in any case"

    def key(self, name: Any) -> Any:
        """Return what all names share that mean the same: of a text a text, of a tuple a tuple."""
        if isinstance(name, str):
            return _FOLDS[self](name)
        return tuple(map(self.key, name))

    def same(self, one: Any, other: Any) -> bool:
        """Return whether two names mean the same."""
        return bool(self.key(one) == self.key(other))


def _ascii_lower(text: str) -> str:
    return text.encode(errors="surrogatepass").lower().decode(errors="surrogatepass")


_FOLDS: dict[NameRule, Callable[[str], str]] = {
    NameRule.EXACT: str,
    NameRule.ASCII_CASE_IGNORED: _ascii_lower,
    NameRule.CASE_IGNORED: str.lower,
}
_RULES = {"duckdb": NameRule.ASCII_CASE_IGNORED, "spark": NameRule.CASE_IGNORED}
"""Of the kinds whose documents do not record their rule; all others of them compare exactly."""


def rule_of(schema: DatabaseSchema) -> NameRule:
    """Return how the database of a schema compares names."""
    return NameRule[schema.names.upper()] if schema.names else _RULES.get(schema.database, NameRule.EXACT)


class Spellings(Generic[_Name]):
    """Names, or tuples of them, as a catalog spells them, found by the names that users write."""

    def __init__(self, rule: NameRule, names: Iterable[_Name]) -> None:
        self._rule = rule
        self._names = dict.fromkeys(names)
        self._by_key: dict[Any, list[_Name]] = defaultdict(list)
        for name in self._names:
            self._by_key[rule.key(name)].append(name)

    def of(self, name: _Name) -> _Name:
        """Return a name in the catalog's spelling.

        A name that the catalog lacks is returned as it is, and so is one that might be several of its names.
        """
        if name in self._names:
            return name
        meant = self._by_key.get(self._rule.key(name), [])
        return meant[0] if len(meant) == 1 else name

    def equal(self) -> Iterator[tuple[_Name, _Name]]:
        """Yield the first two of the names that mean one thing, for each such thing."""
        yield from ((group[0], group[1]) for group in self._by_key.values() if len(group) > 1)


_WILD = {"*": ".*", "?": "."}


def check_pattern(text: object) -> str:
    """Return a pattern of a schema and a table; raise a PlanError for another value."""
    if isinstance(text, str) and len(_split_name(text)) == 2:
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
    (schema, schema_quoted), (table, table_quoted) = _split_name(pattern)
    wild = (not quoted and set(part) & set(_WILD) for part, quoted in ((schema, schema_quoted), (table, table_quoted)))
    return None if any(wild) else TableName(schema, table)


def is_wild(pattern: str) -> bool:
    """Return whether a pattern may match several tables."""
    return table_of_pattern(pattern) is None


def matches(pattern: str, name: TableName, rule: NameRule = NameRule.EXACT) -> bool:
    """Return whether a table's name matches a pattern, by how the database compares names."""
    parts = zip(_compile(rule.key(pattern)), rule.key(name), strict=True)
    return all(part.fullmatch(text) for part, text in parts)


@cache
def _compile(pattern: str) -> tuple[re.Pattern[str], ...]:
    return tuple(
        re.compile(re.escape(part) if quoted else "".join(_WILD.get(each, re.escape(each)) for each in part), re.DOTALL)
        for part, quoted in _split_name(pattern)
    )
