"""Gives schema documents new names for a target file. DuckDB's parser shows where SQL text names what is renamed.

The options of a schema hold its types and the sequences that no table draws from; both, and all other sequences, follow
their schema. Indexes follow their table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any, NamedTuple

import duckdb

from snapshot_assets.databases.convert.renaming import (
    Renaming,
    check_distinct,
    derived_name,
    renamed_foreign_keys,
    renamed_schemas,
)
from snapshot_assets.databases.duckdb.parser import base_tables, by_folded_name, nodes, resolve
from snapshot_assets.databases.duckdb.session import CONFIG
from snapshot_assets.databases.sql import identifier, literal, qualified
from snapshot_assets.errors import DocumentError
from snapshot_assets.format.options import SchemaOptions
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName, View

_PART = rb'(?:"(?:[^"]|"")*"|[^\s".,()\'\[\]:;]+)'
_NAME = re.compile(rb"%b(?:\s*\.\s*%b)*" % (_PART, _PART))
_PARTS = re.compile(rb'"((?:[^"]|"")*)"|([^\s".]+)')
_STRING = re.compile(rb"'(?:[^']|'')*'")
_DRAWS = ("nextval", "currval")


class _Edit(NamedTuple):
    start: int
    end: int
    text: str


class _NotUnderstood(Exception):
    """A text does not show where it names what is renamed."""


def rename(schema: DatabaseSchema, renaming: Renaming) -> tuple[DatabaseSchema, tuple[str, ...]]:
    """Return documents with new names, and what is lost; see `TargetModule.rename`."""
    with closing(duckdb.connect(config=CONFIG)) as connection:
        return _Documents(schema, renaming, connection).renamed()


class _Documents:
    def __init__(self, schema: DatabaseSchema, renaming: Renaming, connection: duckdb.DuckDBPyConnection) -> None:
        self._schema, self._renaming, self._connection = schema, renaming, connection
        items: list[Table | View] = [*schema.tables, *schema.views]
        self._relations = {item.table_name: renaming.table(item.table_name) for item in items}
        self._known = by_folded_name(list(self._relations))
        sequences = [each.table_name for table in schema.tables for each in table.sequences]
        options = [SchemaOptions.of(each) for each in schema.schemas]
        unused = [each.table_name for every in options for each in every.sequences]
        self._sequences = by_folded_name([*sequences, *unused])
        self._types = by_folded_name([kind.table_name for every in options for kind in every.types])
        self._lost: list[str] = []
        folded = {old: TableName(new.schema.lower(), new.table.lower()) for old, new in self._relations.items()}
        check_distinct((f"table {old}", new) for old, new in folded.items())  # DuckDB ignores case

    def renamed(self) -> tuple[DatabaseSchema, tuple[str, ...]]:
        tables, views = tuple(map(self._table, self._schema.tables)), tuple(self._views())
        schemas = []
        for schema in renamed_schemas(self._schema, self._renaming):  # their types and sequences are in them
            options, own = SchemaOptions.of(schema), {"schema_name": schema.name}
            types = tuple(kind.model_copy(update=own) for kind in options.types)
            sequences = tuple(each.model_copy(update=own) for each in options.sequences)
            renamed = options.model_copy(update={"types": types, "sequences": sequences})
            schemas.append(schema.model_copy(update={"options": renamed.values()}))
        update = {"schemas": tuple(schemas), "tables": tables, "views": views}
        return self._schema.model_copy(update=update), tuple(self._lost)

    def _table(self, table: Table) -> Table:
        old, new = table.table_name, self._relations[table.table_name]
        expression = self._expression
        columns = (
            column.model_copy(
                update={
                    name: expression(text, table, f"{what} of column {old}.{column.name}")
                    for name, what in (("default", "default"), ("generated", "expression"))
                    if (text := getattr(column, name)) is not None
                }
            )
            for column in table.columns
        )
        checks = (
            check.model_copy(update={"definition": self._check(check.definition, table, f"check {check.name}")})
            for check in table.checks
        )
        indexes = (
            index.model_copy(update={"name": derived_name(index.name, old.table, new.table)}) for index in table.indexes
        )
        sequences = (
            each.model_copy(update={"schema_name": self._renaming.schema(each.schema_name)}) for each in table.sequences
        )
        update = {"schema_name": new.schema, "name": new.table, "columns": tuple(columns), "checks": tuple(checks)}
        keys = tuple(renamed_foreign_keys(table.foreign_keys, self._relations))
        update |= {"indexes": tuple(indexes), "sequences": tuple(sequences), "foreign_keys": keys}
        return table.model_copy(update=update)

    def _check(self, definition: str, table: Table, what: str) -> str:
        match = re.fullmatch(r"(CHECK\s*)(\(.*\))\s*", definition.strip(), re.DOTALL)
        return f"{match[1]}({self._expression(match[2], table, what)})" if match else definition

    def _expression(self, text: str, table: Table, what: str) -> str:
        head = "SELECT ("
        try:
            query = f"{head}{text})"
            edits = [*self._named(self._tree(query), query.encode(), table.table_name), *self._rows(query, table)]
            return _apply(query, edits)[len(head) : -1]
        except _NotUnderstood as error:
            raise DocumentError(
                f"The {what}, {text!r:.200}, cannot be mapped: {error}. Import the table under its own name.",
                what=what,
            ) from error

    def _rows(self, query: str, table: Table) -> Iterator[_Edit]:
        """Yield the replacements of a table's name before those of its columns."""
        old, new = table.table_name, self._relations[table.table_name]
        columns = {column.name.lower() for column in table.columns}
        for node in nodes(self._tree(query)):
            names = node.get("column_names") if node.get("type") == "COLUMN_REF" else None
            if names and len(names) > 1 and names[0].lower() == old.table.lower() not in columns:
                start, end = _place(query.encode(), node, names)
                rest = qualified(names[1:])
                yield _Edit(start, end, f"{identifier(new.table)}.{rest}")

    def _views(self) -> Iterator[View]:
        for view in self._schema.views:
            name = view.table_name
            try:
                definition = self._query(view)
            except _NotUnderstood as error:
                self._lost.append(f"View {name} is left out: its query cannot be mapped: {error}. Create it by hand.")
                continue
            new = self._relations[name]
            depends_on = tuple(self._relations.get(each, each) for each in view.depends_on)
            update = {"schema_name": new.schema, "name": new.table, "definition": definition, "depends_on": depends_on}
            yield view.model_copy(update=update)

    def _query(self, view: View) -> str:
        text, moved = view.definition, self._relations[view.table_name].schema != view.schema_name
        tree, raw = self._tree(text), text.encode()
        edits = [*self._named(tree, raw, view.table_name)]
        for node in base_tables(tree["statements"]):
            path = node["qualified_name"]["path"]
            old = resolve(path, view.table_name, self._known, "")
            if old is not None and (self._relations[old] != old or moved):
                new = self._relations[old]
                alias = "" if node["alias"] or new.table == path[-1] else f" AS {identifier(path[-1])}"
                edits.append(_Edit(*_place(raw, node, path), f"{qualified(new)}{alias}"))
        for node in nodes(tree):
            names = node.get("column_names") if node.get("type") == "COLUMN_REF" else None
            named = self._known.get((names[0].lower(), names[1].lower())) if names and len(names) > 2 else None
            if names and named is not None and named != self._relations[named]:
                raise _NotUnderstood(f"{'.'.join(names)} names a mapped table or a column")
        changed = _apply(text, edits)
        known = by_folded_name(list(self._relations.values()))
        paths = (node["qualified_name"]["path"] for node in base_tables(self._tree(changed)["statements"]))
        within = self._relations[view.table_name]
        reads = {name for path in paths if (name := resolve(path, within, known, "")) is not None}
        if reads != {self._relations[each] for each in view.depends_on if each in self._relations}:
            raise _NotUnderstood("it would not read the mapped tables alone")
        return changed

    def _named(self, tree: Any, raw: bytes, within: TableName) -> Iterator[_Edit]:
        """Yield the replacements of the names of types and sequences that follow a renamed schema."""
        for node in nodes(tree):
            if node.get("type") == "TYPE":
                path = node["qualified_name"]["path"]
                old = resolve(path, within, self._types, "")
                if old is not None and (new := self._by_schema(old)) != old:
                    yield _Edit(*_place(raw, node, path), qualified(new))
            elif node.get("type") == "FUNCTION" and node["function_name"].lower() in _DRAWS:
                for constant in nodes(node["arguments"]):
                    kind = constant.get("literal") if constant.get("type") == "VALUE_CONSTANT" else None
                    text = kind["text"] if isinstance(kind, dict) and kind.get("kind") == "STRING" else None
                    old = resolve(_parts(text.encode()), within, self._sequences, "") if text is not None else None
                    if old is not None and (new := self._by_schema(old)) != old:
                        match = _STRING.match(raw, constant["query_location"])
                        if match is None:
                            raise _NotUnderstood(f"the place of {text} is unknown")
                        yield _Edit(match.start(), match.end(), literal(qualified(new)))

    def _by_schema(self, name: TableName) -> TableName:
        return TableName(self._renaming.schema(name.schema), name.table)

    def _tree(self, sql: str) -> Any:
        row = self._connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchone()
        tree = json.loads(row[0]) if row else {"error": True}
        if tree["error"]:
            raise _NotUnderstood(str(tree.get("error_message") or "it is not one query"))
        return tree


def _parts(name: bytes) -> list[str]:
    found = _PARTS.findall(name)
    return [(quoted.replace(b'""', b'"') if quoted else plain).decode() for quoted, plain in found] or [""]


def _place(raw: bytes, node: Mapping[str, Any], path: Iterable[str]) -> tuple[int, int]:
    """Return where a node's name is written, in bytes."""
    match = _NAME.match(raw, node["query_location"]) if node["query_location"] <= len(raw) else None
    wanted = [part.lower() for part in path]
    if match is None or [part.lower() for part in _parts(match.group())] != wanted:
        raise _NotUnderstood(f"the place of {'.'.join(wanted)} is unknown")
    return match.span()


def _apply(text: str, edits: Iterable[_Edit]) -> str:
    raw, place, parts = text.encode(), 0, []
    for edit in sorted(set(edits)):
        parts += [raw[place : edit.start], edit.text.encode()]
        place = edit.end
    return b"".join([*parts, raw[place:]]).decode()
