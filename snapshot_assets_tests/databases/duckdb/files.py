"""Database files made for a test, and what a test needs to look at them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa

from snapshot_assets.databases.open import open_database
from snapshot_assets.databases.source import AllRows, Database, DatabaseAddress, Rows, Scan, Selection
from snapshot_assets.format.relations import Table, TableName

MAIN_T = TableName("main", "t")


def make_file(path: Path, *statements: str) -> DatabaseAddress:
    """Make a database file by statements; returns its address."""
    with duckdb.connect(str(path)) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for statement in statements:
            connection.execute(statement)
    return DatabaseAddress("shop", path.as_uri().replace("file:", "duckdb:", 1))


@contextmanager
def opened(address: DatabaseAddress) -> Iterator[Database]:
    database = open_database(address)
    try:
        yield database
    finally:
        database.close()


def rows_of(database: Database, table: Table, rows: Rows | None = None, part: str | None = None) -> pa.Table:
    """Return a scan's rows, its batches checked to have the document's schema and a bounded size."""
    with database.scan(Scan(table, rows or AllRows(), part)) as batches:
        found = list(batches)
    for batch in found:
        assert batch.schema.equals(table.arrow_schema(), check_metadata=True)
        assert batch.num_rows
    return pa.Table.from_batches(found, table.arrow_schema())


def documented(database: Database, name: TableName = MAIN_T, **selection: object) -> Table:
    return database.extract(Selection(**selection)).table(name)  # type: ignore[arg-type]
