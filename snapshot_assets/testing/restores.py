"""Copies databases through the protocols of sources and targets, without files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa

from snapshot_assets.databases.convert.schema import converted
from snapshot_assets.databases.definition import Definition, Statement
from snapshot_assets.databases.open import kind_of, open_database, open_target, target_module
from snapshot_assets.databases.protocol.source import AllRows, Database, DatabaseAddress, Scan, Selection
from snapshot_assets.databases.protocol.sql_target import SqlTarget
from snapshot_assets.databases.protocol.steps import steps_of
from snapshot_assets.databases.protocol.target import LoadedFile, RestoreRecord
from snapshot_assets.format.relations import Carrier, DatabaseSchema, TableName

LOCATION = "0" * 32


def utc(*parts: int) -> datetime:
    """Return an instant in UTC."""
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc, arg-type]


@contextmanager
def source(address: DatabaseAddress) -> Iterator[Database]:
    """Open a database as a source; it is closed at the end."""
    with closing(open_database(address)) as database:
        yield database


@contextmanager
def target(address: DatabaseAddress) -> Iterator[SqlTarget]:
    """Open a database as a target; it is closed at the end."""
    with closing(open_target(address)) as opened:
        yield opened


def read_scan(database: Database, scan: Scan) -> pa.Table:
    """Return a scan's rows; checks that its batches have the document's schema and rows."""
    with database.scan(scan) as scanned:
        batches = list(scanned)
    for batch in batches:
        assert batch.schema.equals(scan.table.arrow_schema(), check_metadata=True)
        assert batch.num_rows
        batch.validate(full=True)
    return pa.Table.from_batches(batches, scan.table.arrow_schema())


def extracted(
    address: DatabaseAddress, *tables: TableName, carriers: Mapping[tuple[TableName, str], Carrier] | None = None
) -> DatabaseSchema:
    """Return a database's documents; the given tables are untimed."""
    with source(address) as database:
        return database.extract(Selection(tables=tables, time_columns=dict.fromkeys(tables), carriers=carriers or {}))


def definition_of(
    schema: DatabaseSchema, into: DatabaseAddress, *, expressions: bool = True, code: bool = False
) -> Definition:
    """Return how to create a schema in a target, converted if it is of another kind."""
    module, kind = target_module(into), kind_of(into.uri)
    if schema.database == kind.name:
        return module.define(schema, expressions=expressions, code=code)
    mapped, lost = converted(schema, kind.name, module)
    definition = module.define(mapped, expressions=expressions)
    return replace(definition, lost=(*lost, *definition.lost))


def record_of(definition: Definition, id_: str = "a" * 32) -> RestoreRecord:
    """Return the record of an import of all tables."""
    tables = tuple(table.table_name for table in definition.tables)
    return RestoreRecord(id_, LOCATION, "file:///snapshots/x", 1, "c" * 64, "{}", tables)


def entry(table: TableName, record: RestoreRecord, path: str = "") -> LoadedFile:
    """Return the ledger row of a file of chunk 0."""
    return LoadedFile(LOCATION, table, path or f"data/0/{table}.parquet", 0, "f" * 64, record.id)


def make(opened: SqlTarget, record: RestoreRecord, statements: Iterable[Statement]) -> None:
    """Make all steps of statements; fails if one of them does."""
    results = opened.make(record, steps_of(statements))
    failed = [each for each in results.values() if each.failed]
    assert not failed, failed


def copy(
    schema: DatabaseSchema,
    origin: DatabaseAddress,
    into: DatabaseAddress,
    *,
    expressions: bool = True,
    code: bool = False,
) -> Definition:
    """Create a schema's tables in a target and load all their rows; continue where an earlier call ended."""
    definition = definition_of(schema, into, expressions=expressions, code=code)
    with source(origin) as database, target(into) as opened:
        earlier = opened.imports()
        record = earlier[-1] if earlier else record_of(definition)
        if not earlier:
            opened.begin(record, "")
            make(opened, record, definition.before)
        documents = {table.table_name: table for table in schema.tables}
        for table in definition.tables:
            name = table.table_name
            columns = [documents[name].column(each.name) for each in table.columns if each.generated is None]
            stored = documents[name].model_copy(update={"columns": tuple(columns)})
            with database.scan(Scan(stored, AllRows())) as batches:
                opened.load(entry(name, record), table, batches)
        make(opened, record, definition.after)
        opened.finish(record)
    return definition
