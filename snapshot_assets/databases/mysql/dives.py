"""Divides a table by the optimizer's estimates of ranges of its key, each of which reads a few pages of the index.

MySQL's manual calls them index dives. That of a wide range is at most half of the table, and those of narrow ones are
too large by about the same factor. So they are compared with each other, and large ranges are divided again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from itertools import accumulate, pairwise

from snapshot_assets.databases.mysql.session import MysqlSession
from snapshot_assets.databases.mysql.types import ColumnType
from snapshot_assets.databases.protocol.query import ColumnRange, Quantiles
from snapshot_assets.databases.sql import identifier
from snapshot_assets.format.relations import Column

_FINER = 16  # ranges that are estimated for each part, and into which a large one is divided
_ROUNDS = 20  # enough to divide all numbers of 64 bits down to one
_AT_ONCE = 64  # ranges that one statement estimates
_MICROSECOND = timedelta(microseconds=1)

_Cell = tuple[int, int]
"""Numbers from one on, and before another."""


def dive(session: MysqlSession, table: str, column: Column, where: str, parts: int) -> Quantiles | None:
    """Return the values that divide a table's rows, without reading them.

    Args:
        session: Where the table is read.
        table: The table in SQL.
        column: First column of its primary key, with numbers, dates or times.
        where: The rows to divide. Of the key's values between their least and greatest one, nearly all rows are such.
        parts: Into how many parts.

    Returns:
        The values; None without rows, and for dates that are none.
    """
    name, kind = identifier(column.name), ColumnType(column.type)
    ends = (f"(SELECT {name} FROM {table} WHERE {where} ORDER BY {name} {to} LIMIT 1)" for to in ("ASC", "DESC"))
    query = f"SELECT {', '.join(f'CAST({end} AS CHAR) AS {key}' for key, end in zip('ab', ends, strict=True))}"
    [found] = session.rows(query, f"dividing {table}")
    if found["a"] is None:
        return None
    try:
        low, high = (_number(found[key], kind) for key in "ab")
    except ValueError:
        return None
    sized: dict[_Cell, int] = {}
    cells = _divided((low, high + 1), parts * _FINER)
    for _ in range(_ROUNDS):
        sized |= zip(cells, _estimates(session, table, column, cells), strict=True)
        most = max(2 * sum(sized.values()) // (parts * _FINER), 1)
        large = [cell for cell, rows in sized.items() if rows > most and cell[1] - cell[0] > 1]
        if not large:
            break
        cells = [each for cell in large for each in _divided(cell, _FINER)]
        for cell in large:
            del sized[cell]
    values = tuple(_text(value, kind) for value in _quantiles(sorted(sized.items()), parts))
    return Quantiles(column.name, kind.ranged, sum(sized.values()), values)


def _divided(cell: _Cell, most: int) -> list[_Cell]:
    low, high = cell
    count = min(most, high - low)
    return list(pairwise(low + (high - low) * each // count for each in range(count + 1)))


def _estimates(session: MysqlSession, table: str, column: Column, cells: Sequence[_Cell]) -> Iterator[int]:
    kind = ColumnType(column.type)
    for first in range(0, len(cells), _AT_ONCE):
        ranges = (
            ColumnRange(column.name, kind.ranged, *(_text(end, kind) for end in cell))
            for cell in cells[first : first + _AT_ONCE]
        )
        one = f"SELECT 1 FROM {table} FORCE INDEX (PRIMARY) WHERE "
        query = " UNION ALL ".join(one + each.predicate for each in ranges)
        for step in session.rows(f"EXPLAIN {query}", f"dividing {table}"):
            if not str(step["select_type"]).startswith("UNION RESULT"):
                yield int(step["rows"] or 0)


def _quantiles(sized: Sequence[tuple[_Cell, int]], parts: int) -> Iterator[int]:
    """Yield the least value of each part; the rows of a range lie evenly in it."""
    ends = list(accumulate(rows for _, rows in sized))
    at = 0
    for part in range(parts):
        wanted = ends[-1] * part // parts
        while ends[at] <= wanted and at + 1 < len(ends):
            at += 1
        (low, high), rows = sized[at]
        yield low + (high - low) * (wanted - (ends[at] - rows)) // max(rows, 1)


def _number(text: str, kind: ColumnType) -> int:
    if kind.name == "date":
        return date.fromisoformat(text).toordinal()
    if kind.ranged.startswith("DATETIME"):
        return (datetime.fromisoformat(text) - datetime.min) // _MICROSECOND
    return int(text)


def _text(number: int, kind: ColumnType) -> str:
    if kind.name == "date":
        return str(date.fromordinal(min(number, date.max.toordinal())))
    if kind.ranged.startswith("DATETIME"):
        return str(datetime.min + min(number * _MICROSECOND, datetime.max - datetime.min))
    return str(number)
