"""A SQLite file as a source: every task opens it read-only, and the run's holder keeps all others from writing."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow as pa

from snapshot_assets.databases.protocol.refusals import Refusals
from snapshot_assets.databases.protocol.scan_order import order_clause
from snapshot_assets.databases.protocol.source import (
    Answer,
    Database,
    DatabaseAddress,
    ExportedRows,
    HeldState,
    Rows,
    Scan,
    Selection,
    Verdict,
)
from snapshot_assets.databases.protocol.time_column import TimedSource
from snapshot_assets.databases.selection.columns import check_type, columnless_rows, unfit_value
from snapshot_assets.databases.selection.exclusions import without_hidden
from snapshot_assets.databases.selection.hidden import check_masks, hides, mask_of, masked, revealing_view_error
from snapshot_assets.databases.selection.selection import check_selection, selected_schemas, selects
from snapshot_assets.databases.selection.spelled_selection import SpelledNames
from snapshot_assets.databases.sql import identifier, literal
from snapshot_assets.errors import DatabaseError, PlanError, SnapshotError
from snapshot_assets.format.relations import Carrier, Column, DatabaseSchema, Schema, Table
from snapshot_assets_sqlite import KIND
from snapshot_assets_sqlite.introspect import SCHEMA, Relations
from snapshot_assets_sqlite.session import Session
from snapshot_assets_sqlite.types import SqliteTimeColumn, as_text, native_of

_BATCH_BYTES = 8 << 20
_PART = re.compile(r"rowid:(-?\d+)-(-?\d+)")


class SqliteDatabase(TimedSource, Database):
    """An open file; see `Database` for what each method does. `estimate` counts rows, and knows all of them."""

    kind = KIND.name
    time_column = SqliteTimeColumn

    def __init__(self, address: DatabaseAddress) -> None:
        self._address = address
        self._session = Session(address)

    def extract(self, selection: Selection, refusals: Refusals | None = None) -> DatabaseSchema:
        if selection.query is not None:
            raise PlanError("Plans of kind: query cannot read SQLite; select the rows by a view, under tables.")
        found = refusals or Refusals()
        schema = self._tables(selection, found)
        check_masks(schema, self._check_masks, found)
        if refusals is None:
            found.raise_any()
        return schema.model_copy(update={"names": KIND.names.name.lower()})

    def _tables(self, selection: Selection, found: Refusals) -> DatabaseSchema:
        relations = Relations(self._session)
        selection = check_selection(selection, (SCHEMA,), relations.columns, found, KIND.names)
        selected = [name for name in relations.columns if selects(selection, name)]
        tables = [name for name in selected if name not in relations.views or name in selection.tables]
        for name in tables if hides(selection) else ():
            if name in relations.views:
                found.note(
                    revealing_view_error(name, list(relations.columns[name]), "SQLite does not tell what it reads")
                )
        schema = DatabaseSchema(
            database=KIND.name,
            schemas=tuple(Schema(name=name) for name in selected_schemas(selection, selected, (SCHEMA,))),
            tables=tuple(relations.table(name, selection, found) for name in tables),
            views=tuple(relations.view(name) for name in selected if name not in tables),
        )
        return without_hidden(schema, selection, found)

    def _check_masks(self, table: Table, conditions: str) -> None:
        self._session.rows(f"SELECT 1 FROM {identifier(table.name)} WHERE {conditions} LIMIT 0", "reading the masks")

    def spelled(self, selection: Selection) -> Selection:
        return SpelledNames(KIND.names, (SCHEMA,), Relations(self._session).columns).selection(selection)

    def unfit(self, table: Table, rows: Sequence[Rows]) -> list[SnapshotError]:
        where = " OR ".join(SqliteTimeColumn.predicate(table, each) for each in rows)
        if not table.columns:
            return [columnless_rows(table.table_name)] if self._first_row("count(*)", table, where)[0] else []
        checks = [(column, native.unfit) for column in table.columns if (native := _native(column)) is not None]
        if not checks:
            return []
        values = ", ".join(f"max({unfit.format(_value(table, column))})" for column, unfit in checks)
        found = zip(checks, self._first_row(values, table, where), strict=True)
        what = "a value of another type or form"
        return [unfit_value(table, column, what, early=True) for (column, _), there in found if there]

    def fence(self) -> dict[str, str]:
        return {"sqlite_file": self._session.state, "sqlite": sqlite3.sqlite_version}

    def changes_since(self, parts: Sequence[ExportedRows]) -> list[Answer]:
        return [self._answer(part) for part in parts]

    def _answer(self, part: ExportedRows) -> Answer:
        if "view" in part.table.options:
            return Answer(Verdict.UNKNOWN, "the rows of views have no versions", lasting=True)
        if part.fence.get("sqlite_file") == self._session.state:
            return Answer(Verdict.UNCHANGED)
        return Answer(Verdict.UNKNOWN, "the file was written since, and its rows have no versions")

    def estimate(self, scan: Scan) -> int:
        rows = int(self._first_row("count(*)", scan.table, _where(scan))[0])
        lengths = [f"8 + ifnull(length(CAST({identifier(each.name)} AS BLOB)), 0)" for each in scan.table.columns]
        few = f"(SELECT * FROM {identifier(scan.table.name)} LIMIT 1000)"
        sql = f"SELECT avg({' + '.join(lengths) or 0}) FROM {few}"
        return round(rows * (self._session.rows(sql, f"reading {scan.table.name}")[0][0] or 0))

    def count_rows(self, reads: Sequence[tuple[Table, Sequence[Rows]]], *, thorough: bool) -> list[list[int] | None]:
        return [self._counts(table, rows, thorough) for table, rows in reads]

    def _counts(self, table: Table, rows: Sequence[Rows], thorough: bool) -> list[int] | None:
        if not self._has_row_ids(table):
            return None
        conditions = ", ".join(f"count(*) FILTER (WHERE {SqliteTimeColumn.predicate(table, each)})" for each in rows)
        hint = " NOT INDEXED" if thorough else ""
        return list(self._session.rows(f"SELECT {conditions} FROM {identifier(table.name)}{hint}", "counting rows")[0])

    def split(self, scan: Scan, parts: int) -> list[Scan]:
        if parts < 2 or not self._has_row_ids(scan.table):
            return [scan]
        least, greatest = self._first_row("min(rowid), max(rowid)", scan.table, _where(scan))
        if least is None:
            return [scan]
        count = min(parts, greatest - least + 1)
        edges = [least + (greatest + 1 - least) * part // count for part in range(count + 1)]
        return [replace(scan, part=f"rowid:{low}-{high}") for low, high in pairwise(edges)]

    def interrupt(self) -> None:
        self._session.interrupt()

    @contextmanager
    def scan(self, scan: Scan) -> Iterator[Iterator[pa.RecordBatch]]:
        table = scan.table
        known = Relations(self._session).columns.get(table.table_name, {})
        for column in table.columns:
            check_type(table, column, known.get(column.name))
        values = [_carried(table, column) for column in table.columns]
        order = order_clause(scan, [str(number) for number in range(1, len(values) + 1)], "BINARY")
        sql = f"SELECT {', '.join(values)} FROM {identifier(table.name)} WHERE {_where(scan)}{order}"
        with self._session.cursor(sql, f"reading {table.table_name}") as cursor:
            yield _batches(cursor, table)

    @contextmanager
    def hold(self, readers: Callable[[], int]) -> Iterator[HeldState]:
        with closing(Session(self._address, hold=True)) as session:
            yield session

    def close(self) -> None:
        self._session.close()

    def _first_row(self, values: str, table: Table, where: str) -> tuple[Any, ...]:
        sql = f"SELECT {values} FROM {identifier(table.name)} WHERE {where}"
        return self._session.rows(sql, f"reading {table.name}")[0]

    def _has_row_ids(self, table: Table) -> bool:
        """Return whether rows have numbers: not those of views and of tables WITHOUT ROWID."""
        if any(each.name.lower() == "rowid" for each in table.columns):
            return False
        sql = f"SELECT wr FROM pragma_table_list WHERE (schema, type, name) = ('main', 'table', {literal(table.name)})"
        return self._session.rows(sql, f"describing {table.name}") == [(0,)]


def _where(scan: Scan) -> str:
    rows = SqliteTimeColumn.predicate(scan.table, scan.rows)
    if scan.part is None:
        return rows
    match = _PART.fullmatch(str(scan.part))
    if match is None:
        raise DatabaseError(f"{scan.part!r} is not a part of a scan of SQLite, such as rowid:0-1000.")
    return f"{rows} AND rowid >= {match[1]} AND rowid < {match[2]}"


def _native(column: Column) -> Any:
    return native_of(column.type) if column.carrier is Carrier.NATIVE else None


def _value(table: Table, column: Column) -> str:
    mask = mask_of(table, column.name)
    return f"({masked(mask, column.type or 'BLOB')})" if mask else identifier(column.name)


def _carried(table: Table, column: Column) -> str:
    value = _value(table, column)
    return value if column.carrier is Carrier.NATIVE else as_text(value)


def _batches(cursor: sqlite3.Cursor, table: Table) -> Iterator[pa.RecordBatch]:
    rows: list[tuple[Any, ...]] = []
    size = 0
    for row in cursor:
        rows.append(row)
        size += 16 * len(row) + sum(len(value) for value in row if isinstance(value, (str, bytes)))
        if size >= _BATCH_BYTES:
            yield _batch(rows, table)
            rows, size = [], 0
    if rows:
        yield _batch(rows, table)


def _batch(rows: list[tuple[Any, ...]], table: Table) -> pa.RecordBatch:
    arrays = []
    for column, values in zip(table.columns, zip(*rows, strict=True), strict=True):
        native = _native(column)
        try:
            arrays.append(pa.array(values, pa.string()) if native is None else native.array(list(values)))
        except (pa.ArrowException, TypeError, OverflowError) as error:
            raise unfit_value(table, column, str(error)) from error
    return pa.RecordBatch.from_arrays(arrays, schema=table.arrow_schema())
