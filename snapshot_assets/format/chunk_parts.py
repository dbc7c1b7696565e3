"""What the action of a chunk says of single tables: rows that compactions left out, and ranges of divided tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class RowsErased:
    """Number of a table's rows that compactions of a chunk left out: deleted ones, and duplicates."""

    schema: str
    table: str
    rows: int


@dataclass(frozen=True)
class KeyRange:
    """A range of a divided table: the rows with `low <= column < high`, in the order of the source.

    Attributes:
        column: The first column of the primary key.
        type: Its type in SQL.
        low: The bound as text; "" in the first range.
        high: The bound as text; "" in the last range.
        attempts: The attempts that wrote its files; none if it has no rows.
    """

    schema: str
    table: str
    column: str
    type: str
    low: str = ""
    high: str = ""
    attempts: tuple[str, ...] = ()


def joined(ranges: Iterable[KeyRange]) -> tuple[KeyRange, ...]:
    """Return ranges with the attempts of all that have the same rows."""
    attempts: defaultdict[KeyRange, set[str]] = defaultdict(set)
    for each in ranges:
        attempts[replace(each, attempts=())].update(each.attempts)
    return tuple(replace(each, attempts=tuple(sorted(own))) for each, own in attempts.items())


def divisions(ranges: Iterable[KeyRange]) -> dict[tuple[str, str], list[KeyRange] | None]:
    """Return the ranges of each table in the order of the key; None if a row may be in none of them, or in two."""
    tables: defaultdict[tuple[str, str], list[KeyRange]] = defaultdict(list)
    for each in ranges:
        tables[each.schema, each.table].append(each)
    return {name: _in_order(own) for name, own in tables.items()}


def _in_order(ranges: list[KeyRange]) -> list[KeyRange] | None:
    """Return ranges from the one without `low` to the one without `high`, each beginning where the last one ends."""
    by_low = {each.low: each for each in ranges}
    attempts = [attempt for each in ranges for attempt in each.attempts]
    found, low = list[KeyRange](), ""
    while (each := by_low.pop(low, None)) is not None:
        found.append(each)
        low = each.high
    whole = len(found) == len(ranges) and not low and len({(each.column, each.type) for each in ranges}) == 1
    return found if whole and len(set(attempts)) == len(attempts) else None
