"""What a schema loses in another kind of database: limits of types, details of tables, keys, indexes, views and code.

It reads the documents alone: a target of another kind may be without PostgreSQL's driver.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import pyarrow as pa

from snapshot_assets.databases.sql import identifier
from snapshot_assets.format.kinds import capital, not_in_snapshot
from snapshot_assets.format.name_texts import printed_name
from snapshot_assets.format.options import (
    ColumnSettings,
    PartitionOptions,
    RelationOptions,
    SchemaOptions,
    TableOptions,
    TypeDefinition,
    ViewOptions,
)
from snapshot_assets.format.relations import Carrier, Column, DatabaseSchema, Index, Table, TableName, UserType

_LIMITED = re.compile(
    r"(?P<name>character varying|varchar|bpchar|character|char|bit varying|varbit|bit|timestamp|time|interval[a-z ]*"
    r"|numeric|decimal)\((?P<limit>\d+(?:, ?-?\d+)?)\)",
    re.IGNORECASE,
)
_FIELDS = re.compile(r"interval (?P<fields>year|month|day|hour|minute|second)\b")
_LENGTHS = ("char", "bpchar", "varchar", "bit", "varbit")
_MOST_PRECISE = "6"
"""Decimal digits of a second, which other kinds of database have too."""

_PLAIN_STRINGS = frozenset(("text", "varchar", "character varying", "string", "name"))
_PLAIN_BINARIES = frozenset(("bytea", "blob", "binary", "uuid"))
_ROWS_ONLY = ("view", "materialized view", "foreign table")


_NAME = r'(?:"(?:[^"]|"")+"|[^\s".(),;]+)'
_HEAD = re.compile(
    rf"CREATE (?:UNIQUE )?INDEX {_NAME} ON (?:ONLY )?{_NAME}(?:\.{_NAME})*(?: USING (?P<method>{_NAME}))? ?(?=\()",
    re.IGNORECASE,
)
_UNQUOTED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ORDERED = ("btree", "art")
"""The methods that PostgreSQL and DuckDB use by default: both find equal values and keep unique ones apart."""


def changed_form(column: Column, arrow_type: pa.DataType, type_text: str, text: str) -> str:
    """Return the form of a column's values in a less specific type, `text` for one; "" if the type is equivalent."""
    if type_text == "json":
        return "each value as JSON"
    plain = column.type.partition("(")[0].strip().lower()
    becomes_text = type_text == text and not pa.types.is_string(arrow_type)
    was_text = column.carrier is Carrier.TEXT or (pa.types.is_string(arrow_type) and plain not in _PLAIN_STRINGS)
    if becomes_text or was_text:
        return "each value in its text form"
    if pa.types.is_binary(arrow_type) and plain not in _PLAIN_BINARIES:
        return "each value in its binary form"
    return ""


def lost_limit(type_text: str, becomes: str) -> str:
    """Return what a type limits and its successor does not, such as `Length (20)`; "" for nothing."""
    match = _LIMITED.search(type_text)
    limit = f"({match['limit']})" if match else ""
    if match is None:
        fields = _FIELDS.search(type_text)
        return "Range of fields" if fields and not _FIELDS.search(becomes) else ""
    length = match["name"].lower().startswith(_LENGTHS)
    unlimited = match["name"].lower().startswith(("time", "interval")) and match["limit"] == _MOST_PRECISE
    if unlimited or limit.replace(" ", "") in becomes.replace(" ", ""):
        return ""
    return f"{'Length' if length else 'Precision'} {limit}"


def lost_details(table: Table, options: TableOptions, source: str, others: LostObjects) -> Iterator[str]:
    """Yield a sentence for each detail of a table that only its own kind of database, `source`, has.

    `others` are the objects of the snapshot that have sentences of their own.
    """
    name = table.table_name
    if options.relation is not None and options.relation in _ROWS_ONLY:
        yield f"{capital(options.relation)} {name} was exported as its rows and is restored as a table."
    for each in others.not_carried(options.not_carried, name):
        yield not_in_snapshot(each, f" of {name}")
    for kind in table.types:
        if kind.kind == "domain":
            yield from _lost_of_domain(kind, source)
    for column, own in options.columns.items():
        if own.not_null_not_valid is not None:
            where = printed_name(*name, column)
            yield f"NOT NULL of column {where} is left out: {source} has not checked it (NOT VALID)."
    for setting in ColumnSettings.model_fields:
        if columns := [column for column, own in options.columns.items() if getattr(own, setting) not in (None, ())]:
            what = setting.replace("_", " ")
            yield f"Of {name}, {what} of column {', '.join(columns)} is left out: only {source} has it."
    for part in options.partitions:
        yield from _lost_of_partition(table, part, source, others)


