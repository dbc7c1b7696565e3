"""A schema as statements: what each makes, when it is left out, and what a target refuses of them in a rehearsal.

`steps` describes how statements become steps that stand alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Protocol

from snapshot_assets.databases.sql import literal
from snapshot_assets.format.options import NeedEntry
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName, View

if TYPE_CHECKING:
    import pyarrow as pa

AVAILABLE_EXTENSION = "available extension"
"""Kind of an extension whose files a server has, installed in the database or not."""


_AFTER_ROWS = re.compile(r"(?:constraint|foreign key|index|statistics|view|materialized view) ")
"""Parts of a schema that an import creates after the rows, and that say nothing about a row's values."""


_COUNTED_AS = {
    "expression": "column setting",
    "foreign keys": "foreign key",
    "identity": "column setting",
    "nullability": "column setting",
    "operator family members": "operator family",
    "options": "column option",
    "persistence": "sequence setting",
    "place": "place of sequence",
    "value": "value of sequence",
}
"""Kinds that are counted by another name."""


@dataclass(frozen=True)
class Need:
    """An object that tables depend on.

    Attributes:
        name: As the source's server prints it, such as `public.f(integer)`.
        tables: The tables that cannot be created without it.
        used_by: What depends on it: parts of these tables, or other needs.
        sql: The statements that create it, in order; none if the export could not write them.
    """

    kind: str
    name: str
    tables: tuple[TableName, ...] = ()
    used_by: tuple[str, ...] = ()
    sql: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Kind and name, as the text of an `ObjectKey` has them."""
        return f"{self.kind} {self.name}"


def merge_needs(needs: Iterable[Need]) -> tuple[Need, ...]:
    """Return the needs of several tables, each object once, in the order of its first table."""
    by_label: dict[str, Need] = {}
    for need in needs:
        known = by_label.get(need.label, need)
        tables = tuple(dict.fromkeys((*known.tables, *need.tables)))
        used_by = tuple(dict.fromkeys((*known.used_by, *need.used_by)))
        by_label[need.label] = replace(known, tables=tables, used_by=used_by)
    return tuple(by_label.values())


def recorded_needs(table: TableName, entries: Iterable[NeedEntry], *, expressions: bool = True) -> Iterator[Need]:
    """Yield what a table's document records as needed, each object after those that it needs itself.

    Without `expressions`, such as defaults and checks, less is needed.
    """
    for entry in entries:
        if expressions or not entry.text:
            yield Need(entry.kind, entry.name, (table,), entry.used_by, entry.sql)


def needed_by_rows(needs: Collection[Need]) -> set[str]:
    """Return the labels of needs without which rows have no table: what only keys, indexes and views need is not."""
    users = {need.label: need.used_by for need in needs}
    found: set[str] = set()
    while True:
        more = {label for label, parts in users.items() if any(_holds_rows(part, users, found) for part in parts)}
        if more == found:
            return found
        found = more


def _holds_rows(part: str, labels: Container[str], found: Container[str]) -> bool:
    if part in labels:
        return part in found
    return _AFTER_ROWS.match(part) is None


def carried_types(schema: DatabaseSchema) -> set[str]:
    """Return the labels of types that a schema's documents contain: those of columns, and those of tables' rows."""
    types = {kind.table_name for table in schema.tables for kind in table.types}
    return {f"type {name.dotted}" for name in (*types, *(table.table_name for table in schema.tables))}


@dataclass(frozen=True)
class ObjectKey:
    """Names what a statement makes: an object, or a property of one. Its text is the name of a step in the ledger.

    Attributes:
        kind: The kind of the object, such as `index`, or the property, such as `default`.
        name: "" if it has none of its own.
        of: The object or relation to which it belongs.
    """

    kind: str
    name: TableName | str = ""
    of: ObjectKey | TableName | None = None

    def __str__(self) -> str:
        """Return kind and name, such as `index i of public.t`."""
        of = "" if self.of is None else _text(self.of)
        if self.kind == "comment":
            return f"comment on {of}"
        if self.kind == "attribute" and isinstance(self.of, ObjectKey):
            return f"{_text(self.of.name)}.{_text(self.name)}"
        named = f"{self.kind} {_text(self.name)}" if self.name else self.kind
        return f"{named} of {of}" if of else named

    @property
    def counted_as(self) -> str:
        """The kind by which reports count it."""
        return _COUNTED_AS.get(self.kind, self.kind)

    @property
    def owners(self) -> tuple[ObjectKey, ...]:
        """The objects that it is a part or a property of, the nearest first. A domain is a type."""
        if not isinstance(self.of, ObjectKey):
            return ()
        owner = ObjectKey("type", self.of.name) if self.of.kind == "domain" else self.of
        return (owner, *owner.owners)


def _text(of: ObjectKey | TableName | str) -> str:
    return of.dotted if isinstance(of, TableName) else str(of)


@dataclass(frozen=True)
class Statement:
    """One statement of a restore.

    Statements contain documents' text, so they are never joined into one string; only additions to a table of MySQL
    are, whose texts are checked.

    It is left out if it belongs to an object that the target had and keeps.

    Attributes:
        key: What it makes. Consecutive statements of one key are made whole or not at all.
        sql: Exactly one statement in the target's SQL.
        table: Table or view to which the object belongs; if that exists before the import, the statement is skipped.
        unless: Query that yields a row if the statement is to be skipped; "" for none. If it is `there`, another step
            made the object.
        there: Query that yields a row if this very object is there, and not another one of its name; "" for none.
        reads: Tables whose rows it reads, by a query of its own.
    """

    key: ObjectKey
    sql: str
    table: TableName | None = None
    unless: str = ""
    there: str = ""
    reads: tuple[TableName, ...] = ()

    @property
    def by_hand(self) -> str:
        """The SQL that a user runs to make the object; "" if it is unknown."""
        return self.sql

    @property
    def skips(self) -> tuple[str, ...]:
        """Queries of which each yields a row if the statement is to be skipped."""
        return (self.unless,) if self.unless else ()


@dataclass(frozen=True)
class Create(Statement):
    """Creates an object; one of its name that is `there` is kept as it is.

    Attributes:
        same: Query that yields a row if an object that is kept is what the statement makes; "" if none can tell.
    """

    same: str = ""

    @property
    def skips(self) -> tuple[str, ...]:
        """Queries of which each yields a row if the statement is to be skipped."""
        return (self.there, *super().skips)


@dataclass(frozen=True)
class Advance(Statement):
    """Sets what depends on the rows, such as the place of a sequence: every import runs it.

    Attributes:
        of_existing: Whether it is only for a table that no import made.
    """

    of_existing: bool = False


@dataclass(frozen=True)
class Unchecked(Statement):
    """Contains text of the snapshot that cannot be checked: it is never run, and its `sql` is "".

    Attributes:
        reason: What the text is, and what was expected.
        text: The statement with that text, for a user who has read it; "" if it is unknown.
    """

    reason: str = ""
    text: str = ""

    @property
    def by_hand(self) -> str:
        """The SQL that a user runs to make the object; "" if it is unknown."""
        return self.text


def comment(
    on: str, text: str | None, of: ObjectKey | TableName, table: TableName | None, unless: str = ""
) -> Iterator[Statement]:
    """Yield the statement that comments on an object, such as `TABLE "a"."b"`, if there is a comment."""
    if text is not None:
        yield Statement(ObjectKey("comment", of=of), f"COMMENT ON {on} IS {literal(text)}", table, unless)


def ordered_views(schema: DatabaseSchema, lost: list[str], *, expressions: bool) -> Iterator[View]:
    """Yield the views that a restore can create, each after those that it reads; add the others to `lost`."""
    views = {view.table_name: view for view in schema.views}
    reads = {name: set(view.depends_on) & set(views) for name, view in views.items()}
    for name in TopologicalSorter(reads).static_order():
        if not expressions:
            lost.append(f"View {name} is left out: its query is SQL of the snapshot.")
        elif not views[name].columns:
            lost.append(f"View {name} is left out: it did not work in the source.")
        else:
            yield views[name]


def without_expressions(table: Table, lost: list[str], *, words: Collection[str] = ()) -> Table:
    """Return a table without checks, defaults and expressions of generated columns.

    Args:
        table: The table.
        lost: Gets a sentence for each of them.
        words: What a column may be generated as nevertheless, since it is no SQL of the snapshot.
    """
    lost += [f"Check {check.name} of {table.table_name} is left out: {check.definition}." for check in table.checks]
    columns = []
    for column in table.columns:
        where = f"{table.table_name}.{column.name}"
        if column.generated in words:
            columns.append(column)
            continue
        if column.generated is not None:
            lost.append(f"Column {where} is no longer generated, and keeps the values that it had.")
        elif column.default is not None:
            lost.append(f"Default of column {where} is left out: {column.default}.")
        columns.append(column.model_copy(update={"default": None, "generated": None, "generated_kind": None}))
    return table.model_copy(update={"checks": (), "columns": tuple(columns)})


@dataclass(frozen=True)
class Definition:
    """How to create a snapshot's schema in a target.

    Attributes:
        tables: The tables in the target's own types, in the order of the snapshot.
        before: Statements to run before the rows: schemas, types, sequences, tables.
        after: Statements to run after the rows: keys, indexes, values of sequences, foreign keys, views.
        lost: What cannot be restored, a sentence each.
        needs: Objects that the target must have first, each after those that it needs itself.
        refused: Why the target cannot have the schema, a sentence each.
        drawn: Sequences, each with a table that draws from it.
    """

    tables: tuple[Table, ...] = ()
    before: tuple[Statement, ...] = ()
    after: tuple[Statement, ...] = ()
    lost: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()
    refused: tuple[str, ...] = ()
    drawn: tuple[tuple[TableName, TableName], ...] = ()


@dataclass(frozen=True)
class FailedStatement:
    """A statement that a target refused in a rehearsal, and its message.

    Attributes:
        holds_rows: Whether rows cannot be loaded without what it makes.
        lacks: Whether it fails because something does not exist.
    """

    statement: Statement
    message: str
    holds_rows: bool = False
    lacks: bool = False


@dataclass(frozen=True)
class Rehearsal:
    """What a target that ran statements, and took them back, has refused.

    Attributes:
        failed: The statements that it refused.
        untried: What it did not try, or could not because of something that it did not try, by the reason.
        following: The statements that belong to what could not be made, so that they fail too.
        skipped: The statements that an import leaves out.
    """

    failed: tuple[FailedStatement, ...] = ()
    untried: Mapping[str, tuple[ObjectKey, ...]] = field(default_factory=dict)
    following: frozenset[Statement] = frozenset()
    skipped: frozenset[Statement] = frozenset()

    def would_make(self, statements: Iterable[Statement]) -> bool:
        """Return whether an import would make a step of these statements, as far as that is known."""
        every = frozenset(statements)
        return not (every & self._refused or every <= self.skipped)

    @cached_property
    def _refused(self) -> frozenset[Statement]:
        return self.following.union(each.statement for each in self.failed)


class Adapter(Protocol):
    """What a target does with the documents of another kind of database."""

    def type_for(self, arrow_type: pa.DataType) -> str:
        """Return the type for an Arrow type's values.

        Raises:
            UnsupportedTypeError: The database has no such type.
        """

    def adapt(self, schema: DatabaseSchema) -> tuple[DatabaseSchema, tuple[str, ...]]:
        """Return converted documents without what no database of this kind can have, and a sentence for each loss."""
