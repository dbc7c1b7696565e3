"""Database files for tests: made, opened, read, and held by another process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow as pa

from snapshot_assets.databases.protocol.source import AllRows, Database, DatabaseAddress, Rows, Scan, Selection
from snapshot_assets.format.relations import Table, TableName
from snapshot_assets.testing.restores import read_scan, source

MAIN_T = TableName("main", "t")
opened = source

_HOLD = """
import sys, duckdb
connection = duckdb.connect(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
"""


def make_file(path: Path, *statements: str) -> DatabaseAddress:
    """Make a database file by statements; returns its address."""
    with duckdb.connect(str(path)) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for statement in statements:
            connection.execute(statement)
    return DatabaseAddress("shop", path.as_uri().replace("file:", "duckdb:", 1))


def path_of(address: DatabaseAddress) -> str:
    return address.uri.removeprefix("duckdb://")


def hold_elsewhere(address: DatabaseAddress) -> subprocess.Popen[str]:
    """Open a file for writing in another process, until the process gets input."""
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, path_of(address)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "open\n"
    return holder


def rows_of(database: Database, table: Table, rows: Rows | None = None, part: str | None = None) -> pa.Table:
    return read_scan(database, Scan(table, rows or AllRows(), part))


def documented(database: Database, name: TableName = MAIN_T, **selection: object) -> Table:
    return database.extract(Selection(**selection)).table(name)  # type: ignore[arg-type]
