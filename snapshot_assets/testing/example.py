"""What a database gives the conformance suites."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from snapshot_assets.databases.protocol.source import DatabaseAddress


@dataclass(frozen=True)
class TimeType:
    """A type of time index.

    Attributes:
        name: The type in SQL.
        zoned: Whether its values are instants; others are local times, which a plan's zone makes instants.
        zone: What follows the time in a literal of an instant; "" if the connection's zone is UTC.
        infinite: SQL literals of its values without a finite time, such as `'infinity'`; NULL is one in every database.
    """

    name: str
    zoned: bool = False
    zone: str = "+00:00"
    infinite: Sequence[str] = ()


class ExampleDatabase(ABC):
    """An empty database of one test, and what the suites must know of its kind.

    The suites run SQL that databases have in common, with plain names: CREATE TABLE, VIEW and UNIQUE INDEX, INSERT of
    VALUES and of SELECT, DELETE, DROP, INTEGER, BIGINT and `%`. Keywords are in capitals and names in small letters;
    values in parentheses, a row each, are separated by `, (`. `execute` and `sql` may rewrite it.

    Attributes:
        schema: The schema in which a table without one is made.
        times: Types of time indexes; their literals are ISO 8601 in UTC.
        midnights: The type of time index that has days only; None if there is none.
        types: By a column's type, expressions of values in SQL, each with the value that a data file then holds, as
            `pyarrow.Array.to_pylist` returns it. NULL is tried for every type.
        counts_rows: Whether `Database.count_rows` counts the rows of tables, because a scan may miss some.
        locked_while_read: The error of a write while a state of the database is held; None if writes go on.
    """

    schema: str
    times: Sequence[TimeType]
    midnights: str | None
    types: Mapping[str, Sequence[tuple[str, Any]]]
    counts_rows: bool
    locked_while_read: type[Exception] | None

    @property
    @abstractmethod
    def address(self) -> DatabaseAddress:
        """The database."""

    @abstractmethod
    def another(self) -> DatabaseAddress:
        """Return the address of an empty database, into which a copy is restored."""

    @abstractmethod
    def execute(self, *statements: str) -> None:
        """Run and commit statements as another user of the database would, each on its own.

        Raises:
            Exception: Any error of the database's driver, such as that the database is locked.
        """

    def sql(self, statement: str) -> str:
        """Return a statement that a target makes, which names tables with their schema, in the database's SQL."""
        return statement

    @abstractmethod
    def numbers(self, count: int) -> str:
        """Return a SQL expression of FROM, a table `n` with one bigint column `i` of the values 1 to `count`."""
