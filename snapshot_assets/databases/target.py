"""The protocol of a database as the target of a restore.

A restore creates tables from the schema documents, loads files, and then creates keys, indexes and views. The target
has a ledger in a schema of its own. A transaction loads each file together with its ledger row, so a resumed restore
neither misses nor repeats a row. `steps` describes how statements become steps that stand alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from snapshot_assets.databases.definition import Rehearsal, Statement
from snapshot_assets.databases.needs import Need
from snapshot_assets.databases.source import Rows
from snapshot_assets.databases.steps import SchemaStep, StepResult
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName

if TYPE_CHECKING:
    import pyarrow as pa

LEDGER_SCHEMA = "snapshot_assets_ledger"
"""Schema of the ledger; snapshots have no tables in it."""


@dataclass(frozen=True)
class ExistingTable:
    """A table that the target already has.

    Attributes:
        columns: Its column names in order, generated ones included.
        has_rows: Whether it holds any row.
        what: Its kind: `table`, or that of another relation with its name.
        mixes: Whether rows of others may stay beside those of a restore.
    """

    columns: tuple[str, ...]
    has_rows: bool
    what: str = "table"
    mixes: bool = True


@dataclass(frozen=True)
class OtherType:
    """A column whose type in the target, `found`, differs from that in the import, `expected`.

    Attributes:
        limit: If only longer values do not fit: the longest that does, in characters, bits, or digits before the
            decimal point; else None.
    """

    table: TableName
    column: str
    found: str
    expected: str
    limit: int | None = None


@dataclass(frozen=True)
class RestoreRecord:
    """What an import fixed at its start; every resume uses it.

    Attributes:
        id: 32 hex digits.
        location_id: The location's id in its log.
        location: Its URI, for messages.
        revision: Sealed revision that is restored.
        checksum: Snapshot checksum at that revision.
        filters: Canonical JSON of what restricts the import.
        made: Tables and views that the import creates; existing ones keep their own keys and indexes.
        tag: Tag that pins the revision until the import has finished; "" if the location is read-only.
        into_nonempty: Whether a table held other rows when this import, or one before it, started.
        windows: Canonical JSON of its chunks' windows; "" in a record of an earlier version.
        stepwise: Whether the ledger lists the steps that it made; not in a record of an earlier version.
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
    stepwise: bool = False


@dataclass(frozen=True)
class LoadedFile:
    """A data file in the ledger: the table holds its rows.

    Attributes:
        import_id: The import that loaded it.
        rows: Rows loaded: fewer than the file's if a time range filters them.
    """

    location_id: str
    table: TableName
    path: str
    chunk: int
    sha256: str
    import_id: str
    rows: int = 0


Tried = Callable[[int], None]
"""Takes the number of steps that were tried."""


def ignore_tries(_: int) -> None:
    """Take the number of steps that were tried, and do nothing."""


