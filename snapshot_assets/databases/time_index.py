"""The one rule by which every database finds the column whose value decides a row's window."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from snapshot_assets.errors import AmbiguousTimeIndexError, PlanError
from snapshot_assets.format.relations import TableName


def choose_time_index(
    table: TableName,
    configured: Mapping[TableName, str | None],
    *,
    timestamps: Collection[str],
    dates: Collection[str] = (),
    dimension: str | None = None,
) -> str | None:
    """Return a table's time index: the plan's; else the dimension; else the only timestamp column; else none.

    Args:
        table: The table.
        configured: Time index by table as the plan names it; None says that the table is untimed.
        timestamps: The table's timestamp columns, with and without a zone.
        dates: The table's date columns: used only where the plan names one, because a lone date is as often a
            birthday as a time.
        dimension: The column by which the database itself cuts the table by time (a hypertable's dimension).

    Raises:
        AmbiguousTimeIndexError: Several timestamp columns and no choice.
        PlanError: The plan names a column that holds no time.
    """
    if table in configured:
        return _configured(table, configured[table], timestamps, dates)
    if dimension is not None:
        return dimension
    if len(timestamps) > 1:
        names = ", ".join(map(repr, timestamps))
        raise AmbiguousTimeIndexError(
            f"Table {str(table)!r} has {len(timestamps)} timestamp columns ({names}), and the plan does not say which"
            f" one is its time index. Write `time_columns: {{{table}: <column>}}` in the plan, or `{table}: null` to"
            " export the table untimed.",
            table=str(table),
            candidates=tuple(timestamps),
        )
    return next(iter(timestamps), None)


def _configured(
    table: TableName, column: str | None, timestamps: Collection[str], dates: Collection[str]
) -> str | None:
    if column is None or column in timestamps or column in dates:
        return column
    usable = ", ".join(map(repr, (*timestamps, *dates))) or "none of its columns"
    raise PlanError(
        f"The plan names {column!r} as the time index of table {str(table)!r}, but a time index must be a timestamp"
        f" or a date. Of this table that is: {usable}. Name one of them, or `null` to export the table untimed.",
        table=str(table),
        column=column,
    )
