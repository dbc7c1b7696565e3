"""A DuckDB file as a target: one writer, and one transaction for each data file and its ledger row."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import duckdb
import pyarrow as pa
from duckdb.sqltypes import DuckDBPyType

from snapshot_assets.databases.definition import FailedStatement, Rehearsal, Statement
from snapshot_assets.databases.duckdb import memory_limit_of, path_of
from snapshot_assets.databases.duckdb.ddl import TARGET, Lacking, has_key, without_keys
from snapshot_assets.databases.duckdb.parser import check_statement
from snapshot_assets.databases.duckdb.session import DuckDBConnection, session_config, translated
from snapshot_assets.databases.duckdb.time_predicates import DuckDBTimeColumn
from snapshot_assets.databases.duckdb.types import ingest
from snapshot_assets.databases.protocol.driver_batches import Feed
from snapshot_assets.databases.protocol.interruptible import interruptible
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.databases.protocol.sql_target import SqlTarget
from snapshot_assets.databases.protocol.steps import SchemaStep, StepResult
from snapshot_assets.databases.protocol.target import ExistingTable, OtherType, Reference, RestoreRecord
from snapshot_assets.databases.sql import identifier, literal
from snapshot_assets.errors import DatabaseDeniedError, DatabaseError, SnapshotError
from snapshot_assets.format.relations import Table, TableName

_LOG = logging.getLogger(__name__)
_STREAM = "snapshot_assets_stream"
_COLUMNS = """
    SELECT c.schema_oid, c.table_name, c.column_name, v.view_oid IS NOT NULL FROM duckdb_columns() c
    LEFT JOIN duckdb_views() v ON v.database_name = c.database_name AND v.view_oid = c.table_oid
    WHERE c.database_name = ? AND NOT c.internal ORDER BY c.table_oid, c.column_index
"""
_GENERATED = """
    SELECT schema_oid, table_name, column_name FROM duckdb_columns()
    WHERE database_name = ? AND NOT internal AND is_generated
"""
_FOREIGN_KEYS = """
    SELECT schema_oid, constraint_name, table_name, referenced_table, constraint_column_names, referenced_column_names
    FROM duckdb_constraints() WHERE database_name = ? AND constraint_type = 'FOREIGN KEY'
    ORDER BY table_oid, constraint_index
