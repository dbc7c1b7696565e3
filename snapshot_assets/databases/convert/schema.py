"""Converts the documents of one kind of database to those of another kind, every column by its Arrow type.

Names, nullability, keys, comments, plain indexes, and sequences that fill a column are kept. The source's own SQL is
not. A converted column is native in its Arrow type, so a file's values can be loaded without change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa

from snapshot_assets.databases.convert.actions import ACTIONS, clauses, with_actions
from snapshot_assets.databases.convert.collations import loose_collations
from snapshot_assets.databases.convert.literals import plain_default
from snapshot_assets.databases.convert.lost import LostObjects, changed_form, is_plain, lost_details, lost_limit
from snapshot_assets.databases.convert.own_names import OwnNames
from snapshot_assets.databases.convert.renaming import LONGEST
from snapshot_assets.databases.definition import Adapter
from snapshot_assets.databases.selection.columns import identity_sequences
from snapshot_assets.databases.sql import identifier, identifiers, literal, qualified
from snapshot_assets.errors import DocumentError, UnsupportedTypeError
from snapshot_assets.format.options import TableOptions
from snapshot_assets.format.relations import (
    Carrier,
    Column,
    DatabaseSchema,
    ForeignKey,
    Index,
    PrimaryKey,
    Schema,
    Sequence,
    Table,
    UniqueConstraint,
)

_NEXTVAL = re.compile(r"nextval\('(?P<name>(?:[^']|'')*)'(?:::regclass)?\)")
_EXTRAS = re.compile(r"INCLUDE \([^)]*\)|DEFERRABLE(?: INITIALLY DEFERRED)?")
_UNCHECKED = re.compile(r"\bNOT (?:VALID|ENFORCED)\b")
_TEMPORAL = re.compile(r"\b(?:WITHOUT OVERLAPS|PERIOD)\b")
_MANY_TEXTS = re.compile(r"numeric|interval|citext|json|float|double", re.IGNORECASE)
"""Types whose equal values may have different texts: as texts they cannot be the columns of a foreign key."""

_SILENT_OPTIONS = frozenset(
    {"view", "relation", "extensions", "extension_schemas", "row_types", "columns", "identity_sequences"}
    | {"not_carried", "needs", "masks", "large_objects"}
)
"""Options that a sentence of their own mentions, or that mean nothing to another kind of database."""

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
"""The numbers that a sequence may have in each database."""


def converted(schema: DatabaseSchema, kind: str, target: Adapter) -> tuple[DatabaseSchema, tuple[str, ...]]:
    """Return a schema as documents of another kind of database, and what the conversion loses.

    The result has a sentence for each object that is left out or becomes another type.

    Raises:
        UnsupportedTypeError: That kind has no type for some columns' Arrow types; names them all.
        DocumentError: The documents are malformed.
    """
    columns = {table.table_name: {column.name for column in table.columns} for table in schema.tables}
    for name, key in ((table.table_name, key) for table in schema.tables for key in table.foreign_keys):
        referred = columns.get(key.referenced, key.referenced_columns)
        unknown = (set(key.columns) - columns[name]) | (set(key.referenced_columns) - set(referred))
        if unknown or len(key.columns) != len(key.referenced_columns):
            pair = f"({', '.join(key.columns)}) to ({', '.join(key.referenced_columns)})"
            raise DocumentError(
                f"The snapshot's tables.json is malformed: foreign key {key.name} of table {name} is {pair}; expected"
                " as many columns of both tables. Restore without that table.",
                object="tables.json",
            )
    conversion = _Conversion(schema, kind, target)
    return conversion.schema(), tuple(dict.fromkeys(conversion.lost))


class _Conversion:
    def __init__(self, schema: DatabaseSchema, kind: str, target: Adapter) -> None:
        self._schema, self._source, self._kind, self._target = schema, schema.database, kind, target
        self._tables = {table.table_name: table for table in schema.tables}
        self._names = OwnNames(schema)
        self._others = LostObjects(schema)
        self._text = target.type_for(pa.string())
        self.lost: list[str] = []
        self.unsupported: list[str] = []

    def schema(self) -> DatabaseSchema:
        schemas = tuple(Schema(name=each.name, comment=each.comment) for each in self._schema.schemas)
        tables = tuple(map(self.table, self._schema.tables))
        if self.unsupported:
            raise UnsupportedTypeError(" ".join(self.unsupported), columns=self.unsupported)
        result, lost = self._target.adapt(DatabaseSchema(database=self._kind, schemas=schemas, tables=tables))
        self.lost += [*lost, *self._lost_actions(result), *self._others.sentences()]
        return result

    def table(self, table: Table) -> Table:
        name, options = table.table_name, TableOptions.of(table)
        sequences = tuple(self._sequences(table, options))
        drawing = {sequence.column: sequence for sequence in sequences}
        columns = tuple(self._column(table, options, each, drawing.get(each.name)) for each in table.columns)
        time_index = table.time_index
        if time_index in {column.name for column in columns if column.type == self._text}:
            # Texts cannot be compared with windows.
            self.lost.append(f"Chunks of {name} cannot be replaced: its times in {time_index} become texts.")
            time_index = None
        primary = table.primary_key
        if primary is not None and self._keeps_key(primary.definition, f"Primary key of {name}"):
            primary = PrimaryKey(name=primary.name, columns=primary.columns)
        else:
            primary = None
        unique = (
            UniqueConstraint(name=self._own_name(table, "Unique constraint", key.name), columns=key.columns)
            for key in table.unique
            if self._keeps_key(key.definition, f"Unique constraint {key.name} of {name}")
        )
        result = Table(
            schema_name=table.schema_name,
            name=table.name,
            columns=columns,
            time_index=time_index,
            primary_key=primary,
            unique=tuple(unique),
            foreign_keys=tuple(
                with_actions(key, ACTIONS).model_copy(update={"name": self._own_name(table, "Foreign key", key.name)})
                for key in table.foreign_keys
                if self._keeps_foreign_key(table, key)
            ),
            indexes=tuple(self._indexes(table)),
            sequences=sequences,
            comment=table.comment,
        )
        if "large_objects" in table.options:
            self.lost.append(f"Large objects become rows of table {name}: only {self._source} has them.")
        for check in table.checks:
            self.lost.append(f"Check {check.name} of {name} is left out: {self._source}'s SQL {check.definition}.")
        self.lost += lost_details(table, options, self._source, self._others)
        if others := sorted(set(table.options) - _SILENT_OPTIONS):
            self.lost.append(f"Of {name}, {', '.join(others)} are left out: only {self._source} has them.")
        return result

    def _column(self, table: Table, options: TableOptions, column: Column, sequence: Sequence | None) -> Column:
        where = f"{table.table_name}.{column.name}"
        arrow_type = column.arrow_field().type
        try:
            type_text = self._target.type_for(arrow_type)
        except UnsupportedTypeError as error:
            self.unsupported.append(f"Column {where} of type {column.type}: {error}")
            return column
        if change := changed_form(column, arrow_type, type_text, self._text):
            self.lost.append(f"Column {where} of type {column.type} becomes {type_text}, {change}.")
        if limit := lost_limit(column.type, type_text):
            self.lost.append(f"{limit} of column {where} is left out: {column.type} becomes {type_text}.")
        default = f"nextval({literal(qualified(sequence.table_name))})" if sequence else plain_default(column)
        if column.generated is not None:
            self.lost.append(
                f"Column {where} holds the values that {column.generated} had, and is no longer generated:"
                f" that is {self._source}'s SQL."
            )
        elif column.default is not None and default is None:
            self.lost.append(f"Default {column.default} of column {where} is left out: it is {self._source}'s SQL.")
        elif column.identity is not None:
            draws = f"draws from {sequence.table_name} by a default" if sequence else "has no default"
            self.lost.append(f"Column {where} is no longer an identity column ({column.identity}): it {draws}.")
        if column.collation is not None:
            self.lost.append(f"Collation {column.collation} of column {where} is left out.")
        return Column(
            name=column.name,
            type=type_text,
            arrow_type=column.arrow_type,
            nullable=column.nullable or options.column(column.name).not_null_not_valid is not None,
            default=None if column.generated is not None else default or None,
            comment=column.comment,
        )

    def _sequences(self, table: Table, options: TableOptions) -> Iterator[Sequence]:
        """Yield the sequences whose next number is the default of a column."""
        columns = {column.name: column for column in table.columns}
        identities = identity_sequences(table, options.identity_sequences)
        taken = set()
        for sequence in table.sequences:
            column = columns.get(sequence.column or "")
            fills = column is not None and (
                identities.get(column.name) == sequence
                if column.identity is not None
                else _draws_from(column.default, sequence)
            )
            reached = sequence.start if sequence.last_value is None else sequence.last_value
            if column is None or not fills or column.name in taken or not _LEAST <= reached <= _MOST:
                self.lost.append(f"Sequence {sequence.table_name} of {table.table_name} is left out.")
                continue
            taken.add(column.name)
            # MySQL's numbers of an unsigned column go up to 2^64; a maximum that is never reached is no loss.
            ends = {"minimum": max(sequence.minimum, _LEAST), "maximum": min(sequence.maximum, _MOST)}
            name = self._own_name(table, "Sequence", sequence.name)
            yield sequence.model_copy(update={"name": name, "type": None, "cache": 1, "owned": False, **ends})

    def _keeps_key(self, definition: str | None, what: str) -> bool:
        """Return whether the other kind can have a key; record what it loses."""
        if self._temporal(definition, what):
            return False
        if "NULLS NOT DISTINCT" in (definition or ""):
            self.lost.append(f"{what} allows several NULLs: NULLS NOT DISTINCT is left out.")
        if extras := _EXTRAS.findall(definition or ""):
            self.lost.append(f"{what} is carried over without {' and '.join(extras)}.")
        return True

    def _keeps_foreign_key(self, table: Table, key: ForeignKey) -> bool:
        """Return whether rows of the source cannot violate a foreign key in the target; record one that is lost."""
        what = f"Foreign key {key.name} of {table.table_name}"
        if self._temporal(key.definition, what):
            return False
        reason, referred = "", self._tables.get(key.referenced)
        columns = [table.column(name) for name in key.columns]
        columns += [referred.column(name) for name in key.referenced_columns] if referred else []
        if any(column.carrier is Carrier.TEXT and _MANY_TEXTS.search(column.type) for column in columns):
            reason = "as texts, equal values of its columns may differ"
        elif loose := [
            each
            for of, own in ((table, key.columns), (referred, key.referenced_columns))
            for name, each in (loose_collations(of) if of else {}).items()
            if name in own
        ]:
            reason = f"its texts match by collation {loose[0]}, and {self._kind} compares them exactly; where they are"
            reason += " spelled alike, add it by hand"
        elif match := _UNCHECKED.search(key.definition or ""):
            reason = f"{self._source} has not checked it ({match.group()})"
        self.lost += [f"{what} is left out: {reason}."] if reason else []
        return not reason

    def _lost_actions(self, schema: DatabaseSchema) -> Iterator[str]:
        for name, table in ((table.table_name, table) for table in schema.tables):
            of = self._tables[name]
            had = {self._names.of(of, "Foreign key", key.name): clauses(key) for key in of.foreign_keys}
            for key in table.foreign_keys:
                if lost := [each for each in had[key.name] if each not in clauses(key)]:
                    yield f"Foreign key {key.name} of {name} is carried over without {' '.join(lost)}."

    def _temporal(self, definition: str | None, what: str) -> bool:
        match = _TEMPORAL.search(definition or "")
        if match:
            self.lost.append(f"{what} is left out: only {self._source} supports {match.group()}.")
        return match is not None

    def _indexes(self, table: Table) -> Iterator[Index]:
        for index in table.indexes:
            if not is_plain(index):
                self.lost.append(f"Index {index.name} of {table.table_name} is left out: {index.definition}.")
                continue
            name = self._own_name(table, "Index", index.name)
            head = f"CREATE {'UNIQUE ' if index.unique else ''}INDEX {identifier(name)}"
            definition = f"{head} ON {qualified(table.table_name)} {identifiers(index.columns)}"
            yield index.model_copy(update={"name": name, "definition": definition})

    def _own_name(self, table: Table, kind: str, name: str) -> str:
        own = self._names.of(table, kind, name)
        if own != name:
            reason = f"it has more than {LONGEST} bytes" if len(name.encode()) > LONGEST else "others have its name"
            self.lost.append(f"{kind} {name} of {table.table_name} gets the name {own}: {reason}.")
        return own


def _draws_from(default: str | None, sequence: Sequence) -> bool:
    """Return whether a default is the next number of a sequence; DuckDB may omit its schema."""
    match = _NEXTVAL.fullmatch(default or "")
    named = match["name"].replace("''", "'") if match else ""
    own = f".{sequence.table_name.dotted}"
    plain, wanted = (text.replace('"', "").casefold() for text in (own, f".{named}"))
    return match is not None and (plain.endswith(wanted) or wanted.endswith(plain))
