"""What a table of one kind of database loses in another kind, in its columns' types and beside keys and indexes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa

from snapshot_assets.databases.convert.lost_objects import LostObjects
from snapshot_assets.format.kinds import capital, not_in_snapshot
from snapshot_assets.format.name_texts import printed_name
from snapshot_assets.format.options import ColumnSettings, PartitionOptions, TableOptions, TypeDefinition
from snapshot_assets.format.relations import Carrier, Column, Table, TableName, UserType

_LIMITED = re.compile(
    r"(?P<name>character varying|varchar|bpchar|character|char|bit varying|varbit|bit|timestamp|time|interval[a-z ]*"
    r"|numeric|decimal)\((?P<limit>\d+(?:, ?-?\d+)?)\)",
    re.IGNORECASE,
)
_FIELDS = re.compile(r"interval (?P<fields>year|month|day|hour|minute|second)\b")
_LENGTHS = ("char", "bpchar", "varchar", "bit", "varbit")
_MOST_PRECISE = "6"
"""Decimal digits of a second, which other kinds of database have too."""

TEXTS = frozenset(("text", "varchar", "string"))
"""The types of texts in PostgreSQL, DuckDB and Spark."""

_PLAIN_STRINGS = frozenset(("text", "varchar", "character varying", "string", "name"))
_PLAIN_BINARIES = frozenset(("bytea", "blob", "binary", "uuid"))
_ROWS_ONLY = ("view", "materialized view", "foreign table")


def changed_form(column: Column, arrow_type: pa.DataType, type_text: str) -> str:
    """Return the form of a column's values in a less specific type; "" if the type is equivalent."""
    if type_text == "json":
        return "each value as JSON"
    plain = column.type.partition("(")[0].strip().lower()
    becomes_text = type_text.lower() in TEXTS and not pa.types.is_string(arrow_type)
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
    """Yield a sentence for each detail of a table that only its own kind of database has.

    Args:
        table: Its document.
        options: Its options.
        source: Kind of its database.
        others: The objects of the snapshot that have sentences of their own.
    """
    name = table.table_name
    if options.relation is not None and options.relation in _ROWS_ONLY:
        yield f"{capital(options.relation)} {name} was exported as its rows and is restored as a table."
    for each in others.not_carried(options.not_carried, name):
        yield not_in_snapshot(each, f" of {name}")
    for kind in table.types:
        yield from _lost_of_type(kind, source)
    yield from _lost_of_columns(table.table_name, options, source)
    for part in options.partitions:
        yield from _lost_of_partition(table, part, source, others)


def _lost_of_type(kind: UserType, source: str) -> Iterator[str]:
    """Yield what a domain demands of its values, which a column of its base type does not."""
    if kind.kind != "domain":
        return
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


def _lost_of_columns(table: TableName, options: TableOptions, source: str) -> Iterator[str]:
    for column, own in options.columns.items():
        if own.not_null_not_valid is not None:
            where = printed_name(*table, column)
            yield f"NOT NULL of column {where} is left out: {source} has not checked it (NOT VALID)."
    for setting in ColumnSettings.model_fields:
        if columns := [column for column, own in options.columns.items() if getattr(own, setting) not in (None, ())]:
            what = setting.replace("_", " ")
            yield f"Of {table}, {what} of column {', '.join(columns)} is left out: only {source} has it."


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