def _lost_of_domain(kind: UserType, source: str) -> Iterator[str]:
    """Yield what a domain demands of its values, which a column of its base type does not."""
    name, fields = kind.table_name, TypeDefinition.of_type(kind)
    for check in fields.constraints:
        yield f"Check {check.name} of domain {name} is left out: {source}'s SQL {check.definition}."
    if fields.not_null:
        yield f"NOT NULL of domain {name} is left out: its columns accept NULL."
    if fields.default is not None:
        yield f"Default {fields.default} of domain {name} is left out: it is {source}'s SQL."
    if fields.collation is not None:
        yield f"Collation {fields.collation} of domain {name} is left out."
    if limit := lost_limit(fields.base or "", ""):
        yield f"{limit} of domain {name} is left out: its base type is {fields.base}."


def _lost_of_partition(table: Table, part: PartitionOptions, source: str, others: LostObjects) -> Iterator[str]:
    """Yield what a partition has beside its table: its rows go into the table."""
    name = part.table_name
    for each in others.not_carried(part.not_carried, name):
        yield not_in_snapshot(each, f" of {name}")
    for what, own in (("Constraint", part.constraints), ("Index", part.indexes)):
        for row in own:
            if row.parent is None:
                yield f"{what} {row.name} of {name} is left out: {row.definition}."
    defaults = {column.name: column.default for column in table.columns}
    for column, default in part.defaults.items():
        if default != defaults.get(column):
            yield f"Default {default} of column {printed_name(*name, column)} is left out: it is {source}'s SQL."


class LostObjects:
    """The objects of a snapshot that are not restored into another kind of database."""

    def __init__(self, schema: DatabaseSchema) -> None:
        self._schema, self._source = schema, schema.database
        self._schemas = {each.name: SchemaOptions.of(each) for each in schema.schemas}
        self._tables = [TableOptions.of(each) for each in schema.tables]
        self._views = {each.table_name: ViewOptions.of(each) for each in schema.views}
        self._code = {(entry.key, entry.on): entry for each in self._schemas.values() for entry in each.code}
        self._relations = {each.table_name for each in (*schema.tables, *schema.views)}
        self._relations |= {part.table_name for table in self._tables for part in table.partitions}
        self._used_types = {kind.table_name for table in schema.tables for kind in table.types}

    def sentences(self) -> Iterator[str]:
        """Yield a sentence for each object that belongs to no table."""
        for schema, of_schema in self._schemas.items():
            for what, objects in (("Type", of_schema.types), ("Sequence", of_schema.sequences)):
                for each in objects:
                    yield f"{what} {schema}.{each.name} is left out: no column needs it."
            for name in self.not_carried(of_schema.not_carried):
                yield not_in_snapshot(name)
        for view, of_view in self._views.items():
            yield f"View {view} is left out: its query is {self._source}'s SQL."
            for kind in of_view.types:
                if kind.table_name not in self._used_types:
                    yield f"Type {kind.table_name} is left out: no column needs it."
            for name in self.not_carried(of_view.not_carried, view):
                yield not_in_snapshot(name, f" of {view}")
        every: list[SchemaOptions | RelationOptions] = [*self._schemas.values(), *self._tables, *self._views.values()]
        for options in every:
            for extension in options.extensions:
                yield f"Extension {extension} is left out: only {self._source} has it."
        for (name, on), entry in self._code.items():
            if (on is None or on in self._relations) and not entry.is_part:
                of = f" of {on}" if on is not None else ""
                what = f"{capital(name.removeprefix('base '))}{of}"
                yield f"{what} is not restored: it is code of the snapshot, in {self._source}'s SQL."

    def not_carried(self, names: Iterable[str], on: TableName | None = None) -> list[str]:
        """Return those names of `not_carried`, of a schema or of a relation, that are not in the snapshot as code."""
        return [name for name in names if not {(name, on), (name, None)} & self._code.keys()]


def other_method(index: Index) -> bool:
    """Return whether an index names another access method than the default ones."""
    head = _HEAD.match(index.definition.strip())
    method = (head["method"] if head else None) or _ORDERED[0]
    return method.strip('"').lower() not in _ORDERED


def is_plain(index: Index) -> bool:
    """Return whether an index is a B-tree, or DuckDB's own tree, of columns alone, in ascending order."""
    definition = index.definition.strip()
    head = _HEAD.match(definition)
    if head is None or not index.columns or other_method(index):
        return False
    keys = []
    for column in index.columns:
        quoted = identifier(column)
        spellings = [quoted, f"'{quoted}'", *([column] if _UNQUOTED.fullmatch(column) else [])]  # DuckDB has the second
        keys.append(f"(?:{'|'.join(map(re.escape, spellings))})")
    pattern = r",\s*".join(keys)
    return re.fullmatch(rf"\({pattern}\)\s*;?", definition[head.end() :]) is not None