class RestoreTarget(Protocol):
    """A target of a restore, except for the loading of rows; see `SqlTarget` for that. Closed after use.

    Every method may raise `DatabaseUnavailableError` (transient), `DatabaseDeniedError`, `DatabaseLockedError` or
    `DatabaseError`.
    """

    kind: str

    def existing(self, tables: Sequence[TableName]) -> dict[TableName, ExistingTable]:
        """Describe those of the tables that exist."""

    def other_types(self, tables: Sequence[Table]) -> list[OtherType]:
        """Return the columns whose type in the target differs from that in the tables.

        Spellings and greater lengths do not matter. A scale or precision that would round does. A smaller length does
        if a value is longer, see `OtherType.limit`.
        """

    def missing(self, needs: Sequence[Need]) -> list[Need]:
        """Return the objects that the target lacks, in order."""

    def conflicts(self, tables: Sequence[Table]) -> list[str]:
        """Return why the target cannot have the tables, a sentence each, such as a type of another form."""

    def acting(self, tables: Sequence[TableName], *, deletes: bool) -> list[str]:
        """Return what would act on the rows of tables and cannot be kept from it, a sentence for each table.

        Args:
            tables: Tables that rows are added to; those that do not exist have nothing that acts.
            deletes: Whether rows are also deleted.
        """

    def differing(self, schema: DatabaseSchema) -> list[str]:
        """Return what differs between the source's database and the target's as a whole, a sentence each.

        Args:
            schema: All documents of the snapshot, in the source's terms.
        """

    def rehearse(self, statements: Sequence[Statement]) -> Rehearsal:
        """Run statements in a transaction that is rolled back, and return those that fail.

        Statements that belong to what could not be made are left out, and those that could harm others are not run. A
        target without such transactions runs nothing.
        """

    def would_keep(self, record: RestoreRecord, steps: Sequence[SchemaStep]) -> dict[str, StepResult]:
        """Return how those steps would end that would leave the target's own objects as they are; runs only queries."""

    def imports(self) -> list[RestoreRecord]:
        """Return the imports in the ledger, oldest first; none without a ledger."""

    def loaded(self, location_id: str) -> list[LoadedFile]:
        """Return the files of a location in the ledger."""

    def begin(self, record: RestoreRecord, newest: str) -> RestoreRecord:
        """Record an import; create the ledger if it does not exist.

        Args:
            record: The import.
            newest: Id of the newest import into any of the tables that the caller read in the ledger, "" for none.

        Returns:
            `record`; or the newest import, without any change, if a concurrent run recorded one meanwhile.
        """

    def steps(self, location_id: str) -> dict[str, StepResult]:
        """Return how the latest tries of steps ended, by name, in imports of a location; none without a ledger."""

    def make(
        self,
        record: RestoreRecord,
        steps: Sequence[SchemaStep],
        absent: Collection[TableName] = (),
        tried: Tried = ignore_tries,
    ) -> dict[str, StepResult]:
        """Make steps of an import that has begun, each whole or not at all, and record how each ended.

        A step that fails keeps no other from being made, except those that belong to a relation that is not there.

        Args:
            record: The import. Steps that it has made already are not made again, unless they are `always`.
            steps: The steps, in their order.
            absent: Tables that could not be made: steps that belong to them are not tried.
            tried: Called with the number of steps that were tried so far, now and then.

        Returns:
            The result of every step, by its name.
        """

    def by_hand(self, step: SchemaStep) -> tuple[str, ...]:
        """Return a step's statements as a user runs them in the target's own client."""

    def renew(self, record: RestoreRecord, old: Sequence[LoadedFile], new: Sequence[LoadedFile]) -> None:
        """Record other files for rows that the tables hold, after a compaction, in one transaction.

        Args:
            record: The import.
            old: Files in the ledger; a concurrent run may have replaced them already.
            new: The files that replace them: all files of each table and chunk.

        Raises:
            OtherImportError: The import is no longer the newest one into a table.
            RestoreError: The ledger holds other files. Nothing was changed.
        """

    def finish(self, record: RestoreRecord, *, finished: bool = True) -> None:
        """Mark an import as finished, or as unfinished if tables are added that it left out."""

    def counts(self, wanted: Sequence[tuple[Table, Rows]]) -> list[int]:
        """Count rows of tables: of each all, those of a window, or those without a finite time."""

    def forget(self) -> None:
        """Drop the ledger."""

    def close(self) -> None:
        """Close the connection."""


@dataclass(frozen=True)
class Load:
    """A replacement of one table's rows of a chunk.

    Attributes:
        location_id: The location of the rows.
        import_id: The import that replaces them.
        table: The table in the target.
        rows: The rows to delete first.
        files: For each new file, its ledger row, the table with that file's columns, and its batches.
    """

    location_id: str
    import_id: str
    table: Table
    rows: Rows
    files: Sequence[tuple[LoadedFile, Table, Iterable[pa.RecordBatch]]]
