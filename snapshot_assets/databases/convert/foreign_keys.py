"""Which foreign keys a DuckDB file can have. Pure: the documents alone decide."""

from __future__ import annotations

from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter

from snapshot_assets.format.relations import ForeignKey, Table, TableName


def possible_keys(tables: Iterable[Table], lost: list[str]) -> list[Table]:
    """Return the tables with the foreign keys that DuckDB can have, each after those that it refers to.

    Args:
        tables: All tables of the restore.
        lost: Gets a sentence for each foreign key that is left out.
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
    if _referred(key) == table.table_name:
        return "DuckDB accepts no row that refers to itself, or to one that refers back"
    referred = tables.get(_referred(key))
    if referred is None:
        return f"{_referred(key)} is not restored"
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
        graph = {name: {_referred(key) for key in table.foreign_keys} for name, table in tables.items()}
        try:
            return list(TopologicalSorter(graph).static_order())
        except CycleError as error:
            parent, child = error.args[1][:2]  # each is referred to by the next one
            keys = tables[child].foreign_keys
            others = [key for key in keys if _referred(key) != parent]
            lost += (
                f"Foreign key {key.name} of {child} is left out: DuckDB has no circles of foreign keys."
                for key in keys
                if _referred(key) == parent
            )
            tables[child] = tables[child].model_copy(update={"foreign_keys": tuple(others)})


def _referred(key: ForeignKey) -> TableName:
    return TableName(key.referenced_schema, key.referenced_table)
