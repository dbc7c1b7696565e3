"""A DuckDB database file as a source: one streamed query for each scan, within the memory of a task for any rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import duckdb
import pyarrow as pa
from duckdb.sqltypes import DuckDBPyType

from snapshot_assets.databases.duckdb import KIND
from snapshot_assets.databases.duckdb.introspect import extract_schema, spelled
from snapshot_assets.databases.duckdb.session import DuckDBSession
from snapshot_assets.databases.duckdb.time_predicates import DuckDBTimeColumn
from snapshot_assets.databases.duckdb.types import RANGED, carry
from snapshot_assets.databases.duckdb.unfit_values import (
    BATCH_BYTES,
    MOST_VECTORS,
    conform,
    merge_batches,
    unfit_conditions,
)
from snapshot_assets.databases.protocol.query import (
    ORDERED,
    SAMPLE_ROWS,
    ColumnRange,
    Quantiles,
    Query,
    fractions,
    is_query,
    query_schema,
)
from snapshot_assets.databases.protocol.refusals import Refusals
from snapshot_assets.databases.protocol.scan_order import order_clause
from snapshot_assets.databases.protocol.source import (
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
from snapshot_assets.databases.protocol.time_column import TimedSource
from snapshot_assets.databases.selection.columns import scanned_column, unfit_value
from snapshot_assets.databases.selection.hidden import check_masks
from snapshot_assets.databases.selection.selection import check_split, ranged_key
from snapshot_assets.databases.selection.spelled_selection import SpelledNames
from snapshot_assets.databases.sql import identifier
from snapshot_assets.errors import DatabaseError, SnapshotError
from snapshot_assets.format.arrow_types import arrow_type_text
from snapshot_assets.format.names import ColumnPath, column_text
from snapshot_assets.format.relations import Column, DatabaseSchema, Table, TableName
from snapshot_assets.format.units import time_text

_ANY_WINDOW = WindowRows(datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 2, tzinfo=UTC))


_VECTOR = 2048  # rows that DuckDB processes at once, and the fewest in a batch
_ROW_GROUP = 122_880
_PROBE_ROWS = 16
_PART = re.compile(r"rowid:(\d+)-(\d+)")


def extract_query(session: DuckDBSession, selection: Selection, query: Query) -> DatabaseSchema:
    """Describe a query's relation."""
    name = TableName("main", query.name)
    start, end = (f"getvariable('snapshots_{bound}')" for bound in ("start", "end"))
    sql = query.with_bounds(start, end)
    types = query_types(session, sql, _ANY_WINDOW)
    selection = SpelledNames(KIND.names, [name.schema], {name: types}).selection(selection)
    columns = []
    for column, kind in types.items():
        carried = carry(kind, selection.carriers.get((name, column)), column_text(ColumnPath(name, column)))
        arrow_type = arrow_type_text(carried.arrow)
        columns.append(Column(name=column, type=str(kind), arrow_type=arrow_type, carrier=carried.carrier))
    return query_schema("duckdb", name, columns, query, {"sql": sql})


def query_types(session: DuckDBSession, sql: str, rows: Rows) -> dict[str, DuckDBPyType]:
    """Return the columns of a query and their types, without running it."""
    with session.cursor() as cursor, session.translated("reading the query"):
        set_bounds(cursor, rows)
        relation = cursor.sql(f"FROM (\n{sql}\n)")
        return dict(zip(relation.columns, relation.types, strict=True))


def set_bounds(cursor: duckdb.DuckDBPyConnection, rows: Rows) -> None:
    """Set the bounds of a window; nothing for all rows."""
    if isinstance(rows, WindowRows):
        for bound, at in (("start", rows.start), ("end", rows.end)):
            cursor.execute(f"SET VARIABLE snapshots_{bound} = TIMESTAMPTZ '{time_text(at)}'")


