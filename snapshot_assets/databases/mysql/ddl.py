"""DDL: the statements that create a snapshot's schema on a server. They are for sessions without SQL modes.

A table is loaded with transactions, and gets an engine without them, such as MyISAM, after its rows.

The primary key is created with its table, as the rows lie in its order; so is the key of an AUTO_INCREMENT column.
Other keys, indexes and foreign keys follow the rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from snapshot_assets.databases.convert.renaming import alike_columns, too_long
from snapshot_assets.databases.definition import (
    Advance,
    Create,
    Definition,
    ObjectKey,
    Statement,
    ordered_views,
    without_expressions,
)
from snapshot_assets.databases.mysql import KIND
from snapshot_assets.databases.mysql.code import MysqlCode
from snapshot_assets.databases.mysql.created_table import without_transactions
from snapshot_assets.databases.mysql.texts import (
    NAME,
    check_collation,
    check_text,
    check_type,
    constant,
    found_in,
    listed,
    quoted,
)
from snapshot_assets.databases.selection.exclusions import uncarried
from snapshot_assets.databases.sql import literal
from snapshot_assets.errors import DocumentError
from snapshot_assets.format.kinds import calls_lacking, not_restored
from snapshot_assets.format.names import NameRule
from snapshot_assets.format.options import SchemaOptions, ViewOptions
from snapshot_assets.format.relations import Column, DatabaseSchema, Table, TableName, View

_LONGEST = 64
_CONVERTED = (
    "ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*M! COLLATE=utf8mb4_nopad_bin */ /*!80017 COLLATE=utf8mb4_0900_bin */"
)
"""Options of a table from another kind of database: its texts are equal only if all their characters are."""

_STRING = r"('(?:[^'\\]|\\.|'')*')"
"""What may look like an option, such as a comment; it stays as it is."""

_ELSEWHERE = re.compile(
    rf"{_STRING}|"
    r"\b(?:(?:DATA|INDEX) DIRECTORY|CONNECTION)(?: = |=)'(?:[^'\\]|\\.|'')*'|\bUNION=\([^)]*\)"
    rf"|(?:/\*!\d+ )?\bTABLESPACE(?: = | |=){NAME}(?: STORAGE (?:DISK|MEMORY))?(?: \*/)?"
    r"|\bENGINE=(?:FEDERATED|CONNECT|SPIDER|MERGE|MRG_MyISAM|BLACKHOLE|SPHINX|S3|OQGRAPH)\b",
    re.IGNORECASE,
)
"""Options that place rows outside of the server's own folder, or nowhere."""

_CHARSET = re.compile(r"DEFAULT CHARSET=\w+|COLLATE=\w+")
_ENGINE = re.compile(rf"{_STRING}|\bENGINE = \w+")
"""The engine of a partition, which is that of its table."""

_INTERIM = "snapshot_assets_interim"
"""A key that a table has until it gets its engine."""

_ALONE = ("FULLTEXT", "SPATIAL")
"""Keys that a server adds in place only one by one, if at all."""

_ROW_TIMES = ("ROW START", "ROW END")
"""What generates the columns of a table's system time: words, and no expression."""

_KEY = re.compile(r"(?:PERIOD FOR|PRIMARY|(?:UNIQUE |FULLTEXT |SPATIAL )?KEY) ?.*", re.DOTALL)
_CONSTANT = re.compile(r"[\w.+-]+|\w*'(?:[^'\\]|\\.|'')*'|current_timestamp(?:\(\d?\))?", re.IGNORECASE | re.DOTALL)
"""Defaults that MySQL takes without parentheses."""

_ACTIONS = re.compile(r"(?: ON (?:DELETE|UPDATE) (?:CASCADE|SET NULL|SET DEFAULT|NO ACTION|RESTRICT))+\s*$")
_WORDS = {
    "security": ("DEFINER", "INVOKER"),
    "check_option": ("NONE", "LOCAL", "CASCADED"),
    "algorithm": ("UNDEFINED", "MERGE", "TEMPTABLE"),
}


@dataclass(frozen=True)
class Addition(Statement):
    """Adds a key to a table. One statement may add several of one table, so that the server reads its rows once.

    Attributes:
        added: The end of its SQL, after the table; its texts are checked.
    """

    added: str = ""


def define(schema: DatabaseSchema, *, expressions: bool = True, code: bool = False) -> Definition:
    """Return the statements that create a schema; see `TargetModule.define`."""
    return _Defining(schema, expressions=expressions, code=code).definition()


