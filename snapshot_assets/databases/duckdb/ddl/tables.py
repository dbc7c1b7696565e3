"""The SQL that creates tables and sets sequences in a target file, and their names there."""

from __future__ import annotations

from collections.abc import Iterable

from snapshot_assets.databases.duckdb.ddl.checked_sql import Texts, collation
from snapshot_assets.databases.duckdb.sql import identifiers, qualified
from snapshot_assets.databases.sql import identifier, literal
from snapshot_assets.format.relations import DatabaseSchema, Sequence, Table, TableName

TARGET = "snapshot_assets_target"
"""Name of the target's database while it is open. The file's own name may be the name of a schema in it."""

_INTEGERS = frozenset(
    ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT")
)


class Names:
    """Quoted names of the schemas and relations of a snapshot's documents.

    A dot in a schema's name separates it from an outer schema if the documents have the outer schema too.

    Attributes:
        schemas: Every schema but `main`, outer ones first.
    """

    def __init__(self, schema: DatabaseSchema) -> None:
        known = {each.name for each in schema.schemas}
        known |= {table.schema_name for table in schema.tables} | {view.schema_name for view in schema.views}
        known |= {sequence.schema_name for table in schema.tables for sequence in table.sequences}
        self.schemas = sorted(known - {"main"})
        self._known = known

    def schema(self, name: str) -> str:
        """Return a schema's quoted name."""
        return qualified((TARGET, *self.path(name)))

    def relation(self, name: TableName) -> str:
        """Return the quoted name of a table, view, sequence or type."""
        return qualified((TARGET, *self.path(name.schema), name.table))

    def stored(self, name: TableName) -> str:
        """Return the quoted name without the database's name, which may change; for names that the file stores."""
        return qualified((*self.path(name.schema), name.table))

    def is_nested(self, schema: str) -> bool:
        """Return whether a schema is inside another one."""
        return len(self.path(schema)) > 1

    def path(self, name: str) -> tuple[str, ...]:
        """Return the names of a schema and of its outer schemas, outermost first."""
        outer, dot, inner = name.rpartition(".")
        while dot:
            if outer in self._known and inner:
                return (*self.path(outer), inner)
            outer, dot, more = outer.rpartition(".")
            inner = f"{more}.{inner}"
        return (name,)


def create_table(table: Table, names: Names, texts: Texts, *, keys: bool = False) -> str:
    """Return the statement that creates a table.

    Args:
        table: Its document.
        names: The names in the target.
        texts: Checks the document's SQL.
        keys: Whether to create its keys with it.

    Raises:
        DocumentError: A text of the document is refused.
    """
    name = table.table_name
    parts = []
    for column in table.columns:
        where = f"{name}.{column.name}"
        kind = str(texts.type(column.type, where))
        part = f"{identifier(column.name)} {kind}"
        if column.collation is not None:
            part += collation(column.collation, where)
        if column.generated is not None:
            expression = texts.generated(column.generated, kind, f"The expression of {where}")
            part += f" GENERATED ALWAYS AS {expression} VIRTUAL"
        elif column.default is not None:
            part += f" DEFAULT {texts.expression(column.default, f'The default of {where}')}"
        parts.append(part if column.nullable else f"{part} NOT NULL")
    parts += [texts.check(check.definition, f"Check {check.name} of {name}") for check in table.checks]
    if keys:
        parts += _keys(table, names)
    return f"CREATE TABLE {names.relation(name)} ({', '.join(parts)})"


def _keys(table: Table, names: Names) -> list[str]:
    parts = [f"PRIMARY KEY {identifiers(table.primary_key.columns)}"] if table.primary_key is not None else []
    parts += [f"UNIQUE {identifiers(unique.columns)}" for unique in table.unique]
    for key in table.foreign_keys:
        referenced = names.stored(TableName(key.referenced_schema, key.referenced_table))
        parts.append(
            f"FOREIGN KEY {identifiers(key.columns)} REFERENCES {referenced} {identifiers(key.referenced_columns)}"
        )
    return parts


def sequence_place(sequence: Sequence, columns: Iterable[tuple[Table, str]], names: Names) -> str:
    """Return the statement that sets a sequence to its last value, or past the values of the columns that draw from it.

    It does not set a sequence back that is further already.

    Args:
        sequence: Its document.
        columns: Tables with their columns whose defaults draw from it.
        names: The names in the target.
    """
    name = TableName(sequence.schema_name, sequence.name)
    now = (
        f"(SELECT last_value FROM duckdb_sequences() WHERE sequence_name = {literal(sequence.name)}"
        f" AND schema_oid = {_schema_oid(names.path(sequence.schema_name))})"
    )
    last = "NULL" if sequence.last_value is None else str(sequence.last_value)
    if sequence.cycle:
        return _set(names.relation(name), f"coalesce({now}, {last})")
    end = "max" if sequence.increment > 0 else "min"
    values = [f"({now})", f"({last})"] + [
        f"((SELECT CAST({end}({identifier(column)}) AS BIGINT) FROM {names.relation(table.table_name)}"
        f" WHERE {identifier(column)} BETWEEN {sequence.minimum} AND {sequence.maximum}))"
        for table, column in columns
        if table.column(column).type in _INTEGERS
    ]
    return _set(names.relation(name), f"(SELECT {end}(x) FROM (VALUES {', '.join(values)}) AS v (x))")


def _set(sequence: str, value: str) -> str:
    return f"SELECT setval({literal(sequence)}, CAST(v AS BIGINT)) FROM (SELECT {value} AS v) WHERE v IS NOT NULL"


def _schema_oid(path: tuple[str, ...]) -> str:
    if not path:
        return "NULL"
    return (
        f"(SELECT oid FROM duckdb_schemas() WHERE database_name = {literal(TARGET)}"
        f" AND schema_name = {literal(path[-1])} AND parent_schema_oid IS NOT DISTINCT FROM {_schema_oid(path[:-1])})"
    )
