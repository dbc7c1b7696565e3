"""Finds values that native carriers cannot hold, by one query for each table: NaN, infinite times and 24:00."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from snapshot_assets.databases.masks import mask_of, masked
from snapshot_assets.databases.postgresql.types import SourceType
from snapshot_assets.databases.sql import identifier
from snapshot_assets.format.relations import Carrier, Column, Table

_CONDITIONS = {
    "numeric": ("{value} = 'NaN'::pg_catalog.numeric", "NaN"),
    "date": ("NOT pg_catalog.isfinite({value})", "infinity or -infinity"),
    "time": ("{value} = '24:00:00'::pg_catalog.time", "24:00:00"),
    **{
        name: (
            f"NOT pg_catalog.isfinite({{value}}) OR {{value}} > '294247-01-10 04:00:54.775807+00'::pg_catalog.{name}",
            "infinity, -infinity or a time after the year 294246",
        )
        for name in ("timestamp", "timestamptz")
    },
}
"""By type: a condition of unfit values, and what they are called."""


class UnfitCheck(NamedTuple):
    """The condition of a column's unfit values, and what they are called."""

    column: Column
    condition: str
    found: str


def unfit_checks(table: Table, types: Mapping[str, SourceType]) -> Iterator[UnfitCheck]:
    """Yield the checks of a table's columns that travel natively and have values that do not fit."""
    for column in table.columns:
        source = types[column.name]
        if column.carrier is not Carrier.NATIVE or source.builtin not in _CONDITIONS:
            continue
        mask = mask_of(table, column.name)
        value = identifier(column.name) if mask is None else masked(mask, source.text)
        condition, found = _CONDITIONS[source.builtin]
        yield UnfitCheck(column, condition.format(value=f"{value}::pg_catalog.{source.builtin}"), found)
