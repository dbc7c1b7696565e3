"""Finds values that cannot be exported or restored, by one query for each table.

Native carriers hold no date without a month or a day. The number 0 of an ENUM, that of an invalid value, reads as an
empty text, as an empty member does. A text may have characters that Unicode lacks, for which the server would send
question marks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from snapshot_assets.databases.mysql.scan import NO_DATE, Scanner, cast_type
from snapshot_assets.databases.mysql.time_predicates import MysqlTimeColumn
from snapshot_assets.databases.mysql.types import ColumnType
from snapshot_assets.databases.protocol.query import is_query
from snapshot_assets.databases.protocol.source import Rows
from snapshot_assets.databases.selection.columns import unfit_value, unrestorable
from snapshot_assets.databases.selection.hidden import mask_of, masked
from snapshot_assets.databases.sql import identifier
from snapshot_assets.errors import SnapshotError
from snapshot_assets.format.relations import Carrier, Table

_UNICODE = ("utf", "ucs2", "latin1", "ascii", "binary")
"""Character sets all of whose values Unicode has, or the beginnings of their names."""

_Check = tuple[str, Callable[[], SnapshotError]]
"""The condition of unfit values, and what makes the error."""


def find_unfit(scanner: Scanner, table: Table, rows: Sequence[Rows]) -> list[SnapshotError]:
    """Return an error for each column of a table with values that do not fit; see `Database.unfit`."""
    checks = list(_checks(table))
    if not checks:
        return []
    values = ", ".join(f"COALESCE(MAX({condition}), 0) AS c{n}" for n, (condition, _) in enumerate(checks))
    where = "true" if is_query(table) else " OR ".join(MysqlTimeColumn.predicate(table, each) for each in rows)
    [row] = scanner.rows_of(table, values, where)
    return [error() for (_, error), found in zip(checks, row.values(), strict=True) if found]


def _checks(table: Table) -> Iterator[_Check]:
    for column in table.columns:
        mask = mask_of(table, column.name)
        value = identifier(column.name) if mask is None else masked(mask, cast_type(column.type))
        if column.carrier is Carrier.NATIVE and column.type in MysqlTimeColumn.types:
            finite = MysqlTimeColumn(value, column.type, "UTC").finite
            yield f"NOT {finite}", lambda at=column: unfit_value(table, at, NO_DATE, early=True)  # type: ignore[misc]
        if mask is not None or is_query(table):
            continue
        if (kind := ColumnType(column.type)).name == "enum" and not kind.empty_is_error:
            found = "the number 0, an invalid value's, which reads as its member '' does"
            yield f"{value} = 0", lambda at=column, what=found: unrestorable(table, at, what)  # type: ignore[misc]
        charset = (column.collation or "").partition("_")[0]
        if charset and not charset.startswith(_UNICODE):
            back = f"CONVERT(CONVERT({value} USING utf8mb4) USING {charset})"
            found = f"characters of {charset} that Unicode lacks, or has twice"
            condition = f"CAST({back} AS BINARY) <> CAST({value} AS BINARY)"
            yield condition, lambda at=column, what=found: unrestorable(table, at, what)  # type: ignore[misc]
