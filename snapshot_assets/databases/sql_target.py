"""What the SQL databases share as targets: the ledger, and what is one transaction.

The ledger's SQL is understood by PostgreSQL and DuckDB alike.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields
from typing import Any

import pyarrow as pa

from snapshot_assets.databases.references import Reference, parents_first, refusal
from snapshot_assets.databases.source import AllRows, Rows
from snapshot_assets.databases.target import (
    LEDGER_SCHEMA,
    ExistingTable,
    Load,
    LoadedFile,
    OtherType,
    RestoreRecord,
    Statement,
    not_renewable,
    superseded,
)
from snapshot_assets.errors import OtherImportError, RestoreError, SnapshotError, TransientError
from snapshot_assets.format.relations import Table, TableName

_IMPORTS = f'"{LEDGER_SCHEMA}"."imports"'
_FILES = f'"{LEDGER_SCHEMA}"."files"'
_LEDGER = (
    Statement("the ledger's schema", f'CREATE SCHEMA IF NOT EXISTS "{LEDGER_SCHEMA}"'),
    Statement(
        "the ledger of imports",
        f"""CREATE TABLE IF NOT EXISTS {_IMPORTS} (
            number bigint NOT NULL, id text PRIMARY KEY, location_id text NOT NULL, location text NOT NULL,
            revision bigint NOT NULL, checksum text NOT NULL, filters text NOT NULL, tables text NOT NULL,
            made text NOT NULL, tag text NOT NULL, finished boolean NOT NULL, into_nonempty boolean NOT NULL,
            windows text, started_at timestamp with time zone DEFAULT now())""",
    ),
    Statement(  # which an earlier version did not have
        "the ledger's windows",
        f"ALTER TABLE {_IMPORTS} ADD COLUMN windows text",
        unless="SELECT 1 AS found FROM information_schema.columns"
        f" WHERE table_schema = '{LEDGER_SCHEMA}' AND table_name = 'imports' AND column_name = 'windows'",
    ),
    Statement(
        "the ledger of files",
        f"""CREATE TABLE IF NOT EXISTS {_FILES} (
            location_id text NOT NULL, table_schema text NOT NULL, table_name text NOT NULL, path text NOT NULL,
            chunk bigint NOT NULL, sha256 text NOT NULL, import_id text NOT NULL, rows bigint NOT NULL,
            PRIMARY KEY (location_id, table_schema, table_name, path))""",
    ),
)
_RECORDED = tuple(field.name for field in fields(RestoreRecord))


class SqlTarget(ABC):
    """A target with transactions; see `Target`.

    Attributes:
        deletes_parents: Whether a transaction deletes rows that were referred to by rows which it has deleted.
    """

    kind: str
    deletes_parents = True

    # What a database has to offer

    @abstractmethod
    def _execute(self, sql: str, doing: str) -> None:
        """Run one statement."""

    @abstractmethod
    def _rows(self, sql: str, doing: str) -> list[dict[str, Any]]:
        """Return the rows of a query, or of a statement with RETURNING, by column name."""

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[None]:
        """Run what is inside as one transaction; taken back if anything is raised."""

    @abstractmethod
    def _insert(self, table: Table, batches: Iterable[pa.RecordBatch]) -> int:
        """Insert batches into a table, inside the transaction; returns their rows."""

    @abstractmethod
    def _literal(self, value: str) -> str:
        """Return a string constant."""

    @abstractmethod
    def _qualified(self, name: TableName) -> str:
        """Return a quoted table name."""

    def _own_rows(self, name: TableName) -> str:
        """Return the FROM item of a table's rows, without those of other tables that inherit from it."""
        return self._qualified(name)

    @abstractmethod
    def _predicate(self, table: Table, rows: Rows) -> str:
        """Return the SQL predicate of some rows of a timed table."""

    @abstractmethod
    def _lock(self, tables: Sequence[TableName] = ()) -> None:
        """Until the transaction ends, keep other imports from changing the ledger, or anybody from changing tables."""

    @abstractmethod
    def _lock_imports(self) -> None:
        """Until the transaction ends, keep imports from being begun; loads may go on side by side."""

    @abstractmethod
    def _references(self, tables: Sequence[TableName]) -> list[Reference]:
        """Return the foreign keys in the target that refer to rows of tables, whosever they are."""

    @abstractmethod
    def existing(self, tables: Sequence[TableName]) -> dict[TableName, ExistingTable]:
        """Describe those of the tables that exist; see `Target`."""

    @abstractmethod
    def other_types(self, tables: Sequence[Table]) -> list[OtherType]:
        """Return the columns that are there with another type than the tables give them; see `Target`."""

    # The ledger

    def imports(self) -> list[RestoreRecord]:
        """Return the imports that the ledger knows, oldest first; see `Target`."""
        if not self._has_ledger():
            return []
        rows = self._rows(f"SELECT * FROM {_IMPORTS} ORDER BY number", "reading the ledger")
        return [_record(row) for row in rows]

    def loaded(self, location_id: str) -> list[LoadedFile]:
        """Return the files of a location that the ledger knows; see `Target`."""
        if not self._has_ledger():
            return []
        rows = self._rows(
            f"SELECT table_schema, table_name, path, chunk, sha256, import_id, rows FROM {_FILES}"
            f" WHERE location_id = {self._literal(location_id)} ORDER BY path, table_schema, table_name",
            "reading the ledger",
        )
        return [
            LoadedFile(
                location_id,
                TableName(row["table_schema"], row["table_name"]),
                row["path"],
                row["chunk"],
                row["sha256"],
                row["import_id"],
                row["rows"],
            )
            for row in rows
        ]

    def _has_ledger(self) -> bool:
        return TableName(LEDGER_SCHEMA, "files") in self.existing([TableName(LEDGER_SCHEMA, "files")])

    def begin(self, record: RestoreRecord, statements: Sequence[Statement], newest: str) -> RestoreRecord:
        """Record an import and run its first statements; see `Target`."""
        with self._transaction():
            self._lock()
            self._run(_LEDGER)
            known = [each for each in self.imports() if set(each.tables) & set(record.tables)]
            if known and known[-1].id != newest:
                return known[-1]
            self._run(statements)
            values = {
                "number": f"(SELECT coalesce(max(number), 0) + 1 FROM {_IMPORTS})",
                **{name: self._constant(getattr(record, name)) for name in _RECORDED},
            }
            self._execute(
                f"INSERT INTO {_IMPORTS} ({', '.join(values)}) SELECT {', '.join(values.values())}",
                "recording the import",
            )
        return record

    def load(self, file: LoadedFile, table: Table, batches: Iterable[pa.RecordBatch]) -> int | None:
        """Insert a file's rows and its ledger row in one transaction; see `Target`."""
        with self._transaction():
            self._lock_imports()
            self._check_newest(file.table, file.import_id)
            return self._load(file, table, batches)

    def _check_newest(self, table: TableName, import_id: str) -> None:
        """Refuse rows of an import into a table that is not the newest one: that may have replaced them by now."""
        rows = self._rows(f"SELECT id, tables FROM {_IMPORTS} ORDER BY number", "reading the ledger")
        newest = [row["id"] for row in rows if list(table) in json.loads(row["tables"])][-1:]
        if newest != [import_id]:
            raise OtherImportError(superseded(table, import_id, *newest), table=str(table))

    def _load(self, file: LoadedFile, table: Table, batches: Iterable[pa.RecordBatch]) -> int | None:
        key = self._key(file)
        values = key | self._facts(file) | {"rows": "0"}
        # First of all, so that a run that loads the same file at the same time waits here for this one's end.
        inserted = self._rows(
            f"INSERT INTO {_FILES} ({', '.join(values)}) VALUES ({', '.join(values.values())})"
            " ON CONFLICT DO NOTHING RETURNING path",
            _noting(file),
        )
        if not inserted:
            return None
        rows = self._insert(table, batches)
        self._execute(f"UPDATE {_FILES} SET rows = {rows} WHERE {_matches(key)}", _noting(file))
        return rows

    def _key(self, file: LoadedFile) -> dict[str, str]:
        return {
            "location_id": self._literal(file.location_id),
            "table_schema": self._literal(file.table.schema),
            "table_name": self._literal(file.table.table),
            "path": self._literal(file.path),
        }

    def _facts(self, file: LoadedFile) -> dict[str, str]:
        return {
            "chunk": str(file.chunk),
            "sha256": self._literal(file.sha256),
            "import_id": self._literal(file.import_id),
        }

    def replace(self, chunk: int, loads: Sequence[Load]) -> int:
        """Delete a chunk's rows and load its files of now, in one transaction; see `Target`."""
        given = {load.table.table_name: load for load in loads}
        total = 0
        with self._transaction():
            self._lock(list(given))
            references = self._references(list(given)) if given else []
            self._lock([each.table for each in references])
            for name, load in given.items():
                self._check_newest(name, load.import_id)
            for reference in references:
                if self._holds(reference, given):
                    words = refusal(chunk, reference, with_children=self.deletes_parents)
                    raise RestoreError(words, chunk=chunk, table=str(reference.parent), key=reference.name)
            ordered = [given[name] for name in parents_first(list(given), references)]
            for load in reversed(ordered):
                self._delete(chunk, load)
            for load in ordered:
                for file, table, batches in load.files:
                    total += self._load(file, table, batches) or 0
        return total

    def _delete(self, chunk: int, load: Load) -> None:
        name = load.table.table_name
        self._execute(
            f"DELETE FROM {self._own_rows(name)}{self._where(load.table, load.rows)}",
            f"deleting the rows of chunk {chunk} from {name}",
        )
        self._execute(
            f"DELETE FROM {_FILES} WHERE location_id = {self._literal(load.location_id)} AND chunk = {chunk}"
            f" AND table_schema = {self._literal(name.schema)} AND table_name = {self._literal(name.table)}",
            f"deleting chunk {chunk} from the ledger",
        )

    def _holds(self, reference: Reference, loads: Mapping[TableName, Load]) -> bool:
        """Tell whether rows that are to be deleted are referred to by rows that stay, or count as if they did."""
        parent, child = loads[reference.parent], loads.get(reference.table)
        stays = ""
        if child is not None and self.deletes_parents:
            if isinstance(child.rows, AllRows):
                return False
            stays = f" AND ({self._predicate(child.table, child.rows)}) IS NOT TRUE"
        going = "" if isinstance(parent.rows, AllRows) else f" AND ({self._predicate(parent.table, parent.rows)})"
        referred = f"SELECT 1 FROM {self._own_rows(reference.referred)} AS p WHERE {reference.match}{going}"
        found = f"SELECT 1 FROM {self._own_rows(reference.child)} AS c WHERE EXISTS ({referred}){stays}"
        doing = f"looking for rows that foreign key {reference.name} of {reference.table} ties"
        return bool(self._rows(f"SELECT EXISTS ({found}) AS found", doing)[0]["found"])

    def renew(self, record: RestoreRecord, old: Sequence[LoadedFile], new: Sequence[LoadedFile]) -> None:
        """Know rows that are in by other files; see `RestoreTarget`."""
        with self._transaction():
            self._lock()
            for name in {each.table for each in (*old, *new)}:
                self._check_newest(name, record.id)
            held = {(each.table, each.path): each for each in self.loaded(record.location_id)}
            if any((each.table, each.path) not in held for each in old):
                if all(held.get((each.table, each.path)) == each for each in new):
                    return
                raise RestoreError(not_renewable(old))
            for file in old:
                self._execute(f"DELETE FROM {_FILES} WHERE {_matches(self._key(file))}", _noting(file))
            for file in new:
                values = self._key(file) | self._facts(file) | {"rows": str(file.rows)}
                self._execute(
                    f"INSERT INTO {_FILES} ({', '.join(values)}) VALUES ({', '.join(values.values())})", _noting(file)
                )

    def finish(self, record: RestoreRecord, statements: Sequence[Statement]) -> None:
        """Run the last statements and mark the import as finished; see `Target`."""
        with self._transaction():
            self._lock()
            if any(known.id == record.id and known.finished for known in self.imports()):
                return
            self._run(statements)
            self._execute(
                f"UPDATE {_IMPORTS} SET finished = true WHERE id = {self._literal(record.id)}", "finishing the import"
            )

    def count(self, table: Table, rows: Rows) -> int:
        """Count a table's rows; see `Target`."""
        query = f"SELECT count(*) AS rows FROM {self._own_rows(table.table_name)}{self._where(table, rows)}"
        return int(self._rows(query, f"counting {table.table_name}")[0]["rows"])

    def forget(self) -> None:
        """Drop the ledger; see `Target`."""
        if not self._has_ledger():
            return
        with self._transaction():
            self._execute(f'DROP SCHEMA IF EXISTS "{LEDGER_SCHEMA}" CASCADE', "dropping the ledger")

    def _where(self, table: Table, rows: Rows) -> str:
        return "" if isinstance(rows, AllRows) else f" WHERE {self._predicate(table, rows)}"

    def _run(self, statements: Sequence[Statement]) -> None:
        for statement in statements:
            with _making(statement):
                if statement.unless and self._rows(statement.unless, f"looking for {statement.makes}"):
                    continue
                self._execute(statement.sql, f"making {statement.makes}")

    def _constant(self, value: object) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return self._literal(json.dumps([list(name) for name in value]))
        return str(value) if isinstance(value, int) else self._literal(str(value))


def _matches(key: Mapping[str, str]) -> str:
    return " AND ".join(f"{name} = {value}" for name, value in key.items())


def _noting(file: LoadedFile) -> str:
    return f"noting {file.path} in the ledger"


@contextmanager
def _making(statement: Statement) -> Iterator[None]:
    try:
        yield
    except TransientError:
        raise
    except SnapshotError as error:
        raise RestoreError(
            f"{statement.makes} could not be made: {error} Nothing of this step was kept.", makes=statement.makes
        ) from error


def _record(row: Mapping[str, Any]) -> RestoreRecord:
    names = {field: tuple(TableName(*name) for name in json.loads(row[field])) for field in ("tables", "made")}
    known = {name: row[name] for name in _RECORDED if row.get(name) is not None}  # an earlier version recorded less
    return RestoreRecord(**{**known, **names})
