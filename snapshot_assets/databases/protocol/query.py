"""A query that is copied: one that reads, without ORDER BY at its top (Materialize, COPY TO S3).

The text is split into tokens only. The database parses it; it runs as a subquery in a transaction that cannot write.

Several tasks read the rows of one query by ranges of a column. The bounds are quantiles of a random sample, because
those of least and greatest value alone put all rows in one range if a single value lies far from the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from snapshot_assets.databases.sql import identifier, literal
from snapshot_assets.errors import DatabaseError, PlanError
from snapshot_assets.format.relations import Column, DatabaseSchema, Schema, Table, TableName

SAMPLE_ROWS = 1 << 16
"""Rows of the sample; each of 64 ranges then differs from its share by a tenth or less."""

ORDERED = 0.9
"""Least correlation, of either sign, of rows with a key in whose order they lie about."""


@dataclass(frozen=True)
class ColumnRange:
    """The rows with `low <= column < high`.

    Attributes:
        column: Name of the column.
        type: Its type in SQL; "" if it is compared with texts.
        low: The bound as text; None in the first range, which also has the rows without a value.
        high: The bound as text; None in the last range.
    """

    column: str
    type: str
    low: str | None
    high: str | None

    @property
    def predicate(self) -> str:
        """The range in SQL."""
        name = identifier(self.column)
        above = None if self.low is None else f"{name} >= {self._value(self.low)}"
        below = None if self.high is None else f"{name} < {self._value(self.high)}"
        if above is None:
            return f"({below} OR {name} IS NULL)" if below else "true"
        return f"{above} AND {below}" if below else above

    def _value(self, text: str) -> str:
        return f"CAST({literal(text)} AS {self.type})" if self.type else literal(text)


@dataclass(frozen=True)
class Quantiles:
    """The values that divide a sample of a column into parts of equal size.

    Attributes:
        column: Name of the column.
        type: Its type in SQL.
        rows: Rows of the sample, all of which have a value.
        values: The least value of each part, as text, in order; empty without rows.
    """

    column: str
    type: str
    rows: int
    values: tuple[str, ...]

    def ranges(self, parts: int, within: ColumnRange | None = None) -> list[ColumnRange]:
        """Return at most `parts` disjoint ranges that together have all rows; values that are frequent make fewer.

        With `within`, they together have the rows of that range, which has all of the values.
        """
        least, count = self.values[:1], len(self.values)
        low, high = (within.low, within.high) if within else (None, None)
        chosen = [self.values[count * part // parts] for part in range(1, parts)] if self.values else []
        bounds = [value for value in dict.fromkeys(chosen) if value not in least]
        return [ColumnRange(self.column, self.type, *ends) for ends in pairwise((low, *bounds, high))]


def fractions(parts: int) -> list[float]:
    """Return the fractions of the quantiles that begin the parts of a sample."""
    return [part / parts for part in range(parts)]


BOUNDS = ("start", "end")
"""Parameters that stand for the bounds of a window."""

_TOKEN = re.compile(
    r"""(?P<skip>\s++|--[^\n]*+|/\*.*?\*/)
    |(?P<string>[Ee]'(?:[^'\\]|''|\\.)*+'|'(?:[^']|'')*+'|(?P<tag>\$\w*\$).*?(?P=tag))
    |(?P<name>"(?:[^"]|"")*+"|`[^`]*+`)
    |(?P<cast>::)|(?P<parameter>:[A-Za-z_]\w*+)|(?P<word>\w++)|(?P<other>.)""",
    re.DOTALL | re.VERBOSE,
)
_FIRST_WORDS = ("SELECT", "WITH", "VALUES", "TABLE", "FROM")


@dataclass(frozen=True)
class Query:
    """A query, and the relation that its rows become.

    Attributes:
        name: Name of the relation.
        text: The query, without a semicolon; see `parse_query`.
    """

    name: str
    text: str

    @property
    def windowed(self) -> bool:
        """Whether it names the bounds of a window."""
        return any(kind == "parameter" for kind, _ in split_tokens(self.text))

    def with_bounds(self, start: str, end: str) -> str:
        """Return the text with SQL expressions in place of `:start` and `:end`."""
        expressions = {":start": start, ":end": end}
        return "".join(
            expressions.get(text, text) if kind == "parameter" else text for kind, text in split_tokens(self.text)
        )


def parse_query(text: str) -> str:
    """Return a query without its semicolon.

    Raises:
        PlanError: It is not one statement that reads, has ORDER BY at its top, or names an unknown parameter.
    """
    found = list(split_tokens(text))
    while found and (found[-1][0] == "skip" or found[-1][1] == ";"):
        found.pop()
    tokens = [(kind, token) for kind, token in found if kind != "skip"]
    first = next((token for _, token in tokens if token != "("), "")
    if first.upper() not in _FIRST_WORDS:
        raise PlanError(
            f"query starts with {first!r}; expected schema.table, or one statement SELECT, WITH, VALUES or TABLE"
        )
    if any(token == ";" for _, token in tokens):
        raise PlanError("query has several statements; write one")
    if _is_ordered(tokens):
        raise PlanError(
            "query has ORDER BY at its top, and files have no order: several tasks write them. Leave it out and sort"
            " when reading. To keep the first rows of an order, put it inside: SELECT * FROM (… ORDER BY … LIMIT 10) t"
        )
    parameters = {token.removeprefix(":") for kind, token in tokens if kind == "parameter"}
    if unknown := parameters.difference(BOUNDS):
        raise PlanError(f"query names :{min(unknown)}; known are :start and :end, the bounds of a window")
    if parameters and parameters != set(BOUNDS):
        raise PlanError("query names only one of :start and :end; a window has both bounds")
    return "".join(token for _, token in found).strip()


def split_tokens(text: str) -> Iterator[tuple[str, str]]:
    """Yield the tokens of a query with their kinds; together they are the text."""
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "other"
        yield ("string" if kind == "tag" else kind), match[0]


def _is_ordered(tokens: list[tuple[str, str]]) -> bool:
    depth, before = 0, ""
    for kind, token in tokens:
        depth += (token in ("(", "[")) - (token in (")", "]")) if kind == "other" else 0
        word = token.upper() if kind == "word" and not depth else ""
        if (before, word) == ("ORDER", "BY"):
            return True
        before = word
    return False


def query_schema(
    database: str, name: TableName, columns: Iterable[Column], query: Query, options: Mapping[str, Any]
) -> DatabaseSchema:
    """Return the documents of a query's relation; `options` are what the database's scans need of it.

    Raises:
        DatabaseError: The query has no columns.
    """
    columns = tuple(columns)
    if not columns:
        raise DatabaseError("The query has no columns, so its rows hold nothing that files could keep. Select some.")
    table = Table(
        schema_name=name.schema,
        name=name.table,
        columns=columns,
        options={"query": query.text, "windowed": query.windowed, **options},
    )
    return DatabaseSchema(database=database, schemas=(Schema(name=name.schema),), tables=(table,))


def is_query(table: Table) -> bool:
    """Return whether a table's rows are those of a query."""
    return "query" in table.options
