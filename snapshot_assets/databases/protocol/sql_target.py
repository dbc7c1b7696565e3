"""Restores into SQL databases: every operation on rows and ledger is one transaction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from snapshot_assets.databases.definition import Definition, Need, Rehearsal, Statement
from snapshot_assets.databases.protocol import ledger
from snapshot_assets.databases.protocol.source import AllRows, Rows
from snapshot_assets.databases.protocol.sql_steps import SqlSteps
from snapshot_assets.databases.protocol.steps import SchemaStep
from snapshot_assets.databases.protocol.target import (
    LEDGER_SCHEMA,
    Load,
    LoadedFile,
    OtherType,
    Reference,
    RestoreRecord,
    UnfitValues,
    parents_first,
)
from snapshot_assets.databases.protocol.time_column import TimeColumn
from snapshot_assets.databases.sql import literal
from snapshot_assets.errors import OtherImportError, RestoreError, SnapshotError, TransientError
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import Column, DatabaseSchema, Table, TableName
from snapshot_assets.format.units import counted

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_TABLES = 50
"""Most tables of one query: a server locks each, with its indexes."""


class SqlTarget(SqlSteps, ABC):
    """A target of a restore. Its ledger is in a schema of its own, and transactions cover a file with its ledger row.

    Every method may raise `DatabaseUnavailableError` (transient), `DatabaseDeniedError`, `DatabaseLockedError` or
    `DatabaseError`.

    Attributes:
        kind: The kind of database.
        time_column: The class of a timed table's predicates.
        deletes_parents: Whether a transaction that deletes referencing rows can then delete the referenced ones.
    """

    kind: str
    time_column: ClassVar[type[TimeColumn]]
    deletes_parents = True
    _drop_ledger = f'DROP SCHEMA IF EXISTS "{LEDGER_SCHEMA}" CASCADE'

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    @abstractmethod
    def other_types(self, tables: Sequence[Table]) -> list[OtherType]:
        """Return the columns whose type in the target differs from that in the tables.

        Spellings and greater lengths do not matter. A scale or precision that would round does. A smaller length does
        if a value is longer, see `OtherType.limit`.
        """

    @abstractmethod
    def _insert(self, table: Table, batches: Iterable[pa.RecordBatch]) -> int:
        """Insert batches into a table and return the number of rows."""

    @abstractmethod
    def _own_rows(self, names: Sequence[TableName]) -> Mapping[TableName, str]:
        """Return the FROM items of tables, without the rows of tables that inherit from them."""

    def _lock_imports(self) -> None:
        """Until the transaction ends, keep other imports from starting; concurrent loads may go on."""
        return

    def _disable_triggers(
        self, tables: Sequence[TableName], read: Sequence[TableName] = (), *, deletes: bool = False
    ) -> AbstractContextManager[None]:
        """Within a transaction, keep code of the target from acting on rows of tables; others are only read."""
        return nullcontext()

    @abstractmethod
    def interrupt(self) -> None:
        """Cancel the statement that another thread runs: it raises an error there, and its transaction is undone."""

    @abstractmethod
    def _references(self, tables: Sequence[TableName]) -> list[Reference]:
        """Return all foreign keys in the target that refer to the tables."""

    def slow_types(self) -> list[str]:
        """Return the types whose values the driver takes only as text."""
        return []

    def missing(self, needs: Sequence[Need]) -> list[Need]:
        """Return the objects that the target lacks, in order: none, because only PostgreSQL's snapshots need any."""
        return []

    def conflicts(self, definition: Definition) -> list[str]:
        """Return why the target cannot have the schema, a sentence each, such as a type of another form."""
        return []

    def unfit_values(self, column: Column) -> UnfitValues | None:
        """Return which values of a column's Arrow type the target cannot hold; None if it can hold all."""
        return None

    def acting(self, tables: Sequence[TableName], *, deletes: bool) -> list[str]:
        """Return what would act on rows that are added, or deleted, and cannot be kept from it, a sentence for each."""
        return []

    def differing(self, schema: DatabaseSchema, definition: Definition) -> list[str]:
        """Return what differs between the source of all documents and the target, a sentence each."""
        return []

    def rehearse(self, statements: Sequence[Statement]) -> Rehearsal:
        """Run statements in a transaction that is rolled back, and return those that fail.

        Statements that belong to what could not be made are left out, and those that could harm others are not run. By
        default nothing is run: the definition has checked the statements.
        """
        return Rehearsal()

    def imports(self) -> list[RestoreRecord]:
        """Return the imports in the ledger, oldest first; none without a ledger."""
        if not self._has_ledger():
            return []
        rows = self._rows(f'SELECT * FROM {ledger.IMPORTS} ORDER BY "number"', "reading the ledger")
        return [ledger.restore_record(row) for row in rows]

    def loaded(self, location_id: str) -> list[LoadedFile]:
        """Return the files of a location in the ledger."""
        if not self._has_ledger():
            return []
        rows = self._rows(
            f'SELECT * FROM {ledger.FILES} WHERE "location_id" = {literal(location_id)} ORDER BY "path"',
            "reading the ledger",
        )
        names = ("location_id", "path", "chunk", "sha256", "import_id", "rows")
        return [
            LoadedFile(table=TableName(row["table_schema"], row["table_name"]), **{name: row[name] for name in names})
            for row in rows
        ]

    def _has_ledger(self) -> bool:
        return self._has(TableName(LEDGER_SCHEMA, "files"))

    def begin(self, record: RestoreRecord, newest: str) -> RestoreRecord:
        """Record an import; create the ledger if it does not exist.

        Args:
            record: The import.
            newest: Id of the newest import into any of the tables that the caller read in the ledger, "" for none.

        Returns:
            `record`; or the newest import, without any change, if a concurrent run recorded one meanwhile.
        """
        with self._transaction():
            self._lock()
            self._make_ledger()
            earlier = [each for each in self.imports() if set(each.tables) & set(record.tables)]
            if earlier and earlier[-1].id != newest:
                return earlier[-1]
            self._execute(ledger.insert_record(record, self.one_row), "recording the import")
        return record

    def by_hand(self, step: SchemaStep) -> tuple[str, ...]:
        """Return a step's statements as a user runs them in the target's own client."""
        by_hand = []
        for statement in step.statements:
            try:
                skips = self._skips(statement)  # it is of another version, or its object is there
            except TransientError:
                raise
            except SnapshotError:  # then the step failed because of it, and the user needs the statement
                skips = False
            if statement.by_hand and not skips:
                by_hand.append(statement.by_hand)
        return tuple(by_hand) or step.by_hand

    def load(self, file: LoadedFile, table: Table, batches: Iterable[pa.RecordBatch]) -> int | None:
        """Insert a file's rows and its ledger row in one transaction, which is on disk after `flush`.

        Args:
            file: The ledger row, except for `rows`, which is counted here.
            table: The table in the target. Batches have its Arrow schema without generated columns.
            batches: The rows; if they raise an error, the transaction is rolled back.

        Returns:
            Rows inserted; None if the ledger already holds the file, and then no batch is read.

        Raises:
            OtherImportError: The file's import is no longer the newest one into the table.
        """
        with self._transaction():
            self._commit_early()
            self._lock_imports()
            self._check_newest(file.table, file.import_id)
            with self._disable_triggers([file.table]):
                return self._load(file, table, batches)

    @cached_property
    def _tables_of(self) -> dict[str, frozenset[TableName]]:
        """The tables of imports, which never change: read once, not with each file, because they may be thousands."""
        return {}

    def loaded_rows(self, file: LoadedFile) -> int:
        """Return how many rows of a file were loaded by the ledger, which holds it."""
        query = f'SELECT "rows" FROM {ledger.FILES} WHERE {ledger.is_file(file)}'
        return int(self._rows(query, "reading the ledger")[0]["rows"])

    def _check_newest(self, table: TableName, import_id: str) -> None:
        """Refuse to load rows of an import into a table if a newer import may have replaced them."""
        rows = self._rows(f'SELECT "id" FROM {ledger.IMPORTS} ORDER BY "number"', "reading the ledger")
        ids = [row["id"] for row in rows]
        if not self._tables_of.keys() >= set(ids):
            self._tables_of.update((each.id, frozenset(each.tables)) for each in self.imports())
        newest = next((each for each in reversed(ids) if table in self._tables_of[each]), None)
        if newest != import_id:
            why = (
                f"import {newest} was started into it since, so its rows may have been replaced. Run again to continue"
                " the newest import."
            )
            if newest is None:
                why = (
                    "the ledger was forgotten meanwhile and records no import into it. Drop the tables that this import"
                    " made, give --forget-ledger, and import again."
                )
            refused = f"Import {import_id} loads nothing more into {table}"
            raise OtherImportError(f"{refused}: {why}", table=table_text(table))

    def _load(self, file: LoadedFile, table: Table, batches: Iterable[pa.RecordBatch]) -> int | None:
        # The ledger row comes first: a concurrent run that loads the same file waits here until this one ends.
        doing = f"recording {file.path} in the ledger"
        if not self._insert_absent(ledger.insert_file(file, rows=0), doing):
            return None
        rows = self._insert(table, batches)
        self._execute(f'UPDATE {ledger.FILES} SET "rows" = {rows} WHERE {ledger.is_file(file)}', doing)
        return rows

    def _insert_absent(self, insert: str, doing: str) -> bool:
        """Run an INSERT of one row of the ledger, and return False if there is one of that key."""
        return bool(self._rows(f'{insert} ON CONFLICT DO NOTHING RETURNING "path"', doing))

    def replace(self, chunk: int, loads: Sequence[Load]) -> int:
        """Delete a chunk's rows and load its current files, in one transaction; return the number of rows inserted.

        Referencing rows are deleted before the referenced ones, and loaded after them.

        Raises:
            OtherImportError: The import is no longer the newest one into a table.
            RestoreError: Rows that are not replaced refer to rows that would be deleted.
        """
        by_table = {load.table.table_name: load for load in loads}
        total = 0
        with self._transaction():
            self._lock(list(by_table))
            references = self._references(list(by_table)) if by_table else []
            self._lock([each.table for each in references])
            for name, load in by_table.items():
                self._check_newest(name, load.import_id)
            ordered = [by_table[name] for name in parents_first(list(by_table), references)]
            with self._disable_triggers(list(by_table), [each.child for each in references], deletes=True):
                for reference in references:
                    self._check_unreferenced(chunk, reference, by_table)
                for load in reversed(ordered):
                    self._delete(chunk, load)
                for load in ordered:
                    for file, table, batches in load.files:
                        total += self._load(file, table, batches) or 0
        return total

    def _delete(self, chunk: int, load: Load) -> None:
        name = load.table.table_name
        self._delete_rows(load, f"deleting the rows of chunk {chunk} from {name}")
        self._execute(
            f'DELETE FROM {ledger.FILES} WHERE "location_id" = {literal(load.location_id)} AND "chunk" = {chunk}'
            f' AND "table_schema" = {literal(name.schema)} AND "table_name" = {literal(name.table)}',
            f"deleting chunk {chunk} from the ledger",
        )

    def _delete_rows(self, load: Load, doing: str) -> None:
        predicate = self.time_column.predicate(load.table, load.rows)
        self._execute(f"DELETE FROM {self._rows_of(load.table.table_name)} WHERE {predicate}", doing)

    def _check_unreferenced(self, chunk: int, reference: Reference, loads: Mapping[TableName, Load]) -> None:
        """Refuse to delete rows to which a foreign key refers from rows that would not be deleted."""
        parent, child = loads[reference.parent], loads.get(reference.table)
        stays = ""
        if child is not None and self.deletes_parents:
            if isinstance(child.rows, AllRows):
                return
            stays = f" AND ({self.time_column.predicate(child.table, child.rows)}) IS NOT TRUE"
        deleted = self.time_column.predicate(parent.table, parent.rows)
        referred = f"SELECT 1 FROM {self._rows_of(reference.referred)} AS p WHERE {reference.match} AND ({deleted})"
        doing = f"looking for rows to which foreign key {reference.name} of {reference.table} refers"
        source = f"{self._rows_of(reference.child)} AS c WHERE EXISTS ({referred}){stays}"
        if not self._rows(f'SELECT EXISTS (SELECT 1 FROM {source}) AS "value"{self.one_row}', doing)[0]["value"]:
            return
        reason = "and this kind of database cannot delete them, not even together with the rows that refer to them"
        remedy = "Restore into a new file"
        if self.deletes_parents:
            reason = "from rows that are not replaced with them"
            remedy = (
                "Drop that foreign key, replace the chunk, and add the key again; or restore into an empty database"
            )
        raise RestoreError(
            f"Chunk {chunk} cannot be replaced: foreign key {reference.name} of {reference.table} refers to rows of"
            f" {reference.parent} that would be deleted, {reason}. Nothing was changed. {remedy}.",
            chunk=chunk,
            table=table_text(reference.parent),
            key=reference.name,
        )

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
        with self._transaction():
            self._lock()
            for name in {each.table for each in (*old, *new)}:
                self._check_newest(name, record.id)
            loaded = {(each.table, each.path): each for each in self.loaded(record.location_id)}
            if any((each.table, each.path) not in loaded for each in old):
                if all(loaded.get((each.table, each.path)) == each for each in new):
                    return
                raise RestoreError(
                    f"Chunk {old[0].chunk} of {old[0].table} was loaded by another run meanwhile. Run again to continue"
                    " from its present state."
                )
            statements = [f"DELETE FROM {ledger.FILES} WHERE {ledger.is_file(file)}" for file in old]
            for sql in (*statements, *(ledger.insert_file(file, file.rows) for file in new)):
                self._execute(sql, "recording compacted files in the ledger")

    def finish(self, record: RestoreRecord, *, finished: bool = True) -> None:
        """Mark an import as finished, or as unfinished if tables are added that it left out."""
        update = f'UPDATE {ledger.IMPORTS} SET "finished" = {str(finished).lower()} WHERE "id" = {literal(record.id)}'
        with self._transaction():
            self._lock()
            self._execute(update, "finishing the import" if finished else "opening the import again")

    def counts(self, wanted: Sequence[tuple[Table, Rows]]) -> list[int]:
        """Count rows of tables: of each all, those of a window, or those without a finite time."""
        predicate = self.time_column.predicate
        asked = [
            Question(table.table_name, 'count(*) AS "value" FROM ', f" WHERE {predicate(table, rows)}")
            for table, rows in wanted
        ]
        return list(map(int, self._answers(asked, "counting")))

    def _answers(self, asked: Sequence[Question], doing: str) -> list[Any]:
        """Return the answer to each question, of many with one statement."""
        answers: list[Any] = []
        for some in (asked[at : at + _MOST_TABLES] for at in range(0, len(asked), _MOST_TABLES)):
            own = self._own_rows([each.table for each in some])
            queries = (
                f'SELECT {at} AS "number", {each.before}{own[each.table]}{each.after}' for at, each in enumerate(some)
            )
            more = f" and {counted(len(some) - 1, 'more table')}" if len(some) > 1 else ""
            rows = self._rows(" UNION ALL ".join(queries), f"{doing} {some[0].table}{more}")
            answers += [row["value"] for row in sorted(rows, key=itemgetter("number"))]
        return answers

    def forget(self) -> None:
        """Drop the ledger."""
        if not self._has_ledger():
            return
        with self._transaction():
            self._execute(self._drop_ledger, "dropping the ledger")

    def _with_rows(self, names: Sequence[TableName]) -> set[TableName]:
        """Return those of the tables that have rows."""
        asked = [Question(name, "EXISTS (SELECT 1 FROM ", f') AS "value"{self.one_row}') for name in names]
        answers = self._answers(asked, "looking into")
        return {name for name, any_row in zip(names, answers, strict=True) if any_row}

    def _rows_of(self, name: TableName) -> str:
        """Return the FROM item of a table; see `_own_rows`."""
        return self._own_rows([name])[name]


class Question(NamedTuple):
    """A question about the rows of a table: a query's column `value`, before and after the table's FROM item."""

    table: TableName
    before: str
    after: str
