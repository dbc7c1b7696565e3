"""The SQL that creates tables and their foreign keys, and sets sequences, in a target file.

DuckDB takes a foreign key in `CREATE TABLE` only, and compares a row with the rows before its batch: it refuses a child
in an earlier chunk than its parent. So a table is loaded without foreign keys. At the end it is created a second time
with them, parents first, and its rows are moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from snapshot_assets.databases.definition import ObjectKey, Statement
from snapshot_assets.databases.duckdb.parser import Texts, collation
from snapshot_assets.databases.sql import identifier, identifiers, literal, qualified
from snapshot_assets.format.relations import Sequence, Table, TableName

TARGET = "snapshot_assets_target"
"""Name of the target's database while it is open. The file's own name may be the name of a schema in it."""

_INTEGERS = frozenset(
    ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT")
)


def target_name(name: TableName) -> str:
    """Return the quoted name of a table, view, sequence or type in the target."""
    return qualified((TARGET, *name))


def create_table(table: Table, texts: Texts, *, keys: bool = False) -> str:
    """Return the statement that creates a table, of whose document DuckDB wrote the types, with its keys or without."""
    name = table.table_name
    parts = []
    for column in table.columns:
        where = f"{name}.{column.name}"
        part = f"{identifier(column.name)} {column.type}"
        if column.collation is not None:
            part += collation(column.collation, where)
        if column.generated is not None:
            expression = texts.generated(column.generated, column.type, f"The expression of {where}")
            part += f" GENERATED ALWAYS AS {expression} VIRTUAL"
        elif column.default is not None:
            part += f" DEFAULT {texts.expression(column.default, f'The default of {where}')}"
        parts.append(part if column.nullable else f"{part} NOT NULL")
    parts += [texts.check(check.definition, f"Check {check.name} of {name.dotted}") for check in table.checks]
    if keys:
        parts += _keys(table)
    return f"CREATE TABLE {target_name(name)} ({', '.join(parts)})"


def _keys(table: Table) -> list[str]:
    parts = [f"PRIMARY KEY {identifiers(table.primary_key.columns)}"] if table.primary_key is not None else []
    parts += [f"UNIQUE {identifiers(unique.columns)}" for unique in table.unique]
    for key in table.foreign_keys:
        referenced = qualified(key.referenced)
        parts.append(
            f"FOREIGN KEY {identifiers(key.columns)} REFERENCES {referenced} {identifiers(key.referenced_columns)}"
        )
    return parts


def without_keys(name: TableName) -> TableName:
    """Return the name of a table with the rows of one that is created a second time, until these are moved."""
    return TableName(name.schema, f"{name.table} without keys")


def rebuild(table: Table, texts: Texts) -> Iterator[Statement]:
    """Yield the statements that create a second table with all keys, move the rows, and drop the first."""
    name = table.table_name
    key = ObjectKey("foreign keys", of=name)
    referred = tuple(key.referenced for key in table.foreign_keys)
    loaded = without_keys(name)
    new, old = target_name(name), target_name(loaded)
    stored = ", ".join(identifier(column.name) for column in table.columns if column.generated is None)
    for index in table.indexes:  # when it is tried again, these are there, and would keep the table from being renamed
        indexed = qualified((TARGET, name.schema, index.name))
        there = has_index(name, index.name)
        yield Statement(key, f"DROP INDEX {indexed}", name, unless=f"SELECT 1 AS one WHERE NOT EXISTS ({there})")
    yield Statement(key, f"ALTER TABLE {new} RENAME TO {identifier(loaded.table)}", name)
    yield Statement(key, create_table(table, texts, keys=True), name, reads=referred)
    yield Statement(key, f"INSERT INTO {new} ({stored}) SELECT {stored} FROM {old}", name)
    yield Statement(key, f"DROP TABLE {old}", name)


def has_key(name: TableName, kind: str, columns: Iterable[str] | None = None) -> str:
    """Return the query that yields a row if a table has a `PRIMARY KEY` or `UNIQUE` key, of these columns or any."""
    of_columns = "" if columns is None else f" AND constraint_column_names = [{', '.join(map(literal, columns))}]"
    return (
        f"SELECT 1 AS found FROM duckdb_constraints() WHERE database_name = {literal(TARGET)}"
        f" AND schema_name = {literal(name.schema)} AND table_name = {literal(name.table)}"
        f" AND constraint_type = {literal(kind)}{of_columns}"
    )


def has_index(name: TableName, index: str) -> str:
    """Return the query that yields a row if a table has an index of a name."""
    return (
        f"SELECT 1 AS found FROM duckdb_indexes() WHERE database_name = {literal(TARGET)}"
        f" AND schema_name = {literal(name.schema)} AND table_name = {literal(name.table)}"
        f" AND index_name = {literal(index)}"
    )


def has_type(name: TableName) -> str:
    """Return the query that yields a row if there is a type of a name."""
    return (
        f"SELECT 1 AS found FROM duckdb_types() WHERE database_name = {literal(TARGET)}"
        f" AND lower(schema_name) = lower({literal(name.schema)}) AND lower(type_name) = lower({literal(name.table)})"
    )


def has_sequence(name: TableName) -> str:
    """Return the query that yields a row if there is a sequence of a name, in whose case DuckDB sees no difference."""
    return (
        f"SELECT 1 AS found FROM duckdb_sequences() WHERE database_name = {literal(TARGET)}"
        f" AND lower(schema_name) = lower({literal(name.schema)})"
        f" AND lower(sequence_name) = lower({literal(name.table)})"
    )


def sequence_place(sequence: Sequence, columns: Iterable[tuple[Table, str]]) -> str:
    """Return the statement that sets a sequence to its last value, or past the values of the columns that draw from it.

    It does not set a sequence back that is further already.
    """
    name = target_name(sequence.table_name)
    now = (
        f"(SELECT last_value FROM duckdb_sequences() WHERE database_name = {literal(TARGET)}"
        f" AND schema_name = {literal(sequence.schema_name)} AND sequence_name = {literal(sequence.name)})"
    )
    last = "NULL" if sequence.last_value is None else str(sequence.last_value)
    if sequence.cycle:
        return _set(name, f"coalesce({now}, {last})")
    end = "max" if sequence.increment > 0 else "min"
    values = [f"({now})", f"({last})"] + [
        f"((SELECT CAST({end}({identifier(column)}) AS BIGINT) FROM {target_name(table.table_name)}"
        f" WHERE {identifier(column)} BETWEEN {sequence.minimum} AND {sequence.maximum}))"
        for table, column in columns
        if table.column(column).type in _INTEGERS
    ]
    return _set(name, f"(SELECT {end}(x) FROM (VALUES {', '.join(values)}) AS v (x))")


def _set(sequence: str, value: str) -> str:
    return f"SELECT setval({literal(sequence)}, CAST(v AS BIGINT)) FROM (SELECT {value} AS v) WHERE v IS NOT NULL"
