"""Opens databases, extracts single tables, reads and loads their rows, and restores and dumps schemas."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa

from snapshot_assets.databases.definition import Definition, Statement
from snapshot_assets.databases.postgresql.connect import SETTINGS
from snapshot_assets.databases.postgresql.ddl import define
from snapshot_assets.databases.postgresql.target import PostgresqlTarget
from snapshot_assets.databases.protocol.source import AllRows, Database, DatabaseAddress, Rows, Scan, Selection
from snapshot_assets.databases.protocol.steps import steps_of
from snapshot_assets.databases.protocol.target import RestoreRecord
from snapshot_assets.format.relations import Carrier, DatabaseSchema, Table, TableName
from snapshot_assets.testing.restores import read_scan, source
from snapshot_assets_tests.databases.postgresql.values import TYPES
from snapshot_assets_tests.servers.postgresql import MakeDatabase, PostgresqlServer

Run = Callable[[str], list[tuple[Any, ...]]]
"""Runs one statement and returns its rows."""

EVERYTHING = Path(__file__).with_name("everything.sql").read_text()
"""A schema with every kind of object that can be restored."""

ROWS = Path(__file__).with_name("everything_rows.sql").read_text()
"""Rows for it."""

_RELATIONS = """
    SELECT c.oid::regclass FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'm') AND n.nspname !~ '^pg_|^information_schema$'
    ORDER BY c.oid::regclass::text COLLATE "C"
"""
_SEQUENCES = "SELECT format('%I.%I', schemaname, sequencename), coalesce(last_value::text, '-') FROM pg_sequences"


def opened(uri: str, token: str | None = None) -> AbstractContextManager[Database]:
    return source(DatabaseAddress("shop", uri, token))


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


def queries_that_run(uri: str) -> int:
    """Return how many clients of a database run a query now."""
    sql = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND datname = current_database()"
    with client(uri) as run:
        return int(run(f"{sql} AND pid <> pg_backend_pid() AND backend_type = 'client backend'")[0][0])


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


def load(uri: str, table: Table, rows: pa.Table, into: str) -> None:
    """Load rows into another table of schema `public`, as a restore does."""
    with closing(PostgresqlTarget(DatabaseAddress("target", uri))) as target, target._transaction():
        target._insert(table.model_copy(update={"name": into}), rows.to_batches())


def extracted(uri: str, selection: Selection | None = None) -> DatabaseSchema:
    """Return the documents of a database after a way through JSON, as in a snapshot."""
    with opened(uri) as database:
        return DatabaseSchema.model_validate_json(database.extract(selection or Selection()).model_dump_json())


def in_schemas(*scripts: str) -> str:
    """Return scripts as one, each in a schema of its own."""
    return "".join(
        f"CREATE SCHEMA c{number}; SET search_path = c{number};\n{each}" for number, each in enumerate(scripts)
    )


def run(uri: str, statements: tuple[Statement, ...]) -> None:
    """Run statements one by one in one transaction, as a restore does."""
    with closing(PostgresqlTarget(DatabaseAddress("target", uri))) as target, target._transaction():
        record = RestoreRecord("a" * 32, "loc", "s3://b/p", 1, "c" * 64, "{}", ())
        for step in steps_of(statements):
            target._made(record, step, {}, target._run)


def restore(schema: DatabaseSchema, uri: str, **settings: bool) -> Definition:
    """Create a schema in a database, with settings of `define`."""
    definition = define(schema, **settings)
    run(uri, definition.before)
    run(uri, definition.after)
    return definition


def schema_dump(server: PostgresqlServer, uri: str) -> str:
    """Return what pg_dump prints of a schema, without the random key of its `\\restrict` line."""
    text = server.pg_dump(uri, "--schema-only", "--no-owner", "--no-privileges")
    return re.sub(r"(?m)^(\\(?:un)?restrict) .*$", r"\1", text)


def contents(server: PostgresqlServer, uri: str) -> dict[str, str]:
    """Return row count and content hash of each table, partition and materialized view.

    Sequences have their last value.
    """
    tables = server.psql(uri, "SET search_path = ''", _RELATIONS).splitlines()
    rows = """SELECT count(*), md5(array_agg(t::text ORDER BY t::text COLLATE "C")::text) FROM ONLY"""
    found = server.psql(uri, *(f"{rows} {table} t" for table in tables)).splitlines()
    sequences = server.psql(uri, _SEQUENCES).splitlines()
    return dict(zip(tables, found, strict=True)) | dict(line.rsplit("|", 1) for line in sequences)


def restored_alike(
    server: PostgresqlServer, make: MakeDatabase, script: str, selection: Selection | None = None, **settings: bool
) -> tuple[str, str, DatabaseSchema]:
    """Restore what a script creates; pg_dump prints both alike. Return source, target and documents."""
    source, target = make(), make()
    server.psql_script(source, script)
    schema = extracted(source, selection)
    assert restore(schema, target, **settings).lost == ()
    assert schema_dump(server, target) == schema_dump(server, source)
    return source, target, schema


def texts(uri: str, relation: str) -> list[tuple[Any, ...]]:
    """Return a relation's values as the server prints them."""
    outputs = ", ".join(f"pg_catalog.format('%s', c{number})" for number in range(len(TYPES)))
    nulls = ", ".join(f"c{number} IS NOT DISTINCT FROM NULL" for number in range(len(TYPES)))
    with client(uri) as run:
        run("SET search_path = ''")
        return run(f"SELECT {outputs}, {nulls} FROM public.{relation} ORDER BY n")
