"""Opens databases, extracts single tables, and reads and loads their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa

from snapshot_assets.databases.postgresql import open as open_postgresql
from snapshot_assets.databases.postgresql.session import SETTINGS
from snapshot_assets.databases.postgresql.target import PostgresqlTarget
from snapshot_assets.databases.source import AllRows, Database, DatabaseAddress, Rows, Scan, Selection
from snapshot_assets.format.relations import Carrier, Table, TableName

Run = Callable[[str], list[tuple[Any, ...]]]
"""Runs one statement and returns its rows."""


@contextmanager
def opened(uri: str, token: str | None = None) -> Iterator[Database]:
    database = open_postgresql(DatabaseAddress("shop", uri, token))
    try:
        yield database
    finally:
        database.close()


@contextmanager
def client(uri: str) -> Iterator[Run]:
    """Open a plain connection with the settings for the text of values."""
    with adbc.connect(uri, autocommit=True) as connection:

        def run(statement: str) -> list[tuple[Any, ...]]:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return list(cursor.fetchall()) if cursor.description else []

        for name in ("DateStyle", "IntervalStyle", "TimeZone", "lc_monetary"):
            run(f"SET {name} = '{SETTINGS[name]}'")
        yield run


def execute(uri: str, *statements: str) -> None:
    with client(uri) as run:
        for statement in statements:
            run(statement)


def table_of(
    database: Database,
    name: str = "t",
    *,
    time: str | None = None,
    carriers: Mapping[str, Carrier] | None = None,
) -> Table:
    """Return the document of a table of schema `public`; without `time`, it is untimed."""
    table = TableName("public", name)
    selection = Selection(
        tables=(table,),
        time_columns={table: time},
        carriers={(table, column): carrier for column, carrier in (carriers or {}).items()},
    )
    return database.extract(selection).table(table)


def read(database: Database, table: Table, rows: Rows | None = None) -> pa.Table:
    return read_scan(database, Scan(table, rows or AllRows()))


def read_scan(database: Database, scan: Scan) -> pa.Table:
    with database.scan(scan) as batches:
        read = list(batches)
    for batch in read:
        assert batch.schema.equals(scan.table.arrow_schema(), check_metadata=True)
        batch.validate(full=True)
    return pa.Table.from_batches(read, scan.table.arrow_schema())


def load(uri: str, table: Table, rows: pa.Table, into: str) -> None:
    """Load rows into another table of schema `public`, as a restore does."""
    with closing(PostgresqlTarget(DatabaseAddress("target", uri))) as target, target._transaction():
        target._insert(table.model_copy(update={"name": into}), rows.to_batches())
