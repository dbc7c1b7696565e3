"""Partitions: tables of their own, tied to the table that they are a part of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from snapshot_assets.databases.postgresql.ddl import checked_sql as text
from snapshot_assets.databases.postgresql.ddl.columns import column_settings, not_null, typed, value
from snapshot_assets.databases.postgresql.ddl.statements import (
    Making,
    alter,
    column_comments,
    comment,
    part_name,
    storage,
    unlogged,
)
from snapshot_assets.databases.postgresql.sql import qualified
from snapshot_assets.databases.target import Statement
from snapshot_assets.errors import RestoreError
from snapshot_assets.format.relations import Column, Table, TableName


def create(making: Making, table: Table, part: Mapping[str, Any]) -> Iterator[Statement]:
    """Yield what makes a partition: as a table of its own, then attached, so that its names are its own."""
    name, of = part_name(part), table.table_name
    what = f"partition {name}"
    if part.get("relation") == "foreign table":
        making.lose(f"Partition {name} was a foreign table: its rows are restored, and it is a plain table.")
    columns = {column.name: column for column in table.columns}
    order = part.get("column_order", list(columns))
    if set(order) != set(columns):
        raise RestoreError(f"Partition {name} has other columns than its table {of}.", table=str(name))
    elements = ", ".join(_column(making, columns[each], part) for each in order)
    inner = text.relation_parameters(part, what)
    key = part.get("partition_by")
    by = f" PARTITION BY {text.partition_key(key, f'partition key of {name}')[0]}" if key else ""
    yield Statement(what, f"CREATE {unlogged(part)}TABLE {qualified(name)} ({elements}){by}{storage(part, inner)}", of)
    bounds = text.bounds(part["bounds"], f"bounds of {what}")
    yield alter(TableName(*part["of"]), f"ATTACH PARTITION {qualified(name)} {bounds}", makes=what, of=of)
    yield from comment("TABLE", qualified(name), part.get("comment"), what, of)
    yield from column_comments(part.get("comments", {}).get("columns", {}), name, of)
    yield from column_settings(part.get("columns", {}), name, of)


def _column(making: Making, column: Column, part: Mapping[str, Any]) -> str:
    name = part_name(part)
    place = f"column {name}.{column.name}"
    options = part.get("columns", {}).get(column.name, {})
    update: dict[str, Any] = {"identity": None, "default": part.get("defaults", {}).get(column.name)}
    if column.generated is not None and column.name in part.get("generated", {}):
        update["generated"] = part["generated"][column.name]
    drawn = text.drawn_from(update["default"])
    if update["default"] is not None and not making.allows(f"Default of {place}", drawn is not None):
        update["default"] = None
    if column.name in part.get("not_null", ()):
        update["nullable"] = False
    own = column.model_copy(update=update)
    return f"{typed(own, place)}{value(own, None, place)}{not_null(own, options)}"
