"""What a restore exchanges with its target; see `SqlTarget`.

A restore creates tables from the schema documents, loads files, and then creates keys, indexes and views. The target
has a ledger in a schema of its own. A transaction loads each file together with its ledger row, so a resumed restore
neither misses nor repeats a row. `steps` describes how statements become steps that stand alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from snapshot_assets.databases.protocol.source import Rows
from snapshot_assets.format.relations import Table, TableName

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


@dataclass(frozen=True)
class Reference:
    """A foreign key in the target.

    Attributes:
        child: Referencing relation: `table`, or a partition of it with a foreign key of its own.
        table: Table to which the referencing rows belong.
        referred: Referenced relation: `parent`, or a partition of it.
        parent: Table to which the referenced rows belong.
        match: SQL condition of row `c` of `child` referring to row `p` of `referred`.
    """

    name: str
    child: TableName
    table: TableName
    referred: TableName
    parent: TableName
    match: str


def parents_first(tables: Sequence[TableName], references: Sequence[Reference]) -> list[TableName]:
    """Return tables in an order that lets foreign keys accept their rows; tables in a circle keep their order."""
    parents: dict[TableName, set[TableName]] = {name: set() for name in tables}
    for each in references:
        if each.table in parents and each.parent in parents:
            parents[each.table].add(each.parent)
    order: dict[TableName, None] = {}

    def place(name: TableName, above: frozenset[TableName]) -> None:
        if name not in order:
            for parent in sorted(parents[name] - above - {name}):
                place(parent, above | {name})
            order.setdefault(name)

    for name in tables:
        place(name, frozenset())
    return list(order)
