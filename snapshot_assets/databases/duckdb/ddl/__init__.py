"""DDL: the statements that create a snapshot's schema in a target file.

`tables` writes those of tables, and `parser` checks SQL text that comes from documents before it is used.

Keys, indexes and comments are created after the data. Only `CREATE TABLE` takes checks, collations and generated
columns, and foreign keys: tables with these are created a second time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter

import duckdb

from snapshot_assets.databases.convert.lost import is_plain, other_method, possible_keys
from snapshot_assets.databases.convert.renaming import clashes
from snapshot_assets.databases.definition import Create, Definition, FailedStatement, ObjectKey, Statement, comment
from snapshot_assets.databases.duckdb.ddl.tables import (
    TARGET,
    create_table,
    has_index,
    has_key,
    has_sequence,
    has_type,
    rebuild,
    sequence_place,
    target_name,
)
from snapshot_assets.databases.duckdb.parser import Texts, check_statement
from snapshot_assets.databases.selection.exclusions import uncarried
from snapshot_assets.databases.sql import identifier, identifiers, literal, qualified
from snapshot_assets.format.kinds import capital
from snapshot_assets.format.options import SchemaOptions
from snapshot_assets.format.relations import Column, DatabaseSchema, Sequence, Table, TableName, UserType, View


def define(schema: DatabaseSchema, *, expressions: bool = True) -> Definition:
    """Return the statements that create a schema; see `TargetModule.define`."""
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
        if refused := tuple(clashes(self._schema)):
            return Definition(tables, lost=tuple(self._lost), refused=refused)
        keyed = possible_keys(tables, self._lost)  # in an order that has parents before their children
        by_name = {table.table_name: table for table in keyed}
        tables = tuple(by_name[table.table_name] for table in tables)
        sequences = self._sequences()
        before = [*self._schemas(), *self._types(), *(_create_sequence(each) for each, _ in sequences)]
        for table in tables:
            name = table.table_name
            before.append(Statement(ObjectKey("table", name), create_table(table, self._texts), name))
        after = [statement for table in keyed if not table.foreign_keys for statement in self._keys(table)]
        for table in keyed:
            if table.foreign_keys:
                after += rebuild(table, self._texts)
                after += self._keys(table, alone=True)
        after += [statement for table in tables for statement in self._indexes(table)]
        for sequence, columns in sequences:
            key = ObjectKey("value", of=ObjectKey("sequence", sequence.table_name))
            after.append(Statement(key, sequence_place(sequence, columns)))
        after += [statement for table in tables for statement in self._comments(table)]
        after += self._views()
        for statement in (*before, *after):
            check_statement(self._texts.connection, statement.sql, str(statement.key))
        drawn = tuple((each.table_name, table.table_name) for table in tables for each in table.sequences)
        return self._rehearsed(Definition(tables, tuple(before), tuple(after), drawn=drawn))

    def _rehearsed(self, definition: Definition) -> Definition:
        """Return a definition without the keys, indexes and views that DuckDB cannot have, which become lost.

        What only lacks something, such as a macro, is kept: the target may have it.
        """
        refused, impossible, lacking = [], set(), {}
        for failed in rehearse([*definition.before, *definition.after]):
            key = failed.statement.key
            if failed.statement in definition.before:
                refused.append(f"{key} could not be made in DuckDB: {failed.message}.")
            elif failed.lacks:
                lacking[key] = failed.message
            else:
                impossible.add(key)
                self._lost.append(f"{capital(str(key))} is left out: {failed.message}.")
        kept = (each for each in definition.after if each.key not in impossible)
        after = tuple(Lacking(**vars(each), reason=lacking[each.key]) if each.key in lacking else each for each in kept)
        return replace(definition, after=after, lost=tuple(self._lost), refused=tuple(refused))

    def _table(self, table: Table) -> Table:
        """Return a table as the target will have it: types as DuckDB writes them, expressions only if wanted."""
        if not self._expressions:
            for check in table.checks:
                self._lost.append(f"Check {check.name} of {table.table_name} is left out: {check.definition}.")
            table = table.model_copy(update={"checks": ()})
        return table.model_copy(update={"columns": tuple(self._column(table, column) for column in table.columns)})

    def _column(self, table: Table, column: Column) -> Column:
        where = f"{table.table_name}.{column.name}"
        column = column.model_copy(update={"type": str(self._texts.type(column.type, where))})
        if self._expressions:
            return column
        if column.generated is not None:
            self._lost.append(f"Column {where} is no longer generated, and keeps the values that it had.")
        elif column.default is not None:
            self._lost.append(f"Default of column {where} is left out: {column.default}.")
        return column.model_copy(update={"default": None, "generated": None, "generated_kind": None})

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
                quoted, key = target_name(kind.table_name), ObjectKey("type", kind.table_name)
                sql = f"CREATE TYPE {quoted} AS {self._type_text(kind)}"
                yield Create(key, sql, there=has_type(kind.table_name))
                yield from comment(f"TYPE {quoted}", kind.comment, key, None)

    def _type_text(self, kind: UserType) -> str:
        if kind.kind == "enum":
            return f"ENUM ({', '.join(map(literal, kind.labels))})"
        return str(self._texts.type(str(kind.definition.get("type")), str(kind.table_name)))

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
            sql = f"ALTER TABLE {target_name(name)} ADD {kind} {identifiers(columns)}"
            yield Statement(key, sql, name, unless=has_key(name, kind, columns) if alone else "")

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
            sql = f"CREATE {unique}INDEX {identifier(index.name)} ON {target_name(name)} {keys}"
            yield Statement(key, sql, name, there=has_index(name, index.name))

    def _comments(self, relation: Table | View) -> Iterator[Statement]:
        name, quoted = relation.table_name, target_name(relation.table_name)
        kind = "TABLE" if isinstance(relation, Table) else "VIEW"
        yield from comment(f"{kind} {quoted}", relation.comment, name, name)
        for each in relation.columns:
            column = ObjectKey("attribute", each.name, ObjectKey(kind.lower(), name))
            yield from comment(f"COLUMN {quoted}.{identifier(each.name)}", each.comment, column, name)

    def _views(self) -> Iterator[Statement]:
        views = {view.table_name: view for view in self._schema.views}
        order = TopologicalSorter({name: set(view.depends_on) & set(views) for name, view in views.items()})
        for name in order.static_order():
            view = views[name]
            if not self._expressions:
                self._lost.append(f"View {name} is left out: its query is SQL of the snapshot.")
            elif not view.columns:
                self._lost.append(f"View {name} is left out: it did not work in the source.")
            else:
                columns = identifiers(tuple(column.name for column in view.columns))
                sql = f"CREATE VIEW {target_name(name)} {columns} AS {view.definition}"
                yield Statement(ObjectKey("view", name), sql, name)
                yield from self._comments(view)


def _create_sequence(sequence: Sequence) -> Statement:
    return Create(
        ObjectKey("sequence", sequence.table_name),
        f"CREATE SEQUENCE {target_name(sequence.table_name)} INCREMENT BY {sequence.increment}"
        f" MINVALUE {sequence.minimum} MAXVALUE {sequence.maximum} START {sequence.start}"
        f"{' CYCLE' if sequence.cycle else ''}",
        there=has_sequence(sequence.table_name),
    )


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
