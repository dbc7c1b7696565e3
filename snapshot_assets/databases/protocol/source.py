"""The protocol of a database as the source of an export.

A `Database` is one open connection or file, closed after use. Spark tasks receive a `DatabaseAddress`, which is
picklable. Its URI contains secrets and appears in no `repr`, document, tag or event.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from snapshot_assets.databases.protocol.query import ColumnRange, Quantiles, Query
from snapshot_assets.databases.protocol.refusals import Refusals
from snapshot_assets.errors import DatabaseError, SnapshotError
from snapshot_assets.format.names import NameRule
from snapshot_assets.format.relations import Carrier, DatabaseSchema, Table, TableName

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class DatabaseAddress:
    """How to reach a database.

    Attributes:
        alias: Public name, for documents and messages.
        uri: `postgresql://…`, `duckdb:///abs/path.duckdb`, `spark:<catalog>[.<namespace>]`.
        consistency: Token of the held state that the connection must read (PostgreSQL's exported snapshot id); None
            for the present state.
        encoding: Encoding of the texts in a PostgreSQL database of encoding SQL_ASCII, which are decoded from it; see
            `encodings`. None for other databases, and where such texts are UTF-8.
        copy: Whether rows are read by PostgreSQL's COPY; if not, by a cursor.
        shares_states: Whether connections can read one state, if those of its kind do; see `DatabaseKind`.
    """

    alias: str
    uri: str = field(repr=False)
    consistency: str | None = None
    encoding: str | None = None
    copy: bool = True
    shares_states: bool = True


@dataclass(frozen=True)
class Selection:
    """What a plan exports of a database; an empty selection means everything except system objects.

    Attributes:
        schemas: Schemas by name; empty for all.
        tables: Tables by name; empty for all tables of the schemas. A view named here is exported as a table.
        time_columns: Time index by table, if the plan names it; None for an untimed table.
        carriers: Carrier by table and column, if the plan overrides the default.
        exclude_tables: Patterns of tables and views that are left out; see `format.names`.
        exclude_columns: Columns that are left out, by table and column.
        masks: By table and column, the SQL expression that is exported in place of a column's values.
        query: A query that is exported in place of tables.
        split_by: Column by whose ranges several tasks read the one table or query.
        large_objects: Whether PostgreSQL's large objects are exported: with the whole database, or with a table that
            has a column for their oids. None exports them too, unless the plan hides such a column.
        names: How the patterns are compared with names; all other names are in the catalog's spelling.
    """

    schemas: tuple[str, ...] = ()
    tables: tuple[TableName, ...] = ()
    time_columns: Mapping[TableName, str | None] = field(default_factory=dict)
    carriers: Mapping[tuple[TableName, str], Carrier] = field(default_factory=dict)
    exclude_tables: tuple[str, ...] = ()
    exclude_columns: tuple[tuple[TableName, str], ...] = ()
    masks: Mapping[tuple[TableName, str], str] = field(default_factory=dict)
    query: Query | None = None
    split_by: str | None = None
    large_objects: bool | None = None
    names: NameRule = NameRule.EXACT


@dataclass(frozen=True)
class AllRows:
    """Every row: an untimed table."""


@dataclass(frozen=True)
class WindowRows:
    """Rows whose time is in the half-open interval `[start, end)` of aware UTC instants.

    Attributes:
        zone: IANA zone in which a time column without a zone is read.
    """

    start: datetime
    end: datetime
    zone: str = "UTC"


@dataclass(frozen=True)
class TimelessRows:
    """Rows of a timed table whose time is NULL or infinite; chunk 0 holds them."""


@dataclass(frozen=True)
class KeyRows:
    """Rows of a range of an untimed table's primary key."""

    range: ColumnRange


Rows = AllRows | WindowRows | TimelessRows | KeyRows


def joined_ranges(ranges: Iterable[ColumnRange]) -> list[ColumnRange]:
    """Return ranges, given in the order of the column, with those that follow each other as one."""
    joined: list[ColumnRange] = []
    for each in ranges:
        if joined and joined[-1].high == each.low:
            joined[-1] = replace(joined[-1], high=each.high)
        else:
            joined.append(each)
    return joined


@dataclass(frozen=True)
class Scan:
    """The rows of one table that one task reads.

    Attributes:
        table: The table's document, with columns, carriers and Arrow types.
        part: A disjoint part of those rows: a range of a column's values, or a text in the database module's own
            notation (see `Database.split`); None for all.
        order_by: Columns of the table by whose carried values the rows are sorted, texts by their bytes.
    """

    table: Table
    rows: Rows
    part: ColumnRange | str | None = None
    order_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExportedRows:
    """A set of a table's rows, as an export left it.

    Attributes:
        count: How many rows were exported.
        fence: The state of the database that the export read; see `SchemaSource.fence`.
    """

    table: Table
    rows: Rows
    count: int
    fence: Mapping[str, str]


class Verdict(StrEnum):
    """Whether rows are those that were exported. Where this cannot be proved, they are `UNKNOWN`, never `UNCHANGED`."""

    UNCHANGED = "unchanged"
    CHANGED = "changed"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Answer:
    """What a database says of one set of rows.

    Attributes:
        reason: Why the rows are changed or unknown; "" for unchanged ones.
        found: How many rows there are now; None if they were not counted.
        lasting: Whether the answer stays unknown after another export, because the database has no version of such
            rows; else a newer fence makes it known.
    """

    verdict: Verdict
    reason: str = ""
    found: int | None = None
    lasting: bool = False


class Unanalyzed(NamedTuple):
    """The part of a scan of which the database has no statistics, so that it cannot estimate the rows.

    Attributes:
        bytes: Size of the partitions without statistics that the scan reads, with all their rows.
        whole: Whether no partition with rows has statistics; `bytes` is then the whole table.
    """

    bytes: int
    whole: bool


class HeldState(Protocol):
    """A database state that is held for other connections."""

    @property
    def token(self) -> str | None:
        """The `DatabaseAddress.consistency` that reads the state; None if the database has none."""

    @property
    def unshared(self) -> str:
        """Why tasks read states of their own, in sentences that each export shows; "" if all read the one state.

        Then rows may be written meanwhile: an export does not count rows, and `compare` calls no difference damage.
        """

    def check(self) -> None:
        """Check that the state is still held.

        Raises:
            ConsistencyLostError: It is gone, and no connection can read it again.
        """


@dataclass(frozen=True)
class OwnStates:
    """The states of connections of which each has its own: nothing is held; see `HeldState`."""

    unshared: str
    token = None

    def check(self) -> None:
        """Return: there is nothing to lose."""


class SchemaSource(Protocol):
    """The part of a source that databases and Spark catalogs share.

    A class that inherits from it has the defaults of its methods, and cannot be made while it lacks one without.

    Every method may raise `DatabaseUnavailableError` (transient), `DatabaseDeniedError`, `DatabaseLockedError` or
    `ConsistencyLostError`.
    """

    kind: str

    @abstractmethod
    def extract(self, selection: Selection, refusals: Refusals | None = None) -> DatabaseSchema:
        """Describe the selected schemas, tables and views, with each table's time index (see `choose_time_index`).

        A query becomes a table without one, whose option `query` is its text with the database's own expressions for
        the bounds of a window; `windowed` says whether it has any.

        Args:
            selection: What to describe.
            refusals: Collects errors about single tables and columns, which the documents then lack, in place of
                raising them.

        Raises:
            UnknownRelationError: A named schema or table does not exist; the message lists similar names.
            AmbiguousTimeIndexError: A table has several timestamp columns, and the plan chooses none.
            UnsupportedTypeError: No carrier holds the values of a column's type.
            PlanError: The column of `split_by` does not exist, or its type has no ranges.
            DatabaseDeniedError: This user may not read a selected table.
        """

    def spelled(self, selection: Selection) -> Selection:
        """Return a selection with the names of schemas, tables and columns as the database's catalog spells them.

        Names that do not exist stay as they are; `extract` refuses them. By default all names do, for a database that
        compares them exactly.
        """
        return selection

    @abstractmethod
    def count_outside(self, table: Table, start: datetime, end: datetime, zone: str = "UTC") -> int:
        """Count the rows with a finite time before `start` or at or after `end`."""

    @abstractmethod
    def unfit(self, table: Table, rows: Sequence[Rows]) -> list[SnapshotError]:
        """Return an error for each column that has a value which its native carrier cannot hold, by one query.

        A table without columns, whose rows no file can hold, is one such error.

        Args:
            table: The table's document.
            rows: Which of its rows are read: all that belong to one of these.
        """

    @abstractmethod
    def time_bounds(
        self, tables: tuple[Table, ...], zone: str = "UTC", within: tuple[datetime, datetime] | None = None
    ) -> tuple[datetime, datetime] | None:
        """Return the least and greatest finite time over the timed tables, or None if there is no row.

        `within` leaves out the rows before its start, and those at or after its end.
        """

    @abstractmethod
    def fence(self) -> dict[str, str]:
        """Return identifiers of the state that this connection reads, such as PostgreSQL's snapshot and LSN."""

    def stateless(self, schema: DatabaseSchema) -> str:
        """Return which tables have rows that belong to no state that can be held, and why.

        A seal with such a table does not claim one state. Each export shows the sentences.

        Args:
            schema: The documents of the exported tables.

        Returns:
            The sentences; "", the default, for none.
        """
        return ""

    @abstractmethod
    def changes_since(self, parts: Sequence[ExportedRows]) -> list[Answer]:
        """Tell which disjoint sets of rows changed since they were exported, without reading their values.

        What is not provably unchanged is changed or unknown. The answers have the order of `parts`.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""


class Database(SchemaSource, Protocol):
    """An open database as a source: every task reads its rows over its own connection."""

    @abstractmethod
    def estimate(self, scan: Scan) -> int:
        """Return a cheap estimate of a scan's bytes, for dividing large windows and combining small ones."""

    def count_rows(
        self, reads: Sequence[tuple[Table, Sequence[Rows]]], *, thorough: bool
    ) -> Sequence[Sequence[int] | None]:
        """Count the rows of disjoint sets of tables, by another form than that of their scans.

        Args:
            reads: Tables, each with its sets.
            thorough: Whether no index may take part, also where that costs much more than the scans.

        Returns:
            The numbers of each table's sets; None for a table of which a healthy scan may differ, because rows of
            views, queries and other servers are not those of one state. By default, of all.
        """
        return [None] * len(reads)

    def unanalyzed(self, scan: Scan) -> Unanalyzed | None:
        """Return the part of a scan that `estimate` cannot estimate; None, the default, if there is none."""
        return None

    def split(self, scan: Scan, parts: int) -> list[Scan]:
        """Divide a scan into at most `parts` disjoint scans of similar size that together yield its rows.

        By default it is not divided: one task reads it.
        """
        return [scan]

    def divide(self, scan: Scan, parts: int) -> list[ColumnRange]:
        """Divide all rows of a table, or those of a range, into about as many ranges of the primary key's first column.

        The ranges are in the order of the key and of similar size. They are none where nothing is gained by reading one
        without the others, because the rows do not lie about in that order, and where the database has no such key (see
        `key_column`), or knows nothing of it. None is the default.
        """
        return []

    def quantiles(self, scan: Scan, column: str, parts: int) -> Quantiles:
        """Return the values of a column that divide a sample of a scan's rows into `parts` parts of equal size.

        It reads all rows of the scan, of this column only. By default it raises an error: only plans of `kind: query`
        have `split_by`, and a source may refuse those in `extract`.
        """
        raise DatabaseError(f"Rows of {self.kind} are not divided by a column. Leave split_by out.")

    @abstractmethod
    def interrupt(self) -> None:
        """End a query that another thread runs: it raises an error there. Without a query, do nothing."""

    @abstractmethod
    def scan(self, scan: Scan) -> AbstractContextManager[Iterator[pa.RecordBatch]]:
        """Stream a scan's rows as batches whose schema is exactly `scan.table.arrow_schema()`.

        A batch has at most some tens of MiB, for any size of chunk.

        Raises:
            CarrierError: A value does not fit its native carrier; names the column and the override for the plan.
        """

    @abstractmethod
    def hold(self, readers: Callable[[], int]) -> AbstractContextManager[HeldState]:
        """Hold the present state of the database for other connections until the context ends.

        Connections whose `DatabaseAddress.consistency` is the state's token read it. This one does if its kind's
        `holder_reads` says so; else, to extract the schema, open another one with the token too.

        Args:
            readers: Returns how many tasks on this machine read at a time; 0 if none does. It may start
                Spark, so only a database that needs to know calls it.
        """
