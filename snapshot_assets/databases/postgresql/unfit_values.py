"""Finds values that cannot be exported or restored, by one query for each table.

Native carriers cannot hold NaN, infinite times and 24:00. A `regclass` that names a view is loaded before the view is
created, so it could never be restored.
"""

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

_CREATED_LATE = "c.oid >= 16384 AND c.relkind NOT IN ('r', 'p', 'S', 'c') AND NOT EXISTS (" + (
    "SELECT FROM pg_catalog.pg_depend d WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass"
    " AND d.objid = c.oid AND d.deptype = 'e')"
)
_NAMES_LATE = {
    "regclass": f"EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = {{value}} AND {_CREATED_LATE})",
    "regtype": (
        "EXISTS (SELECT FROM pg_catalog.pg_type y JOIN pg_catalog.pg_class c ON c.oid = y.typrelid"
        f" WHERE {{value}} IN (y.oid, y.typarray) AND {_CREATED_LATE})"
    ),
}
"""By type: a condition of values that name what a restore creates after the rows, such as a view or an index."""


class UnfitCheck(NamedTuple):
    """The condition of a column's unfit values, and what they are called; "" for names of what is created late."""

    column: Column
    condition: str
    found: str


def unfit_checks(table: Table, types: Mapping[str, SourceType]) -> Iterator[UnfitCheck]:
    """Yield the checks of a table's columns whose type has values that do not fit, or that no restore could load."""
    for column in table.columns:
        source = types[column.name]
        mask = mask_of(table, column.name)
        value = f"({identifier(column.name) if mask is None else masked(mask, source.text)})::pg_catalog."
        builtin = source.builtin or ""
        element = builtin.removeprefix("_")
        if column.carrier is Carrier.NATIVE and builtin in _CONDITIONS:
            condition, found = _CONDITIONS[builtin]
            yield UnfitCheck(column, condition.format(value=f"{value}{builtin}"), found)
        elif builtin in _NAMES_LATE:
            yield UnfitCheck(column, _NAMES_LATE[builtin].format(value=f"{value}{builtin}"), "")
        elif element in _NAMES_LATE:
            each = _NAMES_LATE[element].format(value="u.name")
            elements = f"pg_catalog.unnest({value}{element}[]) u (name)"
            yield UnfitCheck(column, f"EXISTS (SELECT FROM {elements} WHERE {each})", "")
