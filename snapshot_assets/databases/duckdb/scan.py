"""Reads rows: one streamed query for each scan, within the memory of a task for rows of any size."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import duckdb
import pyarrow as pa
from duckdb.sqltypes import DuckDBPyType

from snapshot_assets.databases.carriers import scanned_carrier
from snapshot_assets.databases.duckdb.batches import BATCH_BYTES, conform
from snapshot_assets.databases.duckdb.session import DuckDBSession
from snapshot_assets.databases.duckdb.time_predicates import DuckDBTimeColumn
from snapshot_assets.databases.duckdb.types import carry
from snapshot_assets.databases.source import Estimate, Scan
from snapshot_assets.databases.sql import identifier
from snapshot_assets.errors import DatabaseError
from snapshot_assets.format.names import ColumnPath, column_text
from snapshot_assets.format.relations import Column, Table

_VECTOR = 2048  # rows that DuckDB processes at once, and the fewest in a batch
_ROW_GROUP = 122_880
_MOST_VECTORS = 8
_PROBE_ROWS = 16
_PART = re.compile(r"rowid:(\d+)-(\d+)")


@dataclass(frozen=True)
class _Range:
    """Row ids `[start, stop)`."""

    start: int
    stop: int

    @property
    def sql(self) -> str:
        return f"(rowid >= {self.start} AND rowid < {self.stop})"


@dataclass(frozen=True)
class _Query:
    """A scan in SQL.

    Attributes:
        table: Quoted name of the table or view.
        columns: The select list.
        where: The predicate of its rows.
        row_ids: Whether its rows have ids. Rows of a view have none, and a column named `rowid` hides them.
    """

    table: str
    columns: str
    where: str
    row_ids: bool

    def sql(self, *more: str) -> str:
        return f"SELECT {self.columns} FROM {self.table} WHERE {' AND '.join((self.where, *more))}"


class Reader:
    """Reads the tables of an open database."""

    def __init__(self, session: DuckDBSession) -> None:
        self._session = session

    @contextmanager
    def scan(self, scan: Scan) -> Iterator[Iterator[pa.RecordBatch]]:
        """Stream a scan's rows; see `Database.scan`."""
        query = self._query(scan)
        with self._session.cursor() as cursor:
            batches = self._batches(cursor, query, f"reading {scan.table.table_name}")
            try:
                yield conform(batches, scan.table)
            finally:
                batches.close()

    def estimate(self, scan: Scan) -> Estimate:
        """Count the rows, and estimate their size from a few of them; see `Database.estimate`."""
        query = self._query(scan)
        rows = int(self._first_row("count(*)", scan.table, query.where)[0])
        with self._session.cursor() as cursor, self._session.translated(f"reading {scan.table.table_name}"):
            return Estimate(rows, round(rows * self._row_bytes(cursor, query)))

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

    def _first_row(self, values: str, table: Table, where: str) -> tuple[Any, ...]:
        query = f"SELECT {values} FROM {self._session.relation(table.table_name)} WHERE {where}"
        row: tuple[Any, ...] = self._session.rows(query, doing=f"reading {table.table_name}")[0]
        return row

    def _query(self, scan: Scan) -> _Query:
        relation = self._session.relation(scan.table.table_name)
        kinds = self._session.types(f"FROM {relation}", f"reading the columns of {scan.table.table_name}")
        columns = [_selected(scan.table, column, kinds) for column in scan.table.columns]
        where = DuckDBTimeColumn.predicate(scan.table, scan.rows)
        if scan.part is not None:
            where = f"{where} AND {_part(scan.part).sql}"
        row_ids = "view" not in scan.table.options and "rowid" not in map(str.lower, kinds)
        return _Query(relation, ", ".join(columns), where, row_ids)

    def _batches(
        self, cursor: duckdb.DuckDBPyConnection, query: _Query, doing: str
    ) -> Generator[pa.RecordBatch, None, None]:
        with self._session.translated(doing):
            width = self._row_bytes(cursor, query)
            vectors = int(BATCH_BYTES / (width * _VECTOR)) if width else _MOST_VECTORS
            if vectors or not query.row_ids:
                yield from _stream(cursor, query.sql(), min(max(vectors, 1), _MOST_VECTORS) * _VECTOR)
                return
            # A single vector of rows as large as these is too large, so each query reads a few row ids. Not too few,
            # because some compressions unpack a whole vector for any of its rows.
            step = max(int(4 * BATCH_BYTES / width), 1)
            for rows in self._occupied(cursor, query, step):
                yield from _stream(cursor, query.sql(rows.sql), _VECTOR)

    def _occupied(self, cursor: duckdb.DuckDBPyConnection, query: _Query, step: int) -> Iterator[_Range]:
        slices = cursor.sql(
            f"SELECT rowid // {step} AS slice FROM {query.table} WHERE {query.where} GROUP BY slice ORDER BY slice"
        ).fetchall()
        yield from (_Range(slice_ * step, (slice_ + 1) * step) for (slice_,) in slices)

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
        samples = [cursor.sql(query.sql(_Range(start, start + _PROBE_ROWS).sql)).to_arrow_table() for start in starts]
        return max((sample.nbytes / sample.num_rows for sample in samples if sample.num_rows), default=0.0)


def _stream(cursor: duckdb.DuckDBPyConnection, query: str, rows: int) -> Iterator[pa.RecordBatch]:
    reader = cursor.sql(query).to_arrow_reader(rows)
    try:
        yield from reader
    finally:
        reader.close()


def _part(text: str) -> _Range:
    match = _PART.fullmatch(text)
    if match is None:
        raise DatabaseError(f"{text!r} is not a part of a DuckDB scan, such as rowid:0-122880.")
    return _Range(int(match.group(1)), int(match.group(2)))


def _selected(table: Table, column: Column, kinds: Mapping[str, DuckDBPyType]) -> str:
    where = column_text(ColumnPath(table.table_name, column.name))
    quoted = identifier(column.name)
    found = str(kinds[column.name]) if column.name in kinds else None
    carried = scanned_carrier(table, column, found, lambda override: carry(kinds[column.name], override, where))
    return f"{carried.select(quoted)} AS {quoted}"
