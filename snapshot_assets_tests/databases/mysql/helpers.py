"""Reads tables of MariaDB for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from snapshot_assets.databases.protocol.source import AllRows, DatabaseAddress, Rows, Scan, Selection
from snapshot_assets.format.relations import Carrier, DatabaseSchema, Table, TableName
from snapshot_assets.testing.restores import read_scan, source
from snapshot_assets_tests.servers.mariadb import MariadbServer

SHOP = TableName("shop", "t")


@contextmanager
def large_packets(server: MariadbServer) -> Iterator[None]:
    """Let the server take and send packets of 128 MiB until the context ends."""
    before = server.sql("SELECT @@GLOBAL.max_allowed_packet")
    server.sql("SET GLOBAL max_allowed_packet = 134217728")
    try:
        yield
    finally:
        server.sql(f"SET GLOBAL max_allowed_packet = {before}")


def described(uri: str, selection: Selection | None = None) -> DatabaseSchema:
    """Return the documents of a database."""
    with source(DatabaseAddress("shop", uri)) as database:
        return database.extract(selection or Selection())


def table_of(uri: str, name: str = "t", carriers: dict[str, Carrier] | None = None) -> Table:
    """Return the document of a table of `shop`, untimed."""
    table = TableName("shop", name)
    by_column = {(table, column): carrier for column, carrier in (carriers or {}).items()}
    selection = Selection(tables=(table,), time_columns={table: None}, carriers=by_column)
    return described(uri, selection).table(table)


def values_of(
    uri: str, table: Table, rows: Rows | None = None, order_by: tuple[str, ...] = ()
) -> dict[str, list[object]]:
    """Return a table's values by column."""
    with source(DatabaseAddress("shop", uri)) as database:
        found = read_scan(database, Scan(table, rows or AllRows(), order_by=order_by))
    return {name: found[name].to_pylist() for name in found.column_names}
