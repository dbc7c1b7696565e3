"""The JSON schema documents: what a database looks like, apart from its rows.

JSON rather than SQL (GreptimeDB RFC, "Why JSON instead of SQL?"): version-agnostic and processable. Documents hold the
source database's own words where no neutral word exists (type text, default and check expressions, view
definitions); everything structural is structured.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal, NamedTuple

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from snapshot_assets.format.arrow_types import parse_arrow_type

SCHEMA_DOCUMENT_VERSION = 1


class TableName(NamedTuple):
    """A table's true name: its schema and its own name, unquoted."""

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


class Document(BaseModel):
    """Base of the schema documents: immutable, and a field nobody knows is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Carrier(StrEnum):
    """How a column's values travel: as an Arrow type proved exact, or as the database's own text."""

    NATIVE = "native"
    TEXT = "text"


class Column(Document):
    """One column as the source defines it, and as its values lie in the data files.

    Attributes:
        name: True name, unquoted.
        type: The source's own text of the type, modifiers included, such as `character varying(20)`.
        arrow_type: The Arrow type in the files, as `arrow_types.arrow_type_text` writes it.
        carrier: `native`, or `text` when values are the database's text form, restored by a cast.
        nullable: False where the source forbids NULL.
        default: Default expression in the source's SQL.
        generated: Expression of a generated (stored) column.
        generated_kind: `stored` or `virtual` for a generated column.
        identity: `always` or `by default` for an identity column.
        collation: Collation other than the type's own.
        comment: The column's comment.
    """

    name: str
    type: str
    arrow_type: str
    carrier: Carrier = Carrier.NATIVE
    nullable: bool = True
    default: str | None = None
    generated: str | None = None
    generated_kind: Literal["stored", "virtual"] | None = None
    identity: Literal["always", "by default"] | None = None
    collation: str | None = None
    comment: str | None = None

    def arrow_field(self) -> pa.Field:
        """Return the field as the data files hold it; nullability is the database's business, not the file's."""
        return pa.field(self.name, parse_arrow_type(self.arrow_type))


class UniqueConstraint(Document):
    """A unique constraint: its name, its columns in order, and the source's full definition."""

    name: str
    columns: tuple[str, ...]
    definition: str | None = None


class CheckConstraint(Document):
    """A check (or, in PostgreSQL, exclusion) constraint: its name and the source's full definition."""

    name: str
    definition: str


class ForeignKey(Document):
    """A foreign key: the columns here, the table and columns there, and the source's full definition."""

    name: str
    columns: tuple[str, ...]
    referenced_schema: str
    referenced_table: str
    referenced_columns: tuple[str, ...]
    definition: str | None = None


class Index(Document):
    """An index that is not the shadow of a constraint: its name and the source's full definition."""

    name: str
    columns: tuple[str, ...] = ()
    unique: bool = False
    definition: str


class Sequence(Document):
    """A sequence that a column of the table owns or draws its default from.

    Attributes:
        last_value: The value last handed out, None if the sequence was never used.
    """

    schema_name: str = Field(alias="schema")
    name: str
    type: str | None = None
    column: str | None = None
    owned: bool = False
    start: int
    increment: int
    minimum: int
    maximum: int
    cache: int = 1
    cycle: bool = False
    last_value: int | None = None

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class UserType(Document):
    """An enum, domain, composite or range type that a column uses, in the order they must be created.

    Attributes:
        kind: What it is.
        labels: Labels of an enum, in order.
        definition: Everything else the source needs to make it again, in its own words.
    """

    schema_name: str = Field(alias="schema")
    name: str
    kind: Literal["enum", "domain", "composite", "range"]
    labels: tuple[str, ...] = ()
    definition: dict[str, Any] = Field(default_factory=dict)
    comment: str | None = None

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class PrimaryKey(Document):
    """The primary key: its name where it has one, and its columns in order."""

    name: str | None = None
    columns: tuple[str, ...]
    definition: str | None = None


class Table(Document):
    """One table: columns in order and all that hangs on it.

    Attributes:
        time_index: The column whose value decides a row's window; None for an untimed table.
        options: What else the source needs to make the table again (partitioning, storage parameters, …).
    """

    schema_name: str = Field(alias="schema")
    name: str
    columns: tuple[Column, ...]
    time_index: str | None = None
    primary_key: PrimaryKey | None = None
    unique: tuple[UniqueConstraint, ...] = ()
    checks: tuple[CheckConstraint, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    indexes: tuple[Index, ...] = ()
    sequences: tuple[Sequence, ...] = ()
    types: tuple[UserType, ...] = ()
    options: dict[str, Any] = Field(default_factory=dict)
    comment: str | None = None

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    @property
    def table_name(self) -> TableName:
        """The table's schema and name."""
        return TableName(self.schema_name, self.name)

    def column(self, name: str) -> Column:
        """Return the column of that name.

        Raises:
            KeyError: There is none.
        """
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    def arrow_schema(self) -> pa.Schema:
        """Return the schema of every batch a scan yields and of every data file of this table."""
        return pa.schema([column.arrow_field() for column in self.columns])


class View(Document):
    """One view: its defining query, its columns, and the relations that must exist before it."""

    schema_name: str = Field(alias="schema")
    name: str
    definition: str
    columns: tuple[Column, ...] = ()
    depends_on: tuple[TableName, ...] = ()
    materialized: bool = False
    options: dict[str, Any] = Field(default_factory=dict)
    comment: str | None = None

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    @property
    def table_name(self) -> TableName:
        """The view's schema and name."""
        return TableName(self.schema_name, self.name)


class Schema(Document):
    """One schema (namespace) of the source."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)
    comment: str | None = None


class DatabaseSchema(Document):
    """Everything `schemas.json`, `tables.json` and `views.json` say; each list sorted by schema and name.

    Attributes:
        database: Kind of the source, such as `postgresql`; definitions are in its SQL.
    """

    database: str
    schemas: tuple[Schema, ...] = ()
    tables: tuple[Table, ...] = ()
    views: tuple[View, ...] = ()

    def table(self, name: TableName) -> Table:
        """Return the table of that name.

        Raises:
            KeyError: There is none.
        """
        for table in self.tables:
            if table.table_name == name:
                return table
        raise KeyError(str(name))