"""
_SEQUENCES = "SELECT schema_name, sequence_name FROM duckdb_sequences() WHERE database_name = ?"
_INDEXES = "SELECT schema_oid, index_name FROM duckdb_indexes() WHERE database_name = ?"
_MACROS = "SELECT 1 AS found FROM duckdb_functions() WHERE database_name = ? AND NOT internal LIMIT 1"


class DuckDBTarget(DuckDBConnection, SqlTarget):
    """A database file that is written to; see `SqlTarget`.

    The first write creates the file or opens it for writing. Until then it is open read-only, which does not change it
    or its write-ahead log. See `open_database` for its errors; `DatabaseDeniedError` also means that the file, or its
    folder, may not be written to, or that the folder does not exist.
    """

    kind = "duckdb"
    database = TARGET
    time_column = DuckDBTimeColumn
    deletes_parents = False

    def __init__(self, address: DatabaseAddress) -> None:
        self.alias = address.alias
        self._address = address
        self._path = path_of(address.uri)
        self._writes = False
        self._opened: duckdb.DuckDBPyConnection | None = None
        folder = os.path.dirname(self._path)
        if os.path.exists(self._path):
            self._opened = self._open(writes=False)
        elif not os.access(folder, os.W_OK | os.X_OK):
            raise DatabaseDeniedError(
                f"DuckDB {self.alias!r}: {self._path!r} cannot be created: there is no folder {folder!r} that this"
                " process may write to."
            )

    def _open(self, *, writes: bool = True, indexing: bool = False) -> duckdb.DuckDBPyConnection:
        if not os.access(self._path, os.W_OK) and os.path.exists(self._path):
            raise DatabaseDeniedError(f"DuckDB {self.alias!r}: {self._path!r} may not be written to.")
        # ATTACH needs external access, so that is switched off afterwards.
        config = {**session_config(self._address.uri), "enable_external_access": True, "preserve_insertion_order": True}
        if indexing and not memory_limit_of(self._address.uri):
            del config["memory_limit"]
        self._writes, mode = writes, "" if writes else ", READ_ONLY"
        if not os.path.exists(self._path):
            self._create()
        with translated(f"Opening DuckDB {self.alias!r} ({self._path}) for {'writing' if writes else 'reading'}"):
            connection = duckdb.connect(config=config)
            try:
                connection.execute(f"ATTACH {literal(self._path)} AS {identifier(TARGET)} (TYPE duckdb{mode})")
                connection.execute(f"USE {identifier(TARGET)}")
                connection.execute("SET TimeZone = 'UTC'")
                connection.execute("SET enable_external_access = false")
                connection.execute("SET lock_configuration = true")
            except BaseException:
                connection.close()
                raise
        return connection

    def _create(self) -> None:
        """Create an empty file under another name, and link it: DuckDB cannot open a partly created file."""
        new = f"{self._path}.{secrets.token_hex(4)}.new"
        try:
            with translated(f"Creating DuckDB {self.alias!r} ({self._path})"):
                duckdb.connect(new, config=session_config(self._address.uri)).close()
            with suppress(FileExistsError):  # another process created it
                os.link(new, self._path)
        except OSError as error:  # a file system without links; then DuckDB creates the file when it opens it
            _LOG.warning("%s cannot be linked (%s): an import killed at its start may leave a torn file", new, error)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(new)

    @property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    def interrupt(self) -> None:
        """Cancel the statement that another thread runs; see `SqlTarget`."""
        self._connection.interrupt()

    def existing(self, tables: Sequence[TableName]) -> dict[TableName, ExistingTable]:
        """Describe the tables that exist; see `SqlTarget`."""
        if self._opened is None or not tables:
            return {}
        schemas = self.schema_names()
        wanted = {(name.schema.lower(), name.table.lower()): name for name in tables}  # DuckDB ignores case in names
        found: dict[TableName, tuple[bool, list[str]]] = {}
        for schema, table, column, is_view in self.rows(_COLUMNS, [TARGET]):
            name = wanted.get((schemas[schema].lower(), table.lower()))
            if name is not None:
                found.setdefault(name, (is_view, []))[1].append(column)
        sequences = {wanted.get((row[0].lower(), row[1].lower())) for row in self.rows(_SEQUENCES, [TARGET])}
        filled = self._with_rows([name for name, (is_view, _) in found.items() if not is_view])
        return {name: ExistingTable((), False, "sequence") for name in sequences if name is not None} | {
            name: ExistingTable(tuple(columns), name in filled, "view" if is_view else "table")
            for name, (is_view, columns) in found.items()
        }

    def other_types(self, tables: Sequence[Table]) -> list[OtherType]:
        """Return the columns whose type in the target differs from the tables' type; see `SqlTarget`."""
        existing = self.existing([table.table_name for table in tables])
        present = [table for table in tables if table.table_name in existing]
        if not present:
            return []  # nothing opens a file that is only looked at for writing, or creates it
        others = [other for table in present for other in _others(table, self.column_types(table.table_name))]
        schemas, generated = self.schema_names(), self.rows(_GENERATED, [TARGET])
        computed = {(schemas[schema].lower(), table.lower(), column) for schema, table, column in generated}
        for table in present:
            for column in table.columns:
                there = (table.schema_name.lower(), table.name.lower(), column.name) in computed
                if there is not (column.generated is not None):
                    found, wanted = (f"{column.type}, generated" if e else column.type for e in (there, not there))
                    others.append(OtherType(table.table_name, column.name, found, wanted))
        return others

    def would_keep(self, record: RestoreRecord, steps: Sequence[SchemaStep]) -> dict[str, StepResult]:
        """Return the steps that would keep what the file has; none if there is no file yet. See `SqlTarget`."""
        return {} if self._opened is None else super().would_keep(record, steps)

    def rehearse(self, statements: Sequence[Statement]) -> Rehearsal:
        """Return the indexes whose names are taken, and what lacks something that no file has but one with macros.

        Nothing is run: a file that is only planned for is open read-only, or does not exist.
        """
        macros = [] if self._opened is None else self.rows(_MACROS, [TARGET])
        lacking = (each for each in statements if isinstance(each, Lacking) and not macros)
        failed = [FailedStatement(each, each.reason) for each in lacking]
        taken = set() if self._opened is None else self._index_names()
        for each in statements:
            if each.table is not None and each.key.kind == "index":
                name = str(each.key.name)
                if (each.table.schema.lower(), name.lower()) in taken:
                    failed.append(FailedStatement(each, f"an index {name} is in schema {each.table.schema} already"))
        return Rehearsal(tuple(failed))

    def _index_names(self) -> set[tuple[str, str]]:
        """Return schema and name of the file's indexes, in lower case."""
        schemas = self.schema_names()
        return {(schemas[schema].lower(), name.lower()) for schema, name in self.rows(_INDEXES, [TARGET])}

    def close(self) -> None:
        """Close the file."""
        if self._opened is not None:
            with suppress(duckdb.Error):
                self._opened.rollback()
            self._opened.close()
            self._opened = None

    def _prepare_reading(self) -> None:
        # DuckDB builds indexes in memory. This does not run in a task, so DuckDB's own limit of memory applies.
        self.close()
        self._opened = self._open(indexing=True)

    def by_hand(self, step: SchemaStep) -> tuple[str, ...]:
        """Return a step's statements without the name that the file has here; see `SqlTarget`."""
        own, name = f"{identifier(TARGET)}.", literal(TARGET)
        return tuple(sql.replace(own, "").replace(name, "current_database()") for sql in step.by_hand)

    def _exists_already(self, error: SnapshotError, step: SchemaStep) -> bool:
        # DuckDB raises the same class for what is missing, so the catalog decides.
        if step.table is None or not isinstance(error.__cause__, duckdb.CatalogException):
            return False
        if step.kind == "index":
            return (step.table.schema.lower(), str(step.key.name).lower()) in self._index_names()
        if step.kind == "primary key":
            return bool(self._rows(has_key(step.table, "PRIMARY KEY"), f"looking for {step.key}"))
        if not step.makes_relation and step.kind != "foreign key":
            return False
        wanted = step.table if step.makes_relation else without_keys(step.table)
        return any(each.what != "sequence" for each in self.existing([wanted]).values())

    def _violated(self, error: SnapshotError) -> bool:
        return isinstance(error.__cause__, duckdb.ConstraintException)

    def cursor(self) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        """Return the connection itself, for all statements of a transaction."""
        return nullcontext(self._connection)

    def _execute(self, sql: str, doing: str) -> None:
        check_statement(self._connection, sql, f"The SQL for {doing}")
        with self.translated(doing):
            interruptible(lambda: self._connection.execute(sql).fetchall(), self.interrupt)

    def _rows(self, sql: str, doing: str) -> list[dict[str, Any]]:
        return self.records(sql, doing=doing)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        if not self._writes:
            self.close()
            self._opened = self._open()
        with self.translated("starting a transaction"):
            self._connection.begin()
        try:
            yield
            with self.translated("committing"):
                self._connection.commit()
        except BaseException:
            with suppress(duckdb.Error):  # a failed commit has ended the transaction
                self._connection.rollback()
            raise

    def _insert(self, table: Table, batches: Iterable[pa.RecordBatch]) -> int:
        name = table.table_name
        kinds = self.column_types(name)
        for other in _others(table, kinds):
            raise DatabaseError(
                f"Column {name}.{other.column} is {other.found} in the target, where the import needs"
                f" {other.expected}. Drop the table and let the import create it.",
                column=other.column,
            )
        stored = (column for column in table.columns if column.generated is None)
        how = {column.name: ingest(name, column, kinds[column.name]) for column in stored}
        feed = Feed(batches, pa.schema([(column, arrow_type) for column, (arrow_type, _) in how.items()]))
        into, values = ", ".join(map(identifier, how)), ", ".join(value for _, value in how.values())
        self._connection.register(_STREAM, feed.reader())
        try:
            with feed.errors(), self.translated(f"loading {name}"):
                self._connection.execute(
                    f"INSERT INTO {self.relation(name)} ({into}) SELECT {values} FROM {identifier(_STREAM)}"
                )
        finally:
            with suppress(duckdb.Error):  # the transaction failed; the next stream replaces this one
                self._connection.unregister(_STREAM)
        return feed.rows

    def _own_rows(self, names: Sequence[TableName]) -> Mapping[TableName, str]:
        return {name: self.relation(name) for name in names}

    def _references(self, tables: Sequence[TableName]) -> list[Reference]:
        schemas, wanted = self.schema_names(), set(tables)
        references = []
        for schema, name, table, parent, columns, referred in self.rows(_FOREIGN_KEYS, [TARGET]):
            child, parent_name = (TableName(schemas[schema], each) for each in (table, parent))
            if parent_name in wanted:
                pairs = zip(referred, columns, strict=True)
                match = " AND ".join(f"p.{identifier(there)} = c.{identifier(here)}" for there, here in pairs)
                references.append(Reference(name, child, child, parent_name, parent_name, match))
        return references


def _others(table: Table, kinds: Mapping[str, DuckDBPyType]) -> list[OtherType]:
    """Return the columns of a table whose type in the target, given by `kinds`, differs."""
    return [
        OtherType(table.table_name, column.name, str(kinds.get(column.name, "missing")), column.type)
        for column in table.columns
        if column.generated is None and str(kinds.get(column.name)) != column.type
    ]
