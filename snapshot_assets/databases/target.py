"""What a restore exchanges with its target; see `SqlTarget`.

A restore creates tables from the schema documents, loads files, and then creates keys, indexes and views. The target
has a ledger in a schema of its own. A transaction loads each file together with its ledger row, so a resumed restore
neither misses nor repeats a row. `steps` describes how statements become steps that stand alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from snapshot_assets.databases.needs import Need
from snapshot_assets.databases.source import Rows
from snapshot_assets.databases.sql import literal
from snapshot_assets.databases.unchecked import Unchecked
from snapshot_assets.format.relations import Table, TableName

if TYPE_CHECKING:
    import pyarrow as pa

LEDGER_SCHEMA = "snapshot_assets_ledger"
"""Schema of the ledger; snapshots have no tables in it."""


@dataclass(frozen=True)
class Statement:
    """One statement of a restore. Statements are never joined into one string, because they contain documents' text.

    Attributes:
        makes: The object that it creates, for messages, such as `index public.readings_ts_idx`.
        sql: Exactly one statement in the target's SQL.
        table: Table or view to which the object belongs; if that exists before the import, the statement is skipped.
        unless: Query that yields a row if the statement is to be skipped; "" for none.
        always: Whether every import runs it, even if an earlier one created `table`, because it depends on the rows.
        lacks: Why it fails in a target that has nothing but what the other statements make; "" if it does not.
        keeps: Whether `unless` finds an object of this name, which is then kept as it is if no import made it.
        same: Query that yields a row if an object that is kept is what the statement makes; "" if none can tell.
        changes: The step whose object it changes; if that kept the target's own, this is left out. "" for none.
        there: Query that yields a row if this very object is there, and not another one of its name; "" for none.
        of_existing: Whether it is only for a table that no import made.
        reads: Tables whose rows it reads, by a query of its own.
        unchecked: Why it is never run, although its object is to be made; `sql` is then "". None for all others.
    """

    makes: str
    sql: str
    table: TableName | None = None
    unless: str = ""
    always: bool = False
    lacks: str = ""
    keeps: bool = False
    same: str = ""
    changes: str = ""
    there: str = ""
    of_existing: bool = False
    reads: tuple[TableName, ...] = ()
    unchecked: Unchecked | None = None

    @property
    def by_hand(self) -> str:
        """The SQL that a user runs to make the object; "" if it is unknown."""
        return self.unchecked.sql if self.unchecked else self.sql


def comment(
    on: str, text: str | None, makes: str, of: TableName | None, unless: str = "", changes: str = ""
) -> Iterator[Statement]:
    """Yield the statement that comments on an object, such as `TABLE "a"."b"`, if there is a comment."""
    if text is not None:
        yield Statement(f"comment on {makes}", f"COMMENT ON {on} IS {literal(text)}", of, unless, changes=changes)


@dataclass(frozen=True)
class Definition:
    """How to create a snapshot's schema in a target.

    Attributes:
        tables: The tables in the target's own types, in the order of the snapshot.
        before: Statements to run before the rows: schemas, types, sequences, tables.
        after: Statements to run after the rows: keys, indexes, values of sequences, foreign keys, views.
        lost: What cannot be restored, a sentence each.
        needs: Objects that the target must have first, each after those that it needs itself.
        refused: Why the target cannot have the schema, a sentence each.
        drawn: Sequences, each with a table that draws from it.
    """

    tables: tuple[Table, ...] = ()
    before: tuple[Statement, ...] = ()
    after: tuple[Statement, ...] = ()
    lost: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()
    refused: tuple[str, ...] = ()
    drawn: tuple[tuple[TableName, TableName], ...] = ()


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
class UnfitValues:
    """Values of a column's Arrow type that the target's column cannot hold.

    Attributes:
        what: The values, for a message.
        count: Returns how many of some values are among them.
        bounds: The first and last value that fits, as Arrow's integers; None if statistics cannot prove that all fit.
    """

    what: str
    count: Callable[[pa.Array], int]
    bounds: tuple[int, int] | None = None


@dataclass(frozen=True)
class FailedStatement:
    """A statement that a target refused in a rehearsal, and its message.

    Attributes:
        holds_rows: Whether rows cannot be loaded without what it makes.
        lacks: Whether it fails because something does not exist.
    """

    statement: Statement
    message: str
    holds_rows: bool = False
    lacks: bool = False


@dataclass(frozen=True)
class Rehearsal:
    """What a target that ran statements, and took them back, has refused.

    Attributes:
        failed: The statements that it refused.
        untried: What it did not try, or could not because of something that it did not try, by the reason.
        following: The statements that fail only because another one does.
        skipped: The statements that an import leaves out, because of their `unless` or `changes`.
    """

    failed: tuple[FailedStatement, ...] = ()
    untried: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    following: frozenset[Statement] = frozenset()
    skipped: frozenset[Statement] = frozenset()

    def would_make(self, statements: Iterable[Statement]) -> bool:
        """Return whether an import would make a step of these statements, as far as that is known."""
        every = frozenset(statements)
        return not (every & self._refused or every <= self.skipped)

    @cached_property
    def _refused(self) -> frozenset[Statement]:
        return self.following.union(each.statement for each in self.failed)


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
