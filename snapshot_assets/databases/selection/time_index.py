"""Chooses a table's time index, by which its rows are divided among windows."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from snapshot_assets.errors import AmbiguousTimeIndexError, PlanError
from snapshot_assets.format.name_texts import quoted_name, shell_word, written_name, yaml_key
from snapshot_assets.format.names import table_text
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
        configured: Time index by table in the plan; None for an untimed table.
        timestamps: The table's timestamp columns, with and without a zone.
        dates: The table's date columns. Only the plan can choose one, because a date is often a birthday.
        dimension: The column by which the database itself divides the table by time (a hypertable's dimension).

    Raises:
        AmbiguousTimeIndexError: The table has several timestamp columns, and neither plan nor dimension chooses one.
        PlanError: The plan names a column that is neither a timestamp nor a date.
    """
    if table in configured:
        column = configured[table]
        if column is None or column in timestamps or column in dates:
            return column
        usable = ", ".join(map(quoted_name, (*timestamps, *dates))) or "none of its columns"
        raise PlanError(
            f"The plan names {quoted_name(column)} as the time index of table '{table}', but a time index must be a"
            f" timestamp or a date. In this table these are: {usable}. Name one of them, or `null` to export the table"
            " untimed.",
            table=table_text(table),
            column=column,
        )
    if dimension is not None:
        return dimension
    if len(timestamps) > 1:
        names = ", ".join(map(quoted_name, timestamps))
        key, word = yaml_key(written_name(*table)), shell_word(written_name(*table))
        raise AmbiguousTimeIndexError(
            f"Table '{table}' has {len(timestamps)} timestamp columns ({names}), and the plan does not name"
            f" its time index. Write `time_columns: {{{key}: <column>}}` in the plan, or `{key}: null` to"
            f" export the table untimed; or give --time-column {word}=<column>, or {word}=null.",
            table=table_text(table),
            candidates=tuple(timestamps),
        )
    return next(iter(timestamps), None)
