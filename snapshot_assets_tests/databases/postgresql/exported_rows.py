"""What an export leaves of a database: the counts of its windows, its fence, and, for comparison, the values."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from snapshot_assets.databases.protocol.source import (
    AllRows,
    Answer,
    Database,
    ExportedRows,
    Rows,
    Scan,
    TimelessRows,
    Verdict,
    WindowRows,
)
from snapshot_assets.format.relations import Carrier, Table
from snapshot_assets.testing.restores import read_scan
from snapshot_assets.testing.restores import utc as at
from snapshot_assets_tests.databases.postgresql.helpers import opened, table_of

DAYS: list[Rows] = [WindowRows(at(2026, 1, day), at(2026, 1, day) + timedelta(days=1)) for day in (1, 2, 3)]
"""Three windows."""

TIMED: list[Rows] = [*DAYS, TimelessRows()]
"""The sets of rows of a timed table."""

LETTERS = {Verdict.UNCHANGED: "=", Verdict.CHANGED: "x", Verdict.UNKNOWN: "?"}


def values(database: Database, table: Table, rows: Rows) -> list[str]:
    """Return the rows of a set as sorted texts."""
    return sorted(map(str, read_scan(database, Scan(table, rows)).to_pylist()))


def export(uri: str, *tables: str, time: str | None = "at") -> list[ExportedRows]:
    """Count the rows of the windows of tables of schema `public`, or of whole tables without a time."""
    with opened(uri) as database:
        fence = database.fence()
        # The values of a native column may not be infinite.
        carriers = {time: Carrier.TEXT} if time else {}
        found = [table_of(database, name, time=time, carriers=carriers) for name in tables]
        sets = TIMED if time else [AllRows()]
        return [ExportedRows(each, rows, len(values(database, each, rows)), fence) for each in found for rows in sets]


def answers(uri: str, parts: Sequence[ExportedRows]) -> list[Answer]:
    """Return what the database says of exported rows now."""
    with opened(uri) as database:
        return database.changes_since(parts)


def verdicts(uri: str, parts: Sequence[ExportedRows]) -> str:
    """Return a letter for each answer: `=` for unchanged, `x` for changed, `?` for unknown."""
    return "".join(LETTERS[each.verdict] for each in answers(uri, parts))