class _Defining:
    def __init__(self, schema: DatabaseSchema, *, expressions: bool, code: bool) -> None:
        self._schema = schema
        self._expressions = expressions
        self._lost: list[str] = []
        self._code = tuple(self._restored_code(code))

    def definition(self) -> Definition:
        self._lost += uncarried(self._schema)
        tables = self._schema.tables
        if not self._expressions:
            tables = tuple(without_expressions(table, self._lost, words=_ROW_TIMES) for table in tables)
        before = [*self._schemas(), *self._sequences()]
        before += [
            Statement(ObjectKey("table", table.table_name), self._create_table(table), table.table_name)
            for table in tables
        ]
        after = [statement for table in tables for statement in self._engines(table)]
        after += [statement for table in tables for statement in self._keys(table)]
        after += [statement for table in tables for statement in self._foreign_keys(table)]
        after += [statement for table in tables for statement in _next_numbers(table)]
        after += [each.statement() for each in self._code if not each.late]
        after += self._views()
        after += [each.statement() for each in self._code if each.late]
        refused = too_long(self._schema, KIND.title, _LONGEST, "character")
        refused += (*alike_columns(self._schema, KIND.title, NameRule.CASE_IGNORED),)
        return Definition(tables, tuple(before), tuple(after), tuple(self._lost), refused=refused)

    def _restored_code(self, wanted: bool) -> Iterator[MysqlCode]:
        tables = {table.table_name for table in self._schema.tables}
        for schema in self._schema.schemas:
            for each in MysqlCode.of_schema(schema):
                if each.on is not None and each.on not in tables:
                    continue
                if wanted:
                    self._lost += each.lost(str(schema.options.get("collation")))
                    yield each
                else:
                    self._lost.append(not_restored(str(each.made)))

    def _schemas(self) -> Iterator[Statement]:
        by_name = {each.name: each for each in self._schema.schemas}
        names = by_name.keys() | {each.schema_name for each in (*self._schema.tables, *self._schema.views)}
        for name in sorted(names):
            options = by_name[name].options if name in by_name else {}
            collation = options.get("collation")
            what = f"schema {name}"
            more = f" COLLATE {check_collation(str(collation), what)}" if collation else " CHARACTER SET utf8mb4"
            yield Statement(ObjectKey("schema", name), f"CREATE DATABASE IF NOT EXISTS {quoted(name)}{more}")
            if name in by_name and by_name[name].comment:
                self._lost.append(f"Comment of schema {name} is left out: it is set when a database is created.")

    def _sequences(self) -> Iterator[Statement]:
        for schema in self._schema.schemas:
            for sequence in SchemaOptions.of(schema).sequences:
                name = sequence.table_name
                there = found_in("tables", table_type="SEQUENCE", table_schema=name.schema, table_name=name.table)
                following = sequence.start if sequence.last_value is None else sequence.last_value + sequence.increment
                sql = (
                    f"CREATE SEQUENCE {quoted(*name)} START WITH {sequence.start} MINVALUE {sequence.minimum}"
                    f" MAXVALUE {sequence.maximum} INCREMENT BY {sequence.increment} CACHE {sequence.cache}"
                    f" {'CYCLE' if sequence.cycle else 'NOCYCLE'}"
                )
                yield Create(ObjectKey("sequence", name), sql, there=there)
                if following != sequence.start:
                    key = ObjectKey("value", of=ObjectKey("sequence", name))
                    yield Advance(key, f"SELECT SETVAL({quoted(*name)}, {following}, 0)")

    def _create_table(self, table: Table) -> str:
        name = table.table_name
        parts = [self._column(table, column) for column in table.columns]
        if table.primary_key is not None:
            definition = table.primary_key.definition or f"PRIMARY KEY {listed(table.primary_key.columns)}"
            parts.append(_key(definition, f"the primary key of {name}"))
        parts += [_key(str(each), f"a period of {name}") for each in table.options.get("periods", ())]
        parts += [definition for _, _, definition, inline in _other_keys(table) if inline]
        if (numbered := _interim_key(table)) is not None:
            parts.append(f"KEY {quoted(_INTERIM)} {listed((numbered,))}")
        settings = table.options.get("column_options", {})
        for check in table.checks:
            if check.name not in settings or "check" not in settings[check.name]:
                parts.append(check_text(check.definition, f"check {check.name} of {name}"))
        options = self._options(table)
        partitions = _ELSEWHERE.sub(r"\1", str(table.options.get("partitions_by") or ""))
        if without_transactions(table):  # until its rows are loaded
            options = " ".join(["ENGINE=InnoDB", *_CHARSET.findall(options)])
            partitions = _ENGINE.sub(r"\1", partitions)
        comment = f" COMMENT={constant(table.comment)}" if table.comment else ""
        clause = f" {check_text(partitions, f'the partitions of {name}')}" if partitions else ""
        return f"CREATE TABLE {quoted(*name)} ({', '.join(parts)}) {options}{comment}{clause}"

    def _options(self, table: Table) -> str:
        if "engine" not in table.options:
            return _CONVERTED
        options = str(table.options.get("table_options") or " ")
        return check_text(_ELSEWHERE.sub(r"\1", options) or " ", f"the options of {table.table_name}")

    def _engines(self, table: Table) -> Iterator[Statement]:
        name = table.table_name
        texts = (str(table.options.get(option) or "") for option in ("table_options", "partitions_by"))
        places = (match[0] for match in _ELSEWHERE.finditer(" ".join(texts)) if match[1] is None)
        self._lost += [f"{each} of {name} is left out: its rows are stored by the server itself." for each in places]
        if without_transactions(table):
            drop = "" if _interim_key(table) is None else f" AUTO_INCREMENT=0, DROP KEY {quoted(_INTERIM)}"
            sql = f"ALTER TABLE {quoted(*name)} {self._options(table)}{drop}"
            yield Statement(ObjectKey("engine", of=name), sql, name)

    def _column(self, table: Table, column: Column) -> str:
        where = f"{table.table_name}.{column.name}"
        settings = table.options.get("column_options", {}).get(column.name, {})
        parts = [quoted(column.name), check_type(column.type, where)]
        if srid := int(settings.get("srid") or 0):
            parts.append(f"/*!80003 SRID {srid} */ /*M! REF_SYSTEM_ID={srid} */")
        # MySQL prints a collation that a column names, even if it is that of the table.
        of_table = f"COLLATE={column.collation}" in str(table.options.get("table_options")).split()
        if column.collation is not None and not of_table:
            parts.append(f"COLLATE {check_collation(column.collation, f'column {where}')}")
        if column.generated in _ROW_TIMES:
            parts.append(f"GENERATED ALWAYS AS {column.generated}")
        elif column.generated is not None:
            expression = check_text(column.generated, f"the expression of column {where}", commas=False)
            parts.append(f"GENERATED ALWAYS AS ({expression}) {(column.generated_kind or 'virtual').upper()}")
            parts += [] if column.nullable else ["NOT NULL"]
        else:
            parts.append("NULL" if column.nullable else "NOT NULL")
            if column.identity is not None:
                parts.append("AUTO_INCREMENT")
            elif column.default is not None:
                default = check_text(column.default, f"the default of column {where}")
                parts.append(f"DEFAULT {default if _CONSTANT.fullmatch(default) else f'({default})'}")
            if "on_update" in settings and self._expressions:
                parts.append(f"ON UPDATE {check_text(str(settings['on_update']), f'ON UPDATE of column {where}')}")
        parts += ["INVISIBLE"] if settings.get("invisible") else []
        parts += [f"COMMENT {constant(column.comment)}"] if column.comment else []
        if settings.get("check"):
            parts += [
                check_text(check.definition, f"the check of column {where}")
                for check in table.checks
                if check.name == column.name
            ]
        return " ".join(parts)

    def _keys(self, table: Table) -> Iterator[Statement]:
        name = table.table_name
        for kind, own, definition, inline in _other_keys(table):
            if not inline:
                there = found_in("statistics", table_schema=name.schema, table_name=name.table, index_name=own)
                sql, added = f"ALTER TABLE {quoted(*name)} ADD {definition}", f"ADD {definition}"
                if definition.startswith(_ALONE):
                    yield Statement(ObjectKey(kind, own, name), sql, name, there=there)
                else:
                    yield Addition(ObjectKey(kind, own, name), sql, name, there=there, added=added)

    def _foreign_keys(self, table: Table) -> Iterator[Statement]:
        name = table.table_name
        for key in table.foreign_keys:
            actions = _ACTIONS.search(key.definition or "")
            added = (
                f"ADD CONSTRAINT {quoted(key.name)} FOREIGN KEY {listed(key.columns)}"
                f" REFERENCES {quoted(*key.referenced)} {listed(key.referenced_columns)}{actions[0] if actions else ''}"
            )
            yield Addition(
                ObjectKey("foreign key", key.name, name),
                f"ALTER TABLE {quoted(*name)} {added}",
                name,
                there=found_in(
                    "table_constraints", table_schema=name.schema, table_name=name.table, constraint_name=key.name
                ),
                reads=(key.referenced,),
                added=added,
            )

    def _views(self) -> Iterator[Statement]:
        definers = {
            str(view.options["definer"]) for view in self._schema.views if view.options.get("security") == "DEFINER"
        }
        of_code = {each.definer for each in self._code}
        for each in sorted(definers | of_code):
            what = " and ".join(["views"] * (each in definers) + ["code"] * (each in of_code))
            self._lost.append(f"Definer {each} is lost: its {what} act with the rights of the user who restores them.")
        made, lacked = {str(each.made) for each in self._code}, dict[TableName, set[str]]()
        for view in ordered_views(self._schema, self._lost, expressions=self._expressions):
            name, words = view.table_name, {option: _word(view, option) for option in _WORDS}
            lacked[name] = {each for each in ViewOptions.of(view).not_carried if each not in made}
            self._lost += [calls_lacking(name, each) for each in sorted(lacked[name])]
            lacked[name] |= {each for read in view.depends_on for each in lacked.get(read, ())}
            query = check_text(view.definition, f"the query of view {name}", commas=True)
            end = "" if words["check_option"] == "NONE" else f" WITH {words['check_option']} CHECK OPTION"
            sql = (
                f"CREATE ALGORITHM={words['algorithm']} SQL SECURITY {words['security']} VIEW {quoted(*name)}"
                f" {listed([column.name for column in view.columns])} AS {query}{end}"
            )
            unless = " UNION ALL ".join(map(_lacks_function, sorted(lacked[name])))
            yield Statement(ObjectKey("view", name), sql, name, unless)


