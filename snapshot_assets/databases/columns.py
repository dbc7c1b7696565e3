"""Rules about columns that all databases share: time indexes and the sequences of identity columns."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from snapshot_assets.errors import AmbiguousTimeIndexError, PlanError
from snapshot_assets.format.relations import Sequence, Table, TableName


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
        return _configured(table, configured[table], timestamps, dates)
    if dimension is not None:
        return dimension
    if len(timestamps) > 1:
        names = ", ".join(map(repr, timestamps))
        raise AmbiguousTimeIndexError(
            f"Table {str(table)!r} has {len(timestamps)} timestamp columns ({names}), and the plan does not name"
            f" its time index. Write `time_columns: {{{table}: <column>}}` in the plan, or `{table}: null` to"
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
        f" or a date. In this table these are: {usable}. Name one of them, or `null` to export the table untimed.",
        table=str(table),
        column=column,
    )


def identity_sequences(table: Table) -> dict[str, Sequence]:
    """Return the sequence of each identity column.

    A column may own several sequences; then the document records which one. Documents of earlier versions do not. The
    sequence with the most advanced value is correct for them: its next number is unused in any case.
    """
    recorded = table.options.get("identity_sequences", {})
    sequences: dict[str, Sequence] = {}
    for column in table.columns:
        owned = [each for each in table.sequences if each.owned and each.column == column.name]
        if column.identity is None or not owned:
            continue
        own = [each for each in owned if recorded.get(column.name) == [each.schema_name, each.name]]
        sequences[column.name] = max(own or owned, key=_advance)
    return sequences


def _advance(sequence: Sequence) -> int:
    """Return how far a sequence is from zero, in its own direction."""
    value = sequence.start if sequence.last_value is None else sequence.last_value
    return value if sequence.increment > 0 else -value
