"""Counts the rows of a table's windows by one query, apart from the queries that read them.

No index takes part where that costs about as much as the scans, so that an index that lacks rows is found. The window
of a row is computed from its time, in place of a predicate for each window; only for one or two sets of rows are their
predicates cheaper. See docs/architecture.md, "Row counts".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import Any

from snapshot_assets.databases.postgresql.scan import Scanner
from snapshot_assets.databases.protocol.query import ColumnRange
from snapshot_assets.databases.protocol.source import (
    AllRows,
    KeyRows,
    Rows,
    Scan,
    TimelessRows,
    WindowRows,
    joined_ranges,
)
from snapshot_assets.databases.sql import identifier, literal, qualified
from snapshot_assets.format.relations import Table, TableName
from snapshot_assets.format.units import counted

MOST_COST = 2.0
"""Greatest planned cost of a count without indexes, as a multiple of that of the scans."""

FEW_SETS = 2
"""Most sets of rows that are counted by a predicate each."""

_ORDINARY = """
SELECT n.nspname AS schema, c.relname AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND (n.nspname, c.relname) IN ({names})
"""

_SET = (
    "SELECT pg_catalog.set_config(s.name, {value}, true) FROM (VALUES ('enable_indexscan'), ('enable_indexonlyscan'),"
    " ('enable_bitmapscan')) s (name) WHERE pg_catalog.current_setting(s.name, true) IS NOT NULL"
)


def count_rows(
    scanner: Scanner, reads: Sequence[tuple[Table, Sequence[Rows]]], *, thorough: bool
) -> list[list[int] | None]:
    """Count the rows of disjoint sets of tables, of many whole tables at once; see `Database.count_rows`."""
    counts: dict[TableName, list[int]] = {}
    whole = [table for table, rows in reads if list(rows) == [AllRows()]]
    if len(whole) > 1:
        # The ordinary ones of whole tables are counted by one statement, without looking each up.
        doing = f"counting {counted(len(whole), 'table')}"
        names = ", ".join(f"({literal(each.schema_name)}, {literal(each.name)})" for each in whole)
        found = scanner.session.rows(_ORDINARY.format(names=names), doing)
        ordinary = {TableName(row["schema"], row["name"]) for row in found}
        plain = [
            each.table_name for each in whole if not each.options.get("hypertable") and each.table_name in ordinary
        ]
        items = (f"(SELECT pg_catalog.count(*) FROM ONLY {qualified(name)}) AS c{n}" for n, name in enumerate(plain))
        if plain:
            with _without_indexes(scanner):
                [row] = scanner.session.rows(f"SELECT {', '.join(items)}", doing)
            counts = {name: [number] for name, number in zip(plain, row.values(), strict=True)}
    return [counts.get(table.table_name) or _of_sets(scanner, table, rows, thorough) for table, rows in reads]


def _of_sets(scanner: Scanner, table: Table, rows: Sequence[Rows], thorough: bool) -> list[int] | None:
    if not scanner.is_stored(table):
        return None
    run = partial(_counted, scanner, table, thorough)
    return [row.get("rows", 0) for row in in_sets(scanner, table, rows, {"rows": "pg_catalog.count(*)"}, run)]


_Run = Callable[[str, str, Sequence[Rows]], list[dict[str, Any]]]
"""Runs a query: its values, what follows its condition, and the sets whose rows it reads."""


def in_sets(
    scanner: Scanner, table: Table, rows: Sequence[Rows], values: Mapping[str, str], run: _Run
) -> list[Mapping[str, Any]]:
    """Aggregate the rows of disjoint sets of a stored table by one query.

    Args:
        scanner: Reads the table.
        table: The table.
        rows: The sets.
        values: SQL of the aggregates by name.
        run: Runs the query.

    Returns:
        The aggregates of each set by name; none for a set without rows.
    """
    if len(rows) <= FEW_SETS:
        conditions = [scanner.any_of(table, [each]) for each in rows]
        columns = [
            f"{value} FILTER (WHERE {condition}) AS {name}{n}"
            for n, condition in enumerate(conditions)
            for name, value in values.items()
        ]
        [row] = run(", ".join(columns), "", rows)
        return [{name: row[f"{name}{n}"] for name in values} for n in range(len(rows))]
    if ranges := [each.range for each in rows if isinstance(each, KeyRows)]:
        return _in_ranges(ranges, values, run)
    windows = [each for each in rows if isinstance(each, WindowRows)]
    edges = sorted({edge for each in windows for edge in (each.start, each.end)})
    number = scanner.time_column(table, windows[0].zone).number(edges)
    timeless = [each for each in rows if isinstance(each, TimelessRows)]
    read: list[Rows] = [WindowRows(edges[0], edges[-1], windows[0].zone), *timeless]
    found = _by_number(number, values, run, read)
    numbers = {edge: place for place, edge in enumerate(edges, 1)}
    return [found.get(numbers[each.start] if isinstance(each, WindowRows) else -1, {}) for each in rows]


def _in_ranges(ranges: Sequence[ColumnRange], values: Mapping[str, str], run: _Run) -> list[Mapping[str, Any]]:
    """Aggregate the rows of ranges in the order of the key."""
    column, kind = identifier(ranges[0].column), ranges[0].type
    edges = list(dict.fromkeys(edge for each in ranges for edge in (each.low, each.high) if edge is not None))
    number = f"pg_catalog.width_bucket({column}, ARRAY[{', '.join(map(literal, edges))}]::{kind}[])"
    found = _by_number(number, values, run, [KeyRows(each) for each in joined_ranges(ranges)])
    return [found.get(0 if each.low is None else edges.index(each.low) + 1, {}) for each in ranges]


def _by_number(number: str, values: Mapping[str, str], run: _Run, read: Sequence[Rows]) -> dict[int, dict[str, Any]]:
    columns = [f"{number} AS number", *(f"{value} AS {name}" for name, value in values.items())]
    return {row["number"]: row for row in run(", ".join(columns), " GROUP BY 1", read)}


def _counted(
    scanner: Scanner, table: Table, thorough: bool, values: str, end: str, read: Sequence[Rows]
) -> list[dict[str, Any]]:
    """Run a query over the whole table, without indexes over its partitions in the range, or with any plan."""
    query = f"SELECT {values} FROM {scanner.from_item(table)}"
    within = f"{query} WHERE {scanner.any_of(table, read)}{end}"
    most = inf if thorough else MOST_COST * sum(scanner.cost(table, scanner.query(Scan(table, each))) for each in read)
    doing = f"counting {table.table_name}"
    with _without_indexes(scanner):
        for each in (query + end, within):
            if scanner.cost(table, each) <= most:
                return scanner.rows_of(table, each, doing)
    return scanner.rows_of(table, within, doing)


@contextmanager
def _without_indexes(scanner: Scanner) -> Iterator[None]:
    """Keep the planner from indexes; after an error, the session has gone back to before."""
    scanner.session.rows(_SET.format(value="'off'"), "disabling index scans")
    yield
    scanner.session.rows(_SET.format(value="NULL"), "enabling index scans")
