"""Which tables and foreign keys of another kind of database DuckDB can have."""

from __future__ import annotations

from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter

from snapshot_assets.databases.convert.actions import with_actions
from snapshot_assets.format.relations import DatabaseSchema, ForeignKey, Table, TableName

_ACTIONS = ("RESTRICT", "NO ACTION")
"""What DuckDB does, though it takes no actions: rows to which others refer are kept."""


def adapt(schema: DatabaseSchema) -> tuple[DatabaseSchema, tuple[str, ...]]:
    """Return documents without tables and foreign keys that DuckDB has not; see `Adapter.adapt`."""
    lost = [
        f"Table {table.table_name} is left out: it has no columns, and DuckDB has no such tables."
        for table in schema.tables
        if not table.columns
    ]
    whole = [table for table in schema.tables if table.columns]
    by_name = {table.table_name: table for table in possible_keys(whole, lost)}
    tables = tuple(_refusing(by_name[table.table_name]) for table in whole)
    return schema.model_copy(update={"tables": tables}), tuple(lost)


def _refusing(table: Table) -> Table:
    keys = tuple(with_actions(key, _ACTIONS) for key in table.foreign_keys)
    return table.model_copy(update={"foreign_keys": keys})


def possible_keys(tables: Iterable[Table], lost: list[str]) -> list[Table]:
    """Return the tables with the foreign keys that DuckDB can have, each after those that it refers to.

    A sentence for each foreign key that is left out is added to `lost`.
    """
    by_name = {table.table_name: table for table in tables}
    possible: dict[TableName, Table] = {}
    for table in tables:
        keys = []
        for key in table.foreign_keys:
            if reason := _impossible(table, key, by_name):
                lost.append(f"Foreign key {key.name} of {table.table_name} is left out: {reason}.")
            else:
                keys.append(key)
        possible[table.table_name] = table.model_copy(update={"foreign_keys": tuple(keys)})
    return [possible[name] for name in _ordered(possible, lost)]


def _impossible(table: Table, key: ForeignKey, tables: dict[TableName, Table]) -> str:
    if key.referenced == table.table_name:
        return "DuckDB accepts no row that refers to itself, or to one that refers back"
    referred = tables.get(key.referenced)
    if referred is None:
        return f"{key.referenced} is not restored"
    if key.referenced_schema != table.schema_name:
        return "DuckDB has no foreign keys between schemas"
    keys = [set(each.columns) for each in (referred.primary_key, *referred.unique) if each is not None]
    if set(key.referenced_columns) not in keys:
        return f"its referenced columns are no key of {referred.table_name}"
    pairs = zip(key.columns, key.referenced_columns, strict=True)
    if any(table.column(here).type != referred.column(there).type for here, there in pairs):
        return "DuckDB requires one type on both sides"
    return ""


def _ordered(tables: dict[TableName, Table], lost: list[str]) -> list[TableName]:
    while True:
        graph = {name: {key.referenced for key in table.foreign_keys} for name, table in tables.items()}
        try:
            return list(TopologicalSorter(graph).static_order())
        except CycleError as error:
            parent, child = error.args[1][:2]  # each is referred to by the next one
            keys = tables[child].foreign_keys
            others = [key for key in keys if key.referenced != parent]
            lost += (
                f"Foreign key {key.name} of {child} is left out: DuckDB has no circles of foreign keys."
                for key in keys
                if key.referenced == parent
            )
            tables[child] = tables[child].model_copy(update={"foreign_keys": tuple(others)})