@dataclass(frozen=True)
class _Query:
    """A scan in SQL."""

    table: str
    columns: str
    where: str
    row_ids: bool  # rows of a view have none, and a column named `rowid` hides them
    order: str = ""  # the clause that sorts the rows

    def sql(self, *more: str) -> str:
        return f"SELECT {self.columns} FROM {self.table} WHERE {' AND '.join((self.where, *more))}"


class DuckDBDatabase(TimedSource, Database):
    """An open DuckDB database file, read side, in the state that its address demands. See `Database`.

    It counts no rows: DuckDB runs inside the task, and has no other form to count by.
    """

    kind = "duckdb"
    time_column = DuckDBTimeColumn

    def __init__(self, address: DatabaseAddress) -> None:
        self._address = address
        self._session = DuckDBSession(address)

    def extract(self, selection: Selection, refusals: Refusals | None = None) -> DatabaseSchema:
        """Describe the selected schemas, tables and views; see `Database.extract`."""
        found = refusals or Refusals()
        if selection.query is not None:
            schema = extract_query(self._session, selection, selection.query)
        else:
            schema = extract_schema(self._session, selection, found)
        check_split(selection, schema, RANGED)
        check_masks(schema, self._check_masks, found)
        if refusals is None:
            found.raise_any()
        return schema

    def spelled(self, selection: Selection) -> Selection:
        """Return a selection with the catalog's names; see `Database.spelled`."""
        return selection if selection.query is not None else spelled(self._session, selection)

    def unfit(self, table: Table, rows: Sequence[Rows]) -> list[SnapshotError]:
        """Find values that native carriers cannot hold; see `Database`."""
        kinds = self._session.column_types(table.table_name)
        checks = list(unfit_conditions(table, kinds))
        if not checks:
            return []
        values = ", ".join(f"coalesce(bool_or({condition}), false)" for _, condition, _ in checks)
        where = " OR ".join(DuckDBTimeColumn.predicate(table, each) for each in rows)
        found = self._first_row(values, table, where)
        unfit = [check for check, is_there in zip(checks, found, strict=True) if is_there]
        return [unfit_value(table, column, what, early=True) for column, _, what in unfit]

    def _check_masks(self, table: Table, conditions: str) -> None:
        # A row of NULLs: DuckDB finds some errors only while it computes a row, and quotes the row's values in them.
        nulls = f"FROM (SELECT 1) AS one LEFT JOIN {self._session.relation(table.table_name)} AS rows ON false"
        source = f"(SELECT rows.* {nulls}) AS {identifier(table.name)}"
        self._session.rows(
            f"SELECT 1 FROM {source} WHERE {conditions}", doing=f"reading the masks of {table.table_name}"
        )

    def interrupt(self) -> None:
        """Cancel the query that another thread runs; see `Database`."""
        self._session.interrupt()

    @contextmanager
    def scan(self, scan: Scan) -> Iterator[Iterator[pa.RecordBatch]]:
        """Stream a scan's rows; see `Database.scan`."""
        query = self._query(scan)
        with self._session.cursor() as cursor:
            set_bounds(cursor, scan.rows)
            batches = self._batches(cursor, query, f"reading {scan.table.table_name}")
            try:
                yield conform(batches, scan.table)
            finally:
                batches.close()

    def estimate(self, scan: Scan) -> int:
        """Count the rows, and estimate their size from a few of them; see `Database.estimate`."""
        if is_query(scan.table):  # its rows cannot be counted without running it
            return 0
        query = self._query(scan)
        rows = int(self._first_row("count(*)", scan.table, query.where)[0])
        with self._session.cursor() as cursor, self._session.translated(f"reading {scan.table.table_name}"):
            return round(rows * self._row_bytes(cursor, query))

    def split(self, scan: Scan, parts: int) -> list[Scan]:
        """Cut a scan by ranges of row ids, at the edges of DuckDB's row groups; a view is not cut. See `Database`."""
        query = self._query(scan)
        if not query.row_ids or parts < 2:
            return [scan]
        least, greatest = self._first_row("min(rowid), max(rowid)", scan.table, query.where)
        if least is None:
            return [scan]
        groups = range(least // _ROW_GROUP, greatest // _ROW_GROUP + 1)
        parts = min(parts, len(groups))
        edges = [groups[0] + len(groups) * part // parts for part in range(parts)] + [groups[-1] + 1]
        return [
            replace(scan, part=f"rowid:{start * _ROW_GROUP}-{stop * _ROW_GROUP}") for start, stop in pairwise(edges)
        ]

    def divide(self, scan: Scan, parts: int) -> list[ColumnRange]:
        """Divide rows by a sample of the key; see `Database.divide`."""
        query, column = self._query(scan), ranged_key(scan.table, RANGED)
        if column is None or not query.row_ids:
            return []
        rows = f"SELECT {identifier(column.name)} AS value, rowid AS id FROM {query.table} WHERE {query.where}"
        sample = f"SELECT * FROM ({rows}) USING SAMPLE reservoir({SAMPLE_ROWS} ROWS)"
        ranks = f"SELECT value, rank() OVER (ORDER BY value) AS a, rank() OVER (ORDER BY id) AS b FROM ({sample})"
        sql = f"SELECT abs(corr(a, b)), quantile_disc(value, {fractions(parts)})::VARCHAR[] FROM ({ranks})"
        [(correlation, values)] = self._session.rows(sql, doing=f"dividing {scan.table.table_name}")
        within = scan.rows.range if isinstance(scan.rows, KeyRows) else None
        ordered = (correlation or 0) >= ORDERED
        return Quantiles(column.name, column.type, 0, tuple(values)).ranges(parts, within) if ordered else []

    def quantiles(self, scan: Scan, column: str, parts: int) -> Quantiles:
        """Return the values that divide a sample of a column; see `Database.quantiles`."""
        query, name = self._query(scan), identifier(column)
        present = f"SELECT {name} AS value FROM {query.table} WHERE {query.where} AND {name} IS NOT NULL"
        sample = f"SELECT value FROM ({present}) USING SAMPLE reservoir({SAMPLE_ROWS} ROWS)"
        sql = f"SELECT count(*), quantile_disc(value, {fractions(parts)})::VARCHAR[] FROM ({sample})"
        with self._session.cursor() as cursor, self._session.translated(f"sampling {column} of {scan.table.name}"):
            set_bounds(cursor, scan.rows)
            [(rows, values)] = cursor.execute(sql).fetchall()
        return Quantiles(column, scan.table.column(column).type, rows, tuple(values or ()))

    def _first_row(self, values: str, table: Table, where: str) -> tuple[Any, ...]:
        query = f"SELECT {values} FROM {self._session.relation(table.table_name)} WHERE {where}"
        return tuple(self._session.rows(query, doing=f"reading {table.table_name}")[0])

    def _query(self, scan: Scan) -> _Query:
        table, where, row_ids = scan.table, _part(scan.part), False
        if is_query(table):
            sql = table.options["sql"]
            source, kinds = f"(\n{sql}\n) AS copied", query_types(self._session, sql, scan.rows)
        else:
            source, kinds = self._session.relation(table.table_name), self._session.column_types(table.table_name)
            where = f"{DuckDBTimeColumn.predicate(table, scan.rows)} AND {where}"
            row_ids = "view" not in table.options and "rowid" not in map(str.lower, kinds)

        def selected(column: Column) -> str:
            found = str(kinds[column.name]) if column.name in kinds else None
            return scanned_column(
                table, column, found, lambda override, name: carry(kinds[column.name], override, name)
            )

        columns = ", ".join(map(selected, table.columns))
        numbers = list(map(str, range(1, len(table.columns) + 1)))
        return _Query(source, columns, where, row_ids, order_clause(scan, numbers, '"binary"'))

    def _batches(
        self, cursor: duckdb.DuckDBPyConnection, query: _Query, doing: str
    ) -> Generator[pa.RecordBatch, None, None]:
        with self._session.translated(doing):
            if query.order or not query.row_ids:  # may be costly to run, so it runs once, without a look at its rows
                yield from merge_batches(_stream(cursor, query.sql() + query.order, _VECTOR))
                return
            width = self._row_bytes(cursor, query)
            vectors = int(BATCH_BYTES / (width * _VECTOR)) if width else MOST_VECTORS
            if vectors:
                yield from _stream(cursor, query.sql(), min(vectors, MOST_VECTORS) * _VECTOR)
                return
            # A single vector of rows as large as these is too large, so each query reads a few row ids. Not too few,
            # because some compressions unpack a whole vector for any of its rows.
            step = max(int(4 * BATCH_BYTES / width), 1)
            slices = cursor.sql(
                f"SELECT rowid // {step} AS slice FROM {query.table} WHERE {query.where} GROUP BY slice ORDER BY slice"
            ).fetchall()
            for (slice_,) in slices:
                rows = _row_range(slice_ * step, (slice_ + 1) * step)
                yield from _stream(cursor, query.sql(rows), _VECTOR)

    def _row_bytes(self, cursor: duckdb.DuckDBPyConnection, query: _Query) -> float:
        """Estimate the Arrow bytes of a row from a few rows at the beginning, the middle and the end."""
        if not query.row_ids:
            sample = cursor.sql(f"{query.sql()} LIMIT {_PROBE_ROWS}").to_arrow_table()
            return sample.nbytes / sample.num_rows if sample.num_rows else 0.0
        least, greatest = cursor.sql(
            f"SELECT min(rowid), max(rowid) FROM {query.table} WHERE {query.where}"
        ).fetchall()[0]
        if least is None:
            return 0.0
        starts = (least, (least + greatest) // 2, max(greatest - _PROBE_ROWS + 1, 0))
        samples = [cursor.sql(query.sql(_row_range(start, start + _PROBE_ROWS))).to_arrow_table() for start in starts]
        return max((sample.nbytes / sample.num_rows for sample in samples if sample.num_rows), default=0.0)

    def fence(self) -> dict[str, str]:
        """Return the state of the file, `inode:bytes:modified`, and the version of DuckDB."""
        return {"duckdb_file": self._session.token, "duckdb": duckdb.__version__}

    def changes_since(self, parts: Sequence[ExportedRows]) -> list[Answer]:
        """Tell that nothing changed while the file is the same; else only values show what did."""
        state, answers = self._session.token, []
        for part in parts:
            if is_query(part.table) or "view" in part.table.options:
                answers.append(Answer(Verdict.UNKNOWN, "the rows of views and queries have no versions", lasting=True))
            elif part.fence.get("duckdb_file") == state:
                answers.append(Answer(Verdict.UNCHANGED))
            else:
                answers.append(Answer(Verdict.UNKNOWN, "the file was written since, and its rows have no versions"))
        return answers

    @contextmanager
    def hold(self, readers: Callable[[], int]) -> Iterator[HeldState]:
        """Keep the file open for reading until the context ends; until then no process can write to it.

        The token is the state of the file. A connection that demands this state refuses to open in another one.
        """
        with closing(DuckDBSession(self._address)) as session:
            yield session

    def close(self) -> None:
        """Close the connection; the file is released with the last one of this process."""
        self._session.close()


def _stream(cursor: duckdb.DuckDBPyConnection, query: str, rows: int) -> Iterator[pa.RecordBatch]:
    reader = cursor.sql(query).to_arrow_reader(rows)
    try:
        yield from reader
    finally:
        reader.close()


def _part(part: ColumnRange | str | None) -> str:
    """Return the predicate of a scan's part."""
    if part is None:
        return "true"
    if isinstance(part, ColumnRange):
        return part.predicate
    match = _PART.fullmatch(part)
    if match is None:
        raise DatabaseError(f"{part!r} is not a part of a DuckDB scan, such as rowid:0-122880.")
    return _row_range(int(match.group(1)), int(match.group(2)))


def _row_range(start: int, stop: int) -> str:
    return f"(rowid >= {start} AND rowid < {stop})"
