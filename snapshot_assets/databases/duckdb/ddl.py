"""DDL: the statements that create a snapshot's schema in a target file.

`parser` checks SQL text that comes from documents before it is used. Keys, indexes and comments are created after the
data. Only `CREATE TABLE` takes checks, collations, generated columns and foreign keys.

DuckDB compares a row's foreign keys with the rows before its batch: it refuses a child in an earlier chunk than its
parent. So a table is loaded without foreign keys. At the end it is created a second time with them, parents first, and
its rows are moved.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

import duckdb

from snapshot_assets.databases.convert.lost import is_plain, other_method
from snapshot_assets.databases.convert.renaming import clashes
from snapshot_assets.databases.definition import (
    Create,
    Definition,
    FailedStatement,
    ObjectKey,
    Statement,
    comment,
    ordered_views,
    without_expressions,
)
from snapshot_assets.databases.duckdb import KIND
from snapshot_assets.databases.duckdb.foreign_keys import possible_keys
from snapshot_assets.databases.duckdb.parser import Texts, check_statement, collation
from snapshot_assets.databases.selection.exclusions import uncarried
from snapshot_assets.databases.sql import identifier, identifiers, literal, qualified
from snapshot_assets.format.kinds import capital
from snapshot_assets.format.options import SchemaOptions
from snapshot_assets.format.relations import DatabaseSchema, Sequence, Table, TableName, View

TARGET = "snapshot_assets_target"
"""Name of the target's database while it is open. The file's own name may be the name of a schema in it."""

_INTEGERS = frozenset(
    ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT")
)


def define(schema: DatabaseSchema, *, expressions: bool = True, code: bool = False) -> Definition:
    """Return the statements that create a schema; see `TargetModule.define`. `code` changes nothing."""
    with closing(Texts()) as texts:
        return _Defining(schema, texts, expressions=expressions).definition()


class _Defining:
    def __init__(self, schema: DatabaseSchema, texts: Texts, *, expressions: bool) -> None:
        self._schema = schema
        self._texts = texts
        self._expressions = expressions
        self._lost: list[str] = []

    def definition(self) -> Definition:
        self._lost += uncarried(self._schema)
        tables = tuple(self._table(table) for table in self._schema.tables)
        if refused := tuple(clashes(self._schema, KIND.title, KIND.names)):
            return Definition(tables, lost=tuple(self._lost), refused=refused)
        keyed = possible_keys(tables, self._lost)  # in an order that has parents before their children
        by_name = {table.table_name: table for table in keyed}
        tables = tuple(by_name[table.table_name] for table in tables)
        sequences = self._sequences()
        before = [*self._schemas(), *self._types()]
        for sequence, _ in sequences:
            name = sequence.table_name
            sql = (
                f"CREATE SEQUENCE {_target_name(name)} INCREMENT BY {sequence.increment} MINVALUE {sequence.minimum}"
                f" MAXVALUE {sequence.maximum} START {sequence.start}{' CYCLE' if sequence.cycle else ''}"
            )
            there = _there("sequences", schema_name=name.schema, sequence_name=name.table)
            before.append(Create(ObjectKey("sequence", name), sql, there=there))
        for table in tables:
            name = table.table_name
            before.append(Statement(ObjectKey("table", name), _create_table(table, self._texts), name))
        after = [statement for table in keyed if not table.foreign_keys for statement in self._keys(table)]
        for table in keyed:
            if table.foreign_keys:
                after += rebuild(table, self._texts)
                after += self._keys(table, alone=True)
        after += [statement for table in tables for statement in self._indexes(table)]
        for sequence, columns in sequences:
            key = ObjectKey("value", of=ObjectKey("sequence", sequence.table_name))
            after.append(Statement(key, _sequence_place(sequence, columns)))
        after += [statement for table in tables for statement in self._comments(table)]
        after += self._views()
        for statement in (*before, *after):
            check_statement(self._texts.connection, statement.sql, str(statement.key))
        refusals, impossible, lacking = [], set(), {}
        for failed in rehearse([*before, *after]):
            key = failed.statement.key
            if failed.statement in before:
                refusals.append(f"{key} could not be made in DuckDB: {failed.message}.")
            elif failed.lacks:  # such as a macro, which the target may have
                lacking[key] = failed.message
            else:
                impossible.add(key)
                self._lost.append(f"{capital(str(key))} is left out: {failed.message}.")
        kept = [each for each in after if each.key not in impossible]
        after = [Lacking(**vars(each), reason=lacking[each.key]) if each.key in lacking else each for each in kept]
        drawn = tuple((each.table_name, table.table_name) for table in tables for each in table.sequences)
        lost, refused = tuple(self._lost), tuple(refusals)
        return Definition(tables, tuple(before), tuple(after), lost, refused=refused, drawn=drawn)

    def _table(self, table: Table) -> Table:
        """Return a table as the target will have it: types as DuckDB writes them, expressions only if wanted."""
        if not self._expressions:
            table = without_expressions(table, self._lost)
        types = (str(self._texts.type(column.type, f"{table.table_name}.{column.name}")) for column in table.columns)
        columns = (column.model_copy(update={"type": of}) for column, of in zip(table.columns, types, strict=True))
        return table.model_copy(update={"columns": tuple(columns)})

    def _schemas(self) -> Iterator[Statement]:
        names = {each.name for each in self._schema.schemas} | {each.schema_name for each in self._schema.views}
        for table in self._schema.tables:
            names |= {table.schema_name, *(sequence.schema_name for sequence in table.sequences)}
        for name in sorted(names - {"main"}):
            yield Statement(ObjectKey("schema", name), f"CREATE SCHEMA IF NOT EXISTS {qualified((TARGET, name))}")
        for schema in self._schema.schemas:
            if schema.comment is not None:
                self._lost.append(f"Comment of schema {schema.name} is left out: DuckDB has no comments on schemas.")

    def _types(self) -> Iterator[Statement]:
        for schema in self._schema.schemas:
            for kind in SchemaOptions.of(schema).types:
                quoted, key = _target_name(kind.table_name), ObjectKey("type", kind.table_name)
                if kind.kind == "enum":
                    body = f"ENUM ({', '.join(map(literal, kind.labels))})"
                else:
                    body = str(self._texts.type(str(kind.definition.get("type")), str(kind.table_name)))
                there = _there("types", schema_name=kind.schema_name, type_name=kind.name)
                yield Create(key, f"CREATE TYPE {quoted} AS {body}", there=there)
                yield from comment(f"TYPE {quoted}", kind.comment, key, None)

    def _sequences(self) -> Collection[tuple[Sequence, list[tuple[Table, str]]]]:
        """Return the sequences with the columns that draw from each."""
        sequences: dict[TableName, tuple[Sequence, list[tuple[Table, str]]]] = {}
        for schema in self._schema.schemas:
            for sequence in SchemaOptions.of(schema).sequences:
                sequences.setdefault(sequence.table_name, (sequence, []))
        for table in self._schema.tables:
            for sequence in table.sequences:
                _, columns = sequences.setdefault(sequence.table_name, (sequence, []))
                if sequence.column is not None:
                    columns.append((table, sequence.column))
        return sequences.values()

    def _keys(self, table: Table, *, alone: bool = False) -> Iterator[Statement]:
        """Yield the keys of a table; `alone` only those that it lacks, because its foreign keys could not be made."""
        name = table.table_name
        primary = table.primary_key
        keys = [("PRIMARY KEY", ObjectKey("primary key", of=name), primary.columns)] if primary else []
        keys += [("UNIQUE", ObjectKey("unique constraint", each.name, name), each.columns) for each in table.unique]
        for kind, key, columns in keys:
            sql = f"ALTER TABLE {_target_name(name)} ADD {kind} {identifiers(columns)}"
            there = has_key(name, kind, columns) if alone else ""
            yield Statement(key, sql, name, unless=there, there=there)

    def _indexes(self, table: Table) -> Iterator[Statement]:
        for index in table.indexes:
            key = ObjectKey("index", index.name, table.table_name)
            keys = identifiers(index.columns) if is_plain(index) else None
            if keys is None and self._expressions and not other_method(index):
                keys = self._texts.index_keys(index.definition, str(key))
            if keys is None:
                self._lost.append(f"{capital(str(key))} is left out: {index.definition}.")
                continue
            unique = "UNIQUE " if index.unique else ""
            name = table.table_name
            sql = f"CREATE {unique}INDEX {identifier(index.name)} ON {_target_name(name)} {keys}"
            yield Statement(key, sql, name, there=_has_index(name, index.name))

    def _comments(self, relation: Table | View) -> Iterator[Statement]:
        name, quoted = relation.table_name, _target_name(relation.table_name)
        kind = "TABLE" if isinstance(relation, Table) else "VIEW"
        yield from comment(f"{kind} {quoted}", relation.comment, name, name)
        for each in relation.columns:
            column = ObjectKey("attribute", each.name, ObjectKey(kind.lower(), name))
            yield from comment(f"COLUMN {quoted}.{identifier(each.name)}", each.comment, column, name)

    def _views(self) -> Iterator[Statement]:
        for view in ordered_views(self._schema, self._lost, expressions=self._expressions):
            name, columns = view.table_name, identifiers(tuple(column.name for column in view.columns))
            sql = f"CREATE VIEW {_target_name(name)} {columns} AS {view.definition}"
            yield Statement(ObjectKey("view", name), sql, name)
            yield from self._comments(view)


@dataclass(frozen=True)
class Lacking(Statement):
    """Needs what no other statement makes, such as a macro: it fails unless the target has that.

    Attributes:
        reason: DuckDB's message.
    """

    reason: str = ""


def rehearse(statements: Iterable[Statement]) -> list[FailedStatement]:
    """Return the statements that fail; of several that make one object, the first that does."""
    failed: dict[ObjectKey, FailedStatement] = {}
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH ':memory:' AS {identifier(TARGET)}; USE {identifier(TARGET)}")
        connection.execute("SET autoload_known_extensions = false; SET autoinstall_known_extensions = false")
        connection.execute("SET enable_external_access = false; SET lock_configuration = true")
        for statement in statements:
            if statement.key in failed:
                continue
            try:
                if not any(connection.execute(query).fetchall() for query in statement.skips):
                    connection.execute(statement.sql)
            except duckdb.Error as error:
                text = " ".join(str(error).split())
                lacks = isinstance(error, duckdb.CatalogException)
                failed[statement.key] = FailedStatement(statement, text, lacks=lacks)
    return list(failed.values())


def _target_name(name: TableName) -> str:
    """Return the quoted name of a table, view, sequence or type in the target."""
    return qualified((TARGET, *name))


def _create_table(table: Table, texts: Texts, *, keys: bool = False) -> str:
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
        parts += [f"PRIMARY KEY {identifiers(table.primary_key.columns)}"] if table.primary_key is not None else []
        parts += [f"UNIQUE {identifiers(unique.columns)}" for unique in table.unique]
        for key in table.foreign_keys:
            referenced = f"{qualified(key.referenced)} {identifiers(key.referenced_columns)}"
            parts.append(f"FOREIGN KEY {identifiers(key.columns)} REFERENCES {referenced}")
    return f"CREATE TABLE {_target_name(name)} ({', '.join(parts)})"


def without_keys(name: TableName) -> TableName:
    """Return the name of a table with the rows of one that is created a second time, until these are moved."""
    return TableName(name.schema, f"{name.table} without keys")


def rebuild(table: Table, texts: Texts) -> Iterator[Statement]:
    """Yield the statements that create a second table with all keys, move the rows, and drop the first."""
    name = table.table_name
    key = ObjectKey("foreign keys", of=name)
    referred = tuple(key.referenced for key in table.foreign_keys)
    loaded = without_keys(name)
    new, old = _target_name(name), _target_name(loaded)
    stored = ", ".join(identifier(column.name) for column in table.columns if column.generated is None)
    for index in table.indexes:  # when it is tried again, these are there, and would keep the table from being renamed
        indexed = qualified((TARGET, name.schema, index.name))
        there = _has_index(name, index.name)
        yield Statement(key, f"DROP INDEX {indexed}", name, unless=f"SELECT 1 AS one WHERE NOT EXISTS ({there})")
    yield Statement(key, f"ALTER TABLE {new} RENAME TO {identifier(loaded.table)}", name)
    yield Statement(key, _create_table(table, texts, keys=True), name, reads=referred)
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


def _has_index(name: TableName, index: str) -> str:
    return (
        f"SELECT 1 AS found FROM duckdb_indexes() WHERE database_name = {literal(TARGET)}"
        f" AND schema_name = {literal(name.schema)} AND table_name = {literal(name.table)}"
        f" AND index_name = {literal(index)}"
    )


def _there(kind: str, **names: str) -> str:
    """Return the query that yields a row if there is an object of these names, whose case DuckDB ignores."""
    same = "".join(f" AND lower({column}) = lower({literal(name)})" for column, name in names.items())
    return f"SELECT 1 AS found FROM duckdb_{kind}() WHERE database_name = {literal(TARGET)}{same}"


def _sequence_place(sequence: Sequence, columns: Iterable[tuple[Table, str]]) -> str:
    """Return the statement that moves a sequence to its last value, or past those of its columns, and never back."""
    name = _target_name(sequence.table_name)
    now = (
        f"(SELECT last_value FROM duckdb_sequences() WHERE database_name = {literal(TARGET)}"
        f" AND schema_name = {literal(sequence.schema_name)} AND sequence_name = {literal(sequence.name)})"
    )
    last = "NULL" if sequence.last_value is None else str(sequence.last_value)
    end = "max" if sequence.increment > 0 else "min"
    values = [f"({now})", f"({last})"] + [
        f"((SELECT CAST({end}({identifier(column)}) AS BIGINT) FROM {_target_name(table.table_name)}"
        f" WHERE {identifier(column)} BETWEEN {sequence.minimum} AND {sequence.maximum}))"
        for table, column in columns
        if table.column(column).type in _INTEGERS
    ]
    furthest = f"(SELECT {end}(x) FROM (VALUES {', '.join(values)}) AS v (x))"
    value = f"coalesce({now}, {last})" if sequence.cycle else furthest
    return f"SELECT setval({literal(name)}, CAST(v AS BIGINT)) FROM (SELECT {value} AS v) WHERE v IS NOT NULL"
