"""Reads rows: a scan as one query, whose values are cast to the Arrow types of the table's document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from snapshot_assets.databases.mysql.binary_rows import NoDateError
from snapshot_assets.databases.mysql.held import State
from snapshot_assets.databases.mysql.session import MysqlSession
from snapshot_assets.databases.mysql.time_predicates import MysqlTimeColumn
from snapshot_assets.databases.mysql.types import ColumnType
from snapshot_assets.databases.protocol.query import ColumnRange, is_query
from snapshot_assets.databases.protocol.source import Rows, Scan, WindowRows
from snapshot_assets.databases.protocol.time_column import utc_text
from snapshot_assets.databases.selection.columns import scanned_column, unfit_value, unrestorable
from snapshot_assets.databases.sql import identifier, qualified
from snapshot_assets.errors import DatabaseError
from snapshot_assets.format.relations import Column, Table

NO_DATE = "a date that is none, such as 0000-00-00, or one of the year 0"

_TYPES = "SELECT column_name AS name, column_type AS type FROM information_schema.columns WHERE table_schema = %s AND"


class Scanner:
    """Reads tables over one session.

    Attributes:
        session: The session.
        state: The held state that it reads; None if it reads one of its own.
    """

    def __init__(self, session: MysqlSession, state: State | None = None) -> None:
        self.session = session
        self.state = state

    def types_of(self, table: Table) -> dict[str, ColumnType]:
        """Return the types that the columns of a table or query have now, by name."""
        if is_query(table):
            return {column.name: ColumnType(column.type) for column in table.columns}
        rows = self.session.rows(f"{_TYPES} table_name = %s", f"reading the columns of {table.table_name}",
                                 tuple(table.table_name))  # fmt: skip
        return {row["name"]: ColumnType(row["type"]) for row in rows}

    def from_item(self, table: Table) -> str:
        """Return a table, view or query in SQL."""
        if is_query(table):
            return f"(\n{table.options['sql']}\n) AS copied"
        return qualified(table.table_name)

    def rows_of(self, table: Table, values: str, where: str, more: str = "") -> list[dict[str, Any]]:
        """Return the rows of a query of a table."""
        query = f"SELECT {values} FROM {self.from_item(table)}{more} WHERE {where}"
        return self.session.rows(query, f"reading {table.table_name}")

    def where(self, scan: Scan) -> str:
        """Return the predicate of a scan's rows."""
        if isinstance(scan.part, str):
            raise DatabaseError(f"{scan.part!r} is not a part of a scan of MySQL, which is a range of its key.")
        part = scan.part.predicate if isinstance(scan.part, ColumnRange) else "true"
        if is_query(scan.table):
            return part
        return f"{MysqlTimeColumn.predicate(scan.table, scan.rows)} AND {part}"

    def set_bounds(self, rows: Rows) -> None:
        """Set the variables that queries have in place of the bounds of a window."""
        if isinstance(rows, WindowRows):
            ends = {"start": rows.start, "end": rows.end}
            bounds = (f"@snapshots_{name} = '{utc_text(at)}'" for name, at in ends.items())
            self.session.execute(f"SET {', '.join(bounds)}", "setting the bounds of the window")

    @contextmanager
    def scan(self, scan: Scan) -> Iterator[Iterator[pa.RecordBatch]]:
        """Stream a scan's rows; see `Database.scan`."""
        table = scan.table
        with self.session.keeping_locks():
            if self.state is not None and not is_query(table):
                self.rows_of(table, "1", "false")  # locks the table
                self.state.refuse_altered(self.session, table.table_name)
            selected = self._selected(table, self.types_of(table))
            query = f"SELECT {', '.join(selected.values())} FROM {self.from_item(table)} WHERE {self.where(scan)}"
            self.set_bounds(scan.rows)
            with self.session.stream(query + _order(scan), f"reading {table.table_name}") as chunks:
                yield _batches(table, chunks)

    def _selected(self, table: Table, types: Mapping[str, ColumnType]) -> dict[str, str]:
        def selected(column: Column) -> str:
            kind = types.get(column.name)
            found = kind.text if kind is not None else None
            return scanned_column(
                table, column, found, lambda wanted, name: types[column.name].carry(wanted, name), cast_type=cast_type
            )

        return {column.name: selected(column) for column in table.columns}


def cast_type(text: str) -> str:
    """Return the type that CAST takes for a column's type."""
    return ColumnType(text).cast


def _order(scan: Scan) -> str:
    """Return the clause that sorts a scan's rows by their carried values."""
    keys = []
    for name in scan.order_by:
        text = pa.types.is_string(scan.table.column(name).arrow_field().type)
        # Collations of utf8mb4 ignore blanks at the end, or weigh characters.
        keys.append(f"CAST(CONVERT({identifier(name)} USING utf8mb4) AS BINARY)" if text else identifier(name))
    return f" ORDER BY {', '.join(keys)}" if keys else ""


def _batches(table: Table, chunks: Iterable[Sequence[pa.Array]]) -> Iterator[pa.RecordBatch]:
    try:
        for arrays in chunks:
            yield _batch(table, arrays)
    except NoDateError as error:
        raise unfit_value(table, table.columns[error.column], NO_DATE) from None


def _batch(table: Table, arrays: Sequence[pa.Array]) -> pa.RecordBatch:
    schema = table.arrow_schema()
    columns = []
    for column, field, array in zip(table.columns, schema, arrays, strict=True):
        try:
            columns.append(_typed(array, field.type))
        except pa.ArrowInvalid:
            if pa.types.is_string(field.type):
                raise unrestorable(table, column, "bytes that are no UTF-8", early=False) from None
            raise unfit_value(table, column, "a value of another form") from None
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _typed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return values as values of a type; raise `ArrowInvalid` for those that are none."""
    bytes_of_text = pa.types.is_large_binary(array.type) and not pa.types.is_binary(kind)
    return (array.cast(pa.large_string()) if bytes_of_text else array).cast(kind)
