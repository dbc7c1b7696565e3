"""Where rows go back to: what every database module offers to a restore.

A restore makes the target's tables from the schema documents, loads files, each with its ledger row in one
transaction, then makes keys, indexes and views. The ledger lies in the target, in a schema of its own, and is what
makes a resume exact: a file that is in it is in the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from snapshot_assets.databases.source import DatabaseAddress, Rows
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName

LEDGER_SCHEMA = "snapshot_assets_ledger"
"""Schema of the ledger in the target; no restore touches tables of that schema otherwise."""


@dataclass(frozen=True)
class Statement:
    """One statement of a restore. Statements are run one by one, never joined: expressions come from documents.

    Attributes:
        makes: What it makes, for messages, such as `index public.readings_ts_idx`.
        sql: Exactly one statement in the target's SQL.
        table: Table or view that it makes or belongs to: where that is there already, nothing of it is made.
        unless: Query that yields a row where what it makes is there already, for kinds of things that SQL cannot make
            `IF NOT EXISTS`; "" for the others.
        always: Whether it is run by every import, also where an earlier one made `table`: what it makes depends on the
            rows.
    """

    makes: str
    sql: str
    table: TableName | None = None
    unless: str = ""
    always: bool = False


@dataclass(frozen=True)
class Definition:
    """How a snapshot's schema becomes a target's.

    Attributes:
        tables: The tables as the target will hold them, in its own types, in the order of the snapshot's.
        before: What is made before the first row: schemas, types, sequences, tables.
        after: What is made after the last: keys, indexes, values of sequences, foreign keys, then views.
        lost: What cannot be carried over, a sentence each.
    """

    tables: tuple[Table, ...] = ()
    before: tuple[Statement, ...] = ()
    after: tuple[Statement, ...] = ()
    lost: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExistingTable:
    """A table that is in the target already.

    Attributes:
        columns: Its columns' names in order, generated ones included.
        has_rows: Whether it holds any row.
        what: What it is: `table`, or what else has its name.
    """

    columns: tuple[str, ...]
    has_rows: bool
    what: str = "table"


@dataclass(frozen=True)
class OtherType:
    """A column that is in the target with another type than an import would give it.

    Attributes:
        found: Its type, as the target calls it.
        expected: The type that the import would make.
    """

    table: TableName
    column: str
    found: str
    expected: str


@dataclass(frozen=True)
class RestoreRecord:
    """What an import pinned when it first ran; every resume uses it.

    Attributes:
        id: 32 hex digits.
        location_id: The location's id in its log.
        location: Its URI, for people.
        revision: Sealed revision that is restored.
        checksum: Snapshot checksum at that revision.
        filters: Canonical JSON of what restricts the import.
        tables: Target tables.
        made: Tables and views that the import makes; what was there before keeps its own keys and indexes.
        tag: Tag that pins the revision until the import has finished, where the location can be written to.
        finished: Whether all of it was done.
        into_nonempty: Whether a table held rows of others when it, or an import before it, began.
        windows: Canonical JSON of the windows that its chunks are; "" where an earlier version recorded it.
    """

    id: str
    location_id: str
    location: str
    revision: int
    checksum: str
    filters: str
    tables: tuple[TableName, ...]
    made: tuple[TableName, ...] = ()
    tag: str = ""
    finished: bool = False
    into_nonempty: bool = False
    windows: str = ""


@dataclass(frozen=True)
class LoadedFile:
    """One data file in the ledger: its rows are in the table.

    Attributes:
        import_id: The import that loaded it.
        rows: Rows that went in: fewer than the file's where a time range cuts it.
    """

    location_id: str
    table: TableName
    path: str
    chunk: int
    sha256: str
    import_id: str
    rows: int = 0


def not_renewable(files: Sequence[LoadedFile]) -> str:
    """Return the sentence that refuses to know rows by other files, where the ledger has not got them as expected."""
    return (
        f"Chunk {files[0].chunk} of {files[0].table} was loaded by another run meanwhile. Run again to go on with what"
        " is there now."
    )


def superseded(table: TableName, import_id: str, newest: str = "") -> str:
    """Return the sentences that refuse rows of an import which is not the newest one into a table.

    Args:
        table: The table.
        import_id: Whose rows they are.
        newest: Import that is in force; "" for none.
    """
    now = f"import {newest} was begun into it since" if newest else "the ledger knows no import into it"
    return (
        f"Import {import_id} loads nothing more into {table}: {now}, so what it would load may have been replaced. Run"
        " again to go on with what is in force."
    )


class RestoreTarget(Protocol):
    """A database that rows are restored into, all but how the rows go in. Closed after use.

    Every method may raise `DatabaseUnavailableError` (transient), `DatabaseDeniedError`, `DatabaseLockedError` or
    `DatabaseError`.
    """

    kind: str

    def existing(self, tables: Sequence[TableName]) -> dict[TableName, ExistingTable]:
        """Describe those of the tables that exist."""
        ...

    def other_types(self, tables: Sequence[Table]) -> list[OtherType]:
        """Return the columns that are there with another type than the tables give them, which rows may not go into.

        Spellings and lengths of a type make no other one, but a scale or precision that rounds does. A target that
        checks every value itself returns none.
        """
        ...

    def imports(self) -> list[RestoreRecord]:
        """Return the imports that the ledger knows, oldest first; none where there is no ledger."""
        ...

    def loaded(self, location_id: str) -> list[LoadedFile]:
        """Return the files of a location that the ledger knows."""
        ...

    def begin(self, record: RestoreRecord, statements: Sequence[Statement], newest: str) -> RestoreRecord:
        """Record an import and run its first statements, in one transaction; makes the ledger where there is none.

        Args:
            record: What is pinned.
            statements: What makes the tables that are not there.
            newest: Id of the newest import into any of the tables that the caller saw in the ledger, "" for none.

        Returns:
            `record`; or, with nothing done, the newest import if a run at the same time recorded one meanwhile.

        Raises:
            RestoreError: A statement failed; names what it makes. Nothing was changed.
        """
        ...

    def renew(self, record: RestoreRecord, old: Sequence[LoadedFile], new: Sequence[LoadedFile]) -> None:
        """Know rows that are in by other files, all at once: a compaction put them there. No row is touched.

        Args:
            record: The import that found it out.
            old: What the ledger has of them; a run at the same time may have done this already.
            new: What takes its place; of each table and chunk all files.

        Raises:
            OtherImportError: The import is not the newest one into a table any more.
            RestoreError: The ledger has other files now. Nothing was changed.
        """
        ...

    def finish(self, record: RestoreRecord, statements: Sequence[Statement]) -> None:
        """Run the last statements and mark the import as finished, in one transaction; nothing if it was already.

        Raises:
            RestoreError: A statement failed, such as a key that the rows violate; names what it makes.
        """
        ...

    def count(self, table: Table, rows: Rows) -> int:
        """Count a table's rows: all, those of a window, or those without a finite time."""
        ...

    def forget(self) -> None:
        """Drop the ledger."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class Target(RestoreTarget, Protocol):
    """A connection that a task makes, loads files over, each in one transaction, and closes."""

    def load(self, file: LoadedFile, table: Table, batches: Iterable[pa.RecordBatch]) -> int | None:
        """Insert a file's rows and its ledger row in one transaction.

        Args:
            file: The ledger row; its `rows` are counted here.
            table: The table as the target holds it. Batches have its Arrow schema without generated columns.
            batches: The rows; an error of theirs leaves nothing of the file in the target.

        Returns:
            Rows inserted, or None if the ledger had the file already: then nothing was read.

        Raises:
            OtherImportError: The file's import is not the newest one into the table any more.
        """
        ...

    def replace(self, chunk: int, loads: Sequence[Load]) -> int:
        """Delete a chunk's rows and load its files of now, in one transaction; returns the rows inserted.

        Rows of children are deleted before those that they refer to, and come after them.

        Raises:
            OtherImportError: The import is not the newest one into a table any more.
            RestoreError: Rows that would be deleted are referred to by rows that are not replaced with them.
        """
        ...


@dataclass(frozen=True)
class Load:
    """A replacement of one table's rows of a chunk.

    Attributes:
        location_id: The location the rows come from.
        import_id: The import that replaces them.
        table: The table as the target holds it.
        rows: Which rows are deleted first.
        files: Ledger row of each new file, the table with columns as that file carries them, and its batches.
    """

    location_id: str
    import_id: str
    table: Table
    rows: Rows
    files: Sequence[tuple[LoadedFile, Table, Iterable[pa.RecordBatch]]]


class TargetModule(Protocol):
    """What a database module offers beside `DatabaseModule`, if it can be restored into.

    Attributes:
        ONE_WRITER: Whether only one connection at a time may write.
    """

    ONE_WRITER: bool

    def open_target(self, address: DatabaseAddress) -> Target:
        """Connect for writing; see `DatabaseModule.open`."""
        ...

    def define(self, schema: DatabaseSchema, *, expressions: bool = True) -> Definition:
        """Return how a schema of this same kind of database is made again.

        Args:
            schema: What is restored: a selection may have left out tables that others refer to.
            expressions: Whether defaults, checks, generated columns and views, which are SQL text of the snapshot,
                are restored; else they stand in `lost`.
        """
        ...

    def type_for(self, arrow_type: pa.DataType) -> str:
        """Return the type text that holds an Arrow type's values, for tables of another kind of database."""
        ...
