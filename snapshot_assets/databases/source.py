"""What every database module offers: describe the schema, plan scans, and yield Arrow batches.

A `Database` is one open connection (or file) and is closed after use. A `DatabaseAddress` is what travels to a
Spark task: it is picklable, names the module, and holds the resolved URI, secrets included, which appears in no
`repr`, document, tag or event.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

import pyarrow as pa

from snapshot_assets.format.relations import Carrier, DatabaseSchema, Table, TableName


@dataclass(frozen=True)
class DatabaseAddress:
    """How to reach a database.

    Attributes:
        alias: Public name; the only one that may be written anywhere.
        uri: `postgresql://…`, `duckdb:///abs/path.duckdb`, `spark:<catalog>[.<namespace>]`.
        consistency: Token of a database snapshot held elsewhere that this connection must read (PostgreSQL's
            exported snapshot id); None to read the present.
    """

    alias: str
    uri: str = field(repr=False)
    consistency: str | None = None


@dataclass(frozen=True)
class Selection:
    """What of a database is exported, as the plan says; empty means everything that is not the system's.

    Attributes:
        schemas: Schemas by true name; empty for all.
        tables: Tables by true name; empty for all of the schemas. A view named here is exported as a table.
        time_columns: Time index by table, where the plan names it. None says: this table is untimed.
        carriers: Carrier by table and column, where the plan overrides the type's own.
    """

    schemas: tuple[str, ...] = ()
    tables: tuple[TableName, ...] = ()
    time_columns: Mapping[TableName, str | None] = field(default_factory=dict)
    carriers: Mapping[tuple[TableName, str], Carrier] = field(default_factory=dict)


@dataclass(frozen=True)
class AllRows:
    """Every row: an untimed table."""


@dataclass(frozen=True)
class WindowRows:
    """Rows whose time lies in the half-open `[start, end)`, both aware UTC instants.

    Attributes:
        zone: IANA zone in which a time column without a zone is read.
    """

    start: datetime
    end: datetime
    zone: str = "UTC"


@dataclass(frozen=True)
class TimelessRows:
    """Rows of a timed table whose time is NULL or infinite: chunk 0 holds them."""


Rows = AllRows | WindowRows | TimelessRows


@dataclass(frozen=True)
class Scan:
    """The rows of one table that one task reads.

    Attributes:
        table: The table's document: which columns, by which carrier, in which Arrow types.
        rows: Which rows.
        part: A disjoint share of those rows, in the database module's own words (see `Database.split`); None for all.
    """

    table: Table
    rows: Rows
    part: str | None = None


@dataclass(frozen=True)
class Estimate:
    """How much a scan will yield, cheaply guessed: used to cut slices and to batch small windows, never reported."""

    rows: int
    bytes: int


class HeldState(Protocol):
    """A database state that is held open for other connections."""

    @property
    def token(self) -> str | None:
        """What `DatabaseAddress.consistency` must be to read the state; None where the database has no such means."""
        ...

    def check(self) -> None:
        """Make sure that the state is still held.

        Raises:
            ConsistencyLostError: It is gone, and no connection can ever read it again.
        """
        ...


class SchemaSource(Protocol):
    """Whatever tables can be read from: what databases and Spark catalogs share.

    Every method may raise `DatabaseUnavailableError` (transient), `DatabaseDeniedError`, `DatabaseLockedError` or
    `ConsistencyLostError`.
    """

    kind: str

    def extract(self, selection: Selection) -> DatabaseSchema:
        """Describe the selected schemas, tables and views, and find each table's time index.

        Time index: the plan's; else TimescaleDB's dimension; else the only timestamp column; else none.

        Raises:
            UnknownRelationError: A named schema or table is not there (the message lists near names).
            AmbiguousTimeIndexError: Several timestamp columns and no choice; lists the candidates.
            UnsupportedTypeError: A column of a pseudo-type.
            DatabaseDeniedError: A selected table may not be read.
        """
        ...

    def count_outside(self, table: Table, start: datetime, end: datetime, zone: str = "UTC") -> int:
        """Count the rows with a finite time before `start` or at or after `end`."""
        ...

    def time_bounds(self, tables: tuple[Table, ...], zone: str = "UTC") -> tuple[datetime, datetime] | None:
        """Return the least and greatest finite time over the timed tables, or None if there is no row."""
        ...

    def fence(self) -> dict[str, str]:
        """Return what identifies the state this connection reads, such as PostgreSQL's snapshot and LSN."""
        ...

    def close(self) -> None:
        """Close the connection; cursors first."""
        ...


class Database(SchemaSource, Protocol):
    """One open database, read side: a source whose rows a task reads over a connection of its own."""

    def estimate(self, scan: Scan) -> Estimate:
        """Guess the size of a scan without reading its rows."""
        ...

    def split(self, scan: Scan, parts: int) -> list[Scan]:
        """Cut a scan into at most `parts` disjoint scans of about equal work that together yield its rows."""
        ...

    def scan(self, scan: Scan) -> AbstractContextManager[Iterator[pa.RecordBatch]]:
        """Stream a scan's rows as batches whose schema is exactly `scan.table.arrow_schema()`.

        Batches hold at most some tens of MiB, whatever the chunk's size.

        Raises:
            CarrierError: A value does not fit its native carrier; names the column and the override to write.
        """
        ...

    def hold(self) -> AbstractContextManager[HeldState]:
        """Hold the present state of the database open for other connections until the context ends.

        Connections whose `DatabaseAddress.consistency` is the state's token read it. The connection that holds does
        not itself read the state: open another one with the token, also to extract the schema.
        """
        ...


class DatabaseModule(Protocol):
    """What a module of this package registers under its URI scheme."""

    def open(self, address: DatabaseAddress) -> Database:
        """Connect.

        Raises:
            DatabaseUnavailableError: It cannot be reached.
            DatabaseDeniedError: It refused the user or password.
        """
        ...

    def default_alias(self, uri: str) -> str:
        """Return a public name made from the URI, without user or password."""
        ...
