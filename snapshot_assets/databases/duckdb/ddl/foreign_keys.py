"""Foreign keys in a restored file: which are possible, and how loaded tables get them.

DuckDB takes a foreign key in `CREATE TABLE` only, and compares a row with the rows before its batch: it refuses a child
in an earlier chunk than its parent. So a table is loaded without foreign keys. At the end it is created a second time
with them, parents first, and its rows are moved. Rows of a table that refers to itself move generation by generation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from snapshot_assets.databases.duckdb.ddl.checked_sql import Texts
from snapshot_assets.databases.duckdb.ddl.tables import Names, create_table
from snapshot_assets.databases.sql import identifier
from snapshot_assets.databases.target import Statement
from snapshot_assets.format.relations import ForeignKey, Table, TableName


@dataclass(frozen=True)
class Repeated(Statement):
    """A statement that is repeated until it changes no row."""


def possible_keys(tables: Sequence[Table], lost: list[str]) -> list[Table]:
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
        graph = {name: {_referred(key) for key in table.foreign_keys} - {name} for name, table in tables.items()}
        try:
            return list(TopologicalSorter(graph).static_order())
        except CycleError as error:
            parent, child = error.args[1][:2]  # each is referred to by the next one
            others = [key for key in tables[child].foreign_keys if _referred(key) != parent]
            tables[child] = tables[child].model_copy(update={"foreign_keys": tuple(others)})
            lost.append(f"Foreign keys of {child} to {parent} are left out: DuckDB has no circles of foreign keys.")


def _referred(key: ForeignKey) -> TableName:
    return TableName(key.referenced_schema, key.referenced_table)


def rebuild(table: Table, names: Names, texts: Texts) -> Iterator[Statement]:
    """Yield the statements that create a second table with all keys, move the rows, and drop the first.

    Args:
        table: Its document, with the foreign keys that are possible.
        names: The names in the target.
        texts: Checks the document's SQL.
    """
    name, what = table.table_name, f"foreign keys of {table.table_name}"
    loaded = TableName(name.schema, f"{name.table} without keys")
    new, old = names.relation(name), names.relation(loaded)
    columns = [identifier(column.name) for column in table.columns if column.generated is None]
    move = (
        f"INSERT INTO {new} ({', '.join(columns)})"
        f" SELECT {', '.join(f'o.{column}' for column in columns)} FROM {old} AS o"
    )
    yield Statement(what, f"ALTER TABLE {new} RENAME TO {identifier(loaded.table)}", name)
    yield Statement(what, create_table(table, names, texts, keys=True), name)
    own = [key for key in table.foreign_keys if _referred(key) == name]
    if own:
        yield from _generations(own, move, new, what, name)
    else:
        yield Statement(what, move, name)
    yield Statement(what, f"DROP TABLE {old}", name)


def _generations(keys: Sequence[ForeignKey], move: str, new: str, what: str, name: TableName) -> Iterator[Statement]:
    """Yield the statements that move rows after their parents; the last one moves rows whose parent is missing."""
    roots = " AND ".join(_no_parent(key) for key in keys)
    ready = " AND ".join(f"({_no_parent(key)} OR EXISTS ({_match(new, key.referenced_columns, key.columns)}))"
                         for key in keys)  # fmt: skip
    identity = keys[0].referenced_columns
    anonymous = " OR ".join(f"o.{identifier(column)} IS NULL" for column in identity)
    moved = f"EXISTS ({_match(new, identity, identity)})"
    yield Statement(what, f"{move} WHERE {roots}", name)
    yield Repeated(what, f"{move} WHERE NOT ({roots}) AND NOT ({anonymous}) AND {ready} AND NOT {moved}", name)
    yield Statement(what, f"{move} WHERE NOT ({roots}) AND (({anonymous}) OR NOT {moved})", name)


def _no_parent(key: ForeignKey) -> str:
    return "(" + " OR ".join(f"o.{identifier(column)} IS NULL" for column in key.columns) + ")"


def _match(new: str, there: Sequence[str], here: Sequence[str]) -> str:
    pairs = zip(there, here, strict=True)
    where = " AND ".join(f"p.{identifier(one)} = o.{identifier(other)}" for one, other in pairs)
    return f"SELECT 1 FROM {new} AS p WHERE {where}"
