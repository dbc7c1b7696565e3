"""Finds values that cannot be exported or restored, by one query for each table.

Native carriers hold no date without a month or a day. The number 0 of an ENUM is an error's, and no member. A text may
have characters that are not in Unicode, for which the server would send question marks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from snapshot_assets.databases.mysql.scan import NO_DATE, Scanner, cast_type
from snapshot_assets.databases.mysql.time_predicates import MysqlTimeColumn
from snapshot_assets.databases.mysql.types import ColumnType
from snapshot_assets.databases.protocol.source import Rows
from snapshot_assets.databases.selection.columns import unfit_value
from snapshot_assets.databases.selection.hidden import mask_of, masked
from snapshot_assets.databases.sql import identifier
from snapshot_assets.errors import SnapshotError
from snapshot_assets.format.relations import Carrier, Column, Table

_WHOLE = ("utf8", "latin1", "ascii", "binary")
"""Character sets all of whose values Unicode has, or beginnings of their names."""


def find_unfit(scanner: Scanner, table: Table, rows: Sequence[Rows]) -> list[SnapshotError]:
    """Return an error for each column of a table with values that do not fit; see `Database.unfit`."""
    checks = list(_checks(table))
    if not checks:
        return []
    values = ", ".join(f"COALESCE(MAX({condition}), 0) AS c{n}" for n, (_, condition, _) in enumerate(checks))
    where = " OR ".join(MysqlTimeColumn.predicate(table, each) for each in rows)
    [row] = scanner.rows_of(table, values, where)
    found = zip(checks, row.values(), strict=True)
    return [unfit_value(table, column, what, early=True) for (column, _, what), there in found if there]


def _checks(table: Table) -> Iterator[tuple[Column, str, str]]:
    """Yield the columns that may have unfit values: each with the condition, and what such values are called."""
    for column in table.columns:
        mask, kind = mask_of(table, column.name), ColumnType(column.type)
        value = identifier(column.name) if mask is None else masked(mask, cast_type(column.type))
        if column.carrier is Carrier.NATIVE and column.type in MysqlTimeColumn.types:
            yield column, f"NOT {MysqlTimeColumn(value, column.type, 'UTC').finite}", NO_DATE
        elif kind.name == "enum" and mask is None:
            yield column, f"{value} = 0", "the empty text that stands for an invalid value"
        charset = (column.collation or "").partition("_")[0]
        if charset and mask is None and not charset.startswith(_WHOLE):
            back = f"CONVERT(CONVERT({value} USING utf8mb4) USING {charset})"
            yield (
                column,
                f"CAST({back} AS BINARY) <> CAST({value} AS BINARY)",
                f"characters of {charset} outside Unicode",
            )