def _lacks_function(label: str) -> str:
    """Return the query that yields a row if the target lacks a function, such as `function shop.f`."""
    there = f"CONCAT('function ', routine_schema, '.', routine_name) = {literal(label)}"
    there = f"SELECT 1 FROM information_schema.routines WHERE routine_type = 'FUNCTION' AND {there}"
    return f"SELECT 1 AS found FROM (SELECT 1 AS one) AS one WHERE NOT EXISTS ({there})"


def _word(view: View, option: str) -> str:
    """Return a word among the options of a view."""
    known = _WORDS[option]
    word = str(view.options.get(option, known[0]))
    if word not in known:
        raise DocumentError(
            f"The snapshot's views.json is malformed: {option} of view {view.table_name} is {word[:100]!r}; expected"
            f" one of {', '.join(known)}. Restore without that view.",
            object="views.json",
        )
    return word


def _key(definition: str, what: str) -> str:
    """Return the definition of a key, as it stands in CREATE TABLE."""
    if _KEY.fullmatch(definition) is None:
        raise DocumentError(
            f"The snapshot's tables.json is malformed: {what} is {definition[:200]!r}; expected a line of SHOW CREATE"
            " TABLE. Restore without its table.",
            object="tables.json",
        )
    return check_text(definition, what)


def _other_keys(table: Table) -> Iterator[tuple[str, str, str, bool]]:
    """Yield the keys but the primary one: kind, name, definition, and whether it is created with the table.

    An AUTO_INCREMENT column must be the first of a key from the start; the keys before that one keep their order.
    """
    name, primary = table.table_name, table.primary_key
    keys = [("unique constraint", each.name, each.columns, each.definition or "") for each in table.unique]
    keys += [("index", each.name, each.columns, each.definition) for each in table.indexes]
    numbered, columns = _numbered(table), primary.columns if primary else ()
    inline = 0
    if numbered is not None and columns[:1] != (numbered,):
        inline = next((number for number, key in enumerate(keys, 1) if key[2][:1] == (numbered,)), 0)
        if not inline and numbered not in columns:  # numbers within groups
            inline = next((number for number, key in enumerate(keys, 1) if numbered in key[2]), 0)
    for number, (kind, own, _, definition) in enumerate(keys):
        yield kind, own, _key(definition, str(ObjectKey(kind, own, name))), number < inline


def _numbered(table: Table) -> str | None:
    """Return the AUTO_INCREMENT column; None without one."""
    return next((column.name for column in table.columns if column.identity is not None), None)


def _interim_key(table: Table) -> str | None:
    """Return the AUTO_INCREMENT column that needs a key of its own until the table has its engine.

    Engines without transactions count within groups by a key in which that column is not the first.
    """
    numbered = _numbered(table)
    keys = [each.columns for each in table.unique] + [each.columns for each in table.indexes]
    keys += [table.primary_key.columns] if table.primary_key else []
    grouped = without_transactions(table) and all(each[:1] != (numbered,) for each in keys)
    return numbered if grouped else None


def _next_numbers(table: Table) -> Iterator[Statement]:
    """Yield the statement that sets the next number of an AUTO_INCREMENT column; the server knows its rows' own."""
    for sequence in table.sequences:
        if sequence.column is not None and sequence.last_value is not None:
            key = ObjectKey("value", of=ObjectKey("sequence", sequence.table_name))
            sql = f"ALTER TABLE {quoted(*table.table_name)} AUTO_INCREMENT = {sequence.last_value + 1}"
            yield Advance(key, sql, table.table_name)
