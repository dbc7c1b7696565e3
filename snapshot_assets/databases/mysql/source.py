"""MySQL and MariaDB as a source; see `Database`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import chain
from typing import Any

from snapshot_assets.databases.mysql.created_table import without_transactions
from snapshot_assets.databases.mysql.dives import dive
from snapshot_assets.databases.mysql.held import State, hold
from snapshot_assets.databases.mysql.introspect import extract_schema
from snapshot_assets.databases.mysql.query import extract_query
from snapshot_assets.databases.mysql.scan import Scanner, cast_type
from snapshot_assets.databases.mysql.session import MysqlSession
from snapshot_assets.databases.mysql.time_predicates import MysqlTimeColumn
from snapshot_assets.databases.mysql.types import COMPARED, RANGED, ColumnType
from snapshot_assets.databases.mysql.unfit_values import find_unfit
from snapshot_assets.databases.protocol.interruptible import interruptible
from snapshot_assets.databases.protocol.query import SAMPLE_ROWS, ColumnRange, Quantiles, is_query
from snapshot_assets.databases.protocol.refusals import Refusals
from snapshot_assets.databases.protocol.source import (
    AllRows,
    Answer,
    Database,
    DatabaseAddress,
    ExportedRows,
    HeldState,
    KeyRows,
    Rows,
    Scan,
    Selection,
    Verdict,
    WindowRows,
)
from snapshot_assets.databases.selection.hidden import check_masks
from snapshot_assets.databases.selection.selection import check_split, ranged_key
from snapshot_assets.databases.sql import identifier
from snapshot_assets.errors import SnapshotError
from snapshot_assets.format.relations import Column, DatabaseSchema, Table, TableName
from snapshot_assets.format.units import some_text

_SIZES = """
SELECT table_rows AS row_count, data_length AS bytes, engine AS engine FROM information_schema.tables
WHERE table_schema = %s AND table_name = %s
"""
_WINDOWS = 4096  # windows that one query counts
_COUNTED_AT_ONCE = 100_000  # rows from which on several connections count
_LEAST_ROW = 16
_SAMPLED = 2048  # rows of a sample for each part
_NEARLY_ALL = 0.8  # of a table's rows: its parts then differ by a fourth at most
_LEAST_TIME = timedelta(microseconds=1)


class MysqlDatabase(Scanner, Database):
    """One connection, which reads one state of all tables that have transactions until it is closed; see `Database`."""

    kind = "mysql"

    def __init__(self, address: DatabaseAddress) -> None:
        state = None if address.consistency is None else State.read(address.consistency)
        super().__init__(MysqlSession(address), state)
        self._address = address
        self._bounds: dict[tuple[TableName, str], tuple[datetime, datetime] | None] = {}
        self._counted: dict[tuple[TableName, datetime], tuple[datetime, int]] = {}  # windows: their ends and rows

    def extract(self, selection: Selection, refusals: Refusals | None = None) -> DatabaseSchema:
        """Describe the selection; see `Database`."""
        found = refusals or Refusals()
        if selection.query is not None:
            schema = extract_query(self.session, selection, selection.query)
        else:
            schema = extract_schema(self.session, selection, found)
        check_split(selection, schema, RANGED)
        check_masks(schema, self._check_masks, found, cast_type)
        if refusals is None:
            found.raise_any()
        return schema

    def _check_masks(self, table: Table, conditions: str) -> None:
        self.session.rows(
            f"EXPLAIN SELECT 1 FROM {self.from_item(table)} WHERE {conditions}",
            f"reading the masks of {table.table_name}",
        )

    def unfit(self, table: Table, rows: Sequence[Rows]) -> list[SnapshotError]:
        """Find values that native carriers cannot hold; see `Database`."""
        return find_unfit(self, table, rows)

    def interrupt(self) -> None:
        """End the query that another thread runs; see `Database`."""
        self.session.interrupt()

    def estimate(self, scan: Scan) -> int:
        """Estimate a scan's bytes by the optimizer's rows and the size of the table; see `Database.estimate`."""
        if is_query(scan.table):  # its rows cannot be estimated without running it
            return 0
        rows = self._rows(scan)
        known, size, _ = self._sizes(scan.table)
        least = _LEAST_ROW * len(scan.table.columns)
        return round(rows * (size / known if known else least))

    def _sizes(self, table: Table) -> tuple[int, int, str]:
        """Return the rows and bytes of a table, as the server estimates them, and its engine; "" of a view."""
        sizes = self.session.rows(_SIZES, f"estimating {table.table_name}", tuple(table.table_name))
        one = sizes[0] if sizes else {}
        return int(one.get("row_count") or 0), int(one.get("bytes") or 0), str(one.get("engine") or "").lower()

    def _rows(self, scan: Scan) -> float:
        if isinstance(scan.rows, WindowRows) and (counted := self._counted_rows(scan.table, scan.rows)) is not None:
            return counted
        query = f"SELECT * FROM {self.from_item(scan.table)} WHERE {self.where(scan)}"
        plan = self.session.rows(f"EXPLAIN {query}", f"estimating {scan.table.table_name}")
        rows = max((float(step["rows"] or 0) for step in plan), default=0.0)
        if isinstance(scan.rows, WindowRows) and plan[0]["type"] == "ALL":
            rows *= self._share(scan.table, scan.rows)
        return rows

    def _counted_rows(self, table: Table, rows: WindowRows) -> int | None:
        """Return the rows of windows in a row that were counted, as their sum."""
        found, at = 0, rows.start
        while at < rows.end:
            if (known := self._counted.get((table.table_name, at))) is None:
                return None
            at, count = known
            found += count
        return found if at == rows.end else None

    def _share(self, table: Table, rows: WindowRows) -> float:
        """Return which part of a table's time a window has; no index tells how many rows that is."""
        key = (table.table_name, rows.zone)
        if key not in self._bounds:
            self._bounds[key] = self.time_bounds((table,), rows.zone)
        if (bounds := self._bounds[key]) is None:
            return 0.0
        overlap = min(rows.end, bounds[1] + _LEAST_TIME) - max(rows.start, bounds[0])
        return max(overlap / (bounds[1] + _LEAST_TIME - bounds[0]), 0.0)

    def count_rows(self, reads: Sequence[tuple[Table, Sequence[Rows]]], *, thorough: bool) -> list[list[int] | None]:
        """Count rows without secondary indexes; see `Database.count_rows`."""
        return [self._counts(table, rows) for table, rows in reads]

    def _counts(self, table: Table, rows: Sequence[Rows]) -> list[int] | None:
        known, _, engine = self._sizes(table)
        if is_query(table) or engine != "innodb":
            return None  # of a view or another engine, two queries may read two states
        numbered = list(enumerate(rows))
        windows = [(number, each) for number, each in numbered if isinstance(each, WindowRows)]
        windows.sort(key=lambda window: window[1].start)
        counts = [0] * len(rows)
        ranges = self._counted_ranges(table, known)
        for begin in range(0, max(len(windows), 1), _WINDOWS):
            others = [] if begin else [(n, each) for n, each in numbered if not isinstance(each, WindowRows)]
            number = _number_of_set(table, others, windows[begin : begin + _WINDOWS])
            where = "true"
            if len(rows) == 1:  # groups take longer than a predicate
                number, where = "0", MysqlTimeColumn.predicate(table, rows[0])
            values = f"{number} AS n, COUNT(*) AS found"
            for row in self._at_once(table, values, [f"{where} AND {each} GROUP BY 1" for each in ranges]):
                if row["n"] is not None:
                    counts[row["n"]] += row["found"]
        self._counted |= {(table.table_name, each.start): (each.end, counts[number]) for number, each in windows}
        return counts

    def _counted_ranges(self, table: Table, known: int) -> list[str]:
        """Return the predicates of as many ranges of the key as connections hold the state; of all rows of others."""
        readers = self.state.readers if self.state is not None and known >= _COUNTED_AT_ONCE else 1
        column = ranged_key(table, RANGED) if readers > 1 else None
        found = dive(self.session, self.from_item(table), column, "true", readers) if column is not None else None
        return [each.predicate for each in found.ranges(readers)] if found is not None else ["true"]

    def _at_once(self, table: Table, values: str, parts: Sequence[str]) -> list[dict[str, Any]]:
        """Return the rows of queries of a table's parts; each has a connection, and reads the table itself."""
        if len(parts) == 1:
            return self.rows_of(table, values, parts[0], " USE INDEX ()")
        with ExitStack() as stack:
            others = [stack.enter_context(closing(MysqlDatabase(self._address))) for _ in parts[1:]]
            databases = [self, *others]
            pool = stack.enter_context(ThreadPoolExecutor(len(databases)))

            def read() -> list[dict[str, Any]]:
                index = " FORCE INDEX (PRIMARY)"
                found = pool.map(lambda one, where: one.rows_of(table, values, where, index), databases, parts)
                return list(chain.from_iterable(found))

            def interrupt() -> None:
                for each in databases:
                    each.interrupt()

            return interruptible(read, interrupt)

    def split(self, scan: Scan, parts: int) -> list[Scan]:
        """Divide a scan by ranges of the primary key, which are read one after the other; see `Database.split`."""
        column = ranged_key(scan.table, COMPARED) if parts > 1 else None
        ranges = self._divisors(scan, column, parts).ranges(parts) if column is not None else []
        return [replace(scan, part=each) for each in ranges] if len(ranges) > 1 else [scan]

    def divide(self, scan: Scan, parts: int) -> list[ColumnRange]:
        """Divide rows by the primary key, in whose order InnoDB stores them; see `Database.divide`."""
        column = ranged_key(scan.table, RANGED)
        within = scan.rows.range if isinstance(scan.rows, KeyRows) else None
        return [] if column is None else self._divisors(scan, column, parts).ranges(parts, within)

    def _divisors(self, scan: Scan, column: Column, parts: int) -> Quantiles:
        """Return the values that divide a key's rows: by estimates where all of a range of the key is read."""
        found = None
        if ranged_key(scan.table, RANGED) is not None and self._has_all(scan, column):
            found = dive(self.session, self.from_item(scan.table), column, self.where(scan), parts)
        return found or self._quantiles(scan, column, parts, parts * _SAMPLED)

    def _has_all(self, scan: Scan, column: Column) -> bool:
        """Return whether nearly all rows between the least and the greatest value of a key are read."""
        if not isinstance(scan.rows, WindowRows):
            return isinstance(scan.rows, AllRows | KeyRows)
        if column.name == scan.table.time_index:
            return True
        counted = self._counted_rows(scan.table, scan.rows)
        return counted is not None and counted >= _NEARLY_ALL * self._sizes(scan.table)[0]

    def quantiles(self, scan: Scan, column: str, parts: int) -> Quantiles:
        """Return the values that divide a column's rows; see `Database.quantiles`."""
        self.set_bounds(scan.rows)
        return self._quantiles(scan, scan.table.column(column), parts, SAMPLE_ROWS)

    def _quantiles(self, scan: Scan, column: Column, parts: int, sampled: int) -> Quantiles:
        name, kind = identifier(column.name), ColumnType(column.type)
        # To sort all rows takes longer than to read them.
        share = min(min(sampled, SAMPLE_ROWS) / max(self._rows(scan), 1.0), 1.0)
        sample = f"{self.where(scan)} AND {name} IS NOT NULL{f' AND RAND() < {share:.9f}' if share < 1 else ''}"
        tiles = (
            f"SELECT {name} AS value, NTILE({parts}) OVER (ORDER BY {name}) AS tile FROM {self.from_item(scan.table)}"
        )
        query = (
            f"SELECT CAST(MIN(value) AS CHAR) AS value, COUNT(*) AS found FROM ({tiles} WHERE {sample}) t GROUP BY tile"
        )
        rows = self.session.rows(f"{query} ORDER BY tile", f"dividing {scan.table.table_name}")
        values = tuple(str(row["value"]) for row in rows)
        return Quantiles(column.name, kind.ranged, sum(row["found"] for row in rows), values)

    def count_outside(self, table: Table, start: datetime, end: datetime, zone: str = "UTC") -> int:
        """Count the rows with a finite time outside `[start, end)`."""
        outside = MysqlTimeColumn.of(table, zone).outside(start, end)
        return int(self.rows_of(table, "COUNT(*) AS found", outside)[0]["found"])

    def time_bounds(
        self, tables: tuple[Table, ...], zone: str = "UTC", within: tuple[datetime, datetime] | None = None
    ) -> tuple[datetime, datetime] | None:
        """Return the least and greatest finite time over the timed tables; see `SchemaSource.time_bounds`."""
        ends: list[datetime] = []
        for table in tables:
            if table.time_index is None:
                continue
            time = MysqlTimeColumn.of(table, zone)
            values = ", ".join(f"CAST({end}({time.name}) AS CHAR) AS {end}" for end in ("min", "max"))
            for where in time.finite_parts if within is None else (time.within(*within),):
                [row] = self.rows_of(table, values, where)
                ends += [time.instant(text) for text in row.values() if text is not None]
        return (min(ends), max(ends)) if ends else None

    def fence(self) -> dict[str, str]:
        """Return the server's version and identity, and its binary log's position at the state, if it has one."""
        names = "'server_uuid', 'server_id'"
        rows = self.session.rows(f"SHOW VARIABLES WHERE Variable_name IN ({names})", "reading the state")
        rows += self.session.rows("SHOW STATUS LIKE 'binlog_snapshot_%'", "reading the state")
        found = {row["Variable_name"].lower(): row["Value"] for row in rows}
        fence = {name: value for name, value in found.items() if value}
        return {"mysql": self.session.version, **fence, **(self.state.fence if self.state else {})}

    def changes_since(self, parts: Sequence[ExportedRows]) -> list[Answer]:
        """Tell which sets have another number of rows; of the others nothing is known. See `Database.changes_since`."""
        return [self._change(part) for part in parts]

    def _change(self, part: ExportedRows) -> Answer:
        if is_query(part.table):
            return Answer(Verdict.UNKNOWN, "the rows of queries have no versions", lasting=True)
        where = MysqlTimeColumn.predicate(part.table, part.rows)
        found = int(self.rows_of(part.table, "COUNT(*) AS found", where)[0]["found"])
        if found != part.count:
            return Answer(Verdict.CHANGED, f"{part.count} rows were exported, and there are {found}", found)
        return Answer(Verdict.UNKNOWN, "MySQL's rows have no versions", found, lasting=True)

    def stateless(self, schema: DatabaseSchema) -> str:
        """Return which tables, but not what views read, have no transactions; see `SchemaSource.stateless`."""
        if not (outside := [str(each.table_name) for each in schema.tables if without_transactions(each)]):
            return ""
        engines = "engine" if len(outside) == 1 else "engines"
        return (
            f"The {engines} of {some_text(outside)} {'has' if len(outside) == 1 else 'have'} no transactions: rows that"
            " are written during the export may be missing, or there twice. Export these tables while nobody writes."
        )

    def hold(self, readers: Callable[[], int]) -> AbstractContextManager[HeldState]:
        """Hold one state on as many connections as read at a time, if this user may; see `Database`."""
        return hold(self._address, readers)

    def close(self) -> None:
        """Close the connection."""
        self.session.close()


def _number_of_set(table: Table, others: Sequence[tuple[int, Rows]], windows: Sequence[tuple[int, WindowRows]]) -> str:
    """Return SQL for the number of the set that a row belongs to. Most rows are in windows, and are tried first."""
    cases = [f"WHEN {MysqlTimeColumn.predicate(table, each)} THEN {number}" for number, each in others]
    if windows:
        within = MysqlTimeColumn.predicate(table, replace(windows[0][1], end=windows[-1][1].end))
        cases.insert(0, f"WHEN {within} THEN {_number_of_window(table, windows)}")
    return f"CASE {' '.join(cases)} END" if cases else "NULL"


def _number_of_window(table: Table, windows: Sequence[tuple[int, WindowRows]]) -> str:
    """Return SQL for the number of the window of a row between the first and the last one, found by halves."""
    half = len(windows) // 2
    if not half:
        return str(windows[0][0])
    early, late = (_number_of_set(table, (), each) for each in (windows[:half], windows[half:]))
    return f"COALESCE({early}, {late})"
