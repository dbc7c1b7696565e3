"""The JSON schema documents: the definition of a database without its rows.

JSON instead of SQL (GreptimeDB RFC, "Why JSON instead of SQL?") is version-agnostic and easy to process. Documents hold
SQL text of the source only where no neutral form exists: types, default and check expressions, view definitions.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from snapshot_assets.format.name_texts import printed_name

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_DOCUMENT_VERSION = 1


class TableName(NamedTuple):
    """A table's true name: its schema and its own name, unquoted. As a text it is for people; see `printed_name`."""

    schema: str
    table: str

    def __str__(self) -> str:
        return printed_name(*self)

    @property
    def dotted(self) -> str:
        """Both names with a dot between, as documents and the names of a restore's steps have them."""
        return f"{self.schema}.{self.table}"


class Role(StrEnum):
    """What a text in the documents names; marks the type of a field. A `TableName` always names a relation or type."""

    SQL = "sql"  # SQL text of the source
    INDEX = "index"  # an index of the relation, or a constraint with one
    CONSTRAINT = "constraint"  # a constraint or index of the relation
    PARENT_INDEX = "parent index"  # an index of the partition's parent, or a constraint with one
    SEQUENCE = "sequence"  # `schema.name`
    STATISTICS = "statistics"  # without the schema if that is the relation's
    MULTIRANGE = "multirange"  # in SQL, without the schema if that is the type's


SqlText = Annotated[str, Role.SQL]
IndexName = Annotated[str, Role.INDEX]
ConstraintName = Annotated[str, Role.CONSTRAINT]


class Document(BaseModel):
    """Base of the schema documents: immutable; an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class SchemaObject(Document):
    """Base of everything that has a name within a schema."""

    schema_name: str = Field(alias="schema")
    name: str

    @property
    def table_name(self) -> TableName:
        """Schema and name."""
        return TableName(self.schema_name, self.name)


class Carrier(StrEnum):
    """How data files hold a column's values: in an Arrow type that is exact, or in the database's own text form."""

    NATIVE = "native"
    TEXT = "text"


class Column(Document):
    """One column as the source defines it, and the Arrow type of its values in the data files.

    Attributes:
        type: The source's own text of the type, modifiers included, such as `character varying(20)`.
        arrow_type: The Arrow type in the files, as `arrow_types.arrow_type_text` writes it.
        default: Default expression in the source's SQL.
        generated: Expression of a generated column.
        collation: Collation other than the type's own.
    """

    name: str
    type: SqlText
    arrow_type: str
    carrier: Carrier = Carrier.NATIVE
    nullable: bool = True
    default: SqlText | None = None
    generated: SqlText | None = None
    generated_kind: Literal["stored", "virtual"] | None = None
    identity: Literal["always", "by default"] | None = None
    collation: str | None = None
    comment: str | None = None

    def arrow_field(self) -> pa.Field:
        """Return the field of the data files, which is always nullable."""
        import pyarrow as pa

        from snapshot_assets.format.arrow_types import parse_arrow_type

        return pa.field(self.name, parse_arrow_type(self.arrow_type))


class UniqueConstraint(Document):
    """A unique constraint: its name, its columns in order, and the source's full definition."""

    name: IndexName
    columns: tuple[str, ...]
    definition: str | None = None


class CheckConstraint(Document):
    """A check (or, in PostgreSQL, exclusion) constraint: its name and the source's full definition."""

    name: ConstraintName
    definition: SqlText


class ForeignKey(Document):
    """A foreign key: the columns here, the table and columns there, and the source's full definition."""

    name: str
    columns: tuple[str, ...]
    referenced_schema: str
    referenced_table: str
    referenced_columns: tuple[str, ...]
    definition: SqlText | None = None

    @property
    def referenced(self) -> TableName:
        """The table to which it refers."""
        return TableName(self.referenced_schema, self.referenced_table)


class Index(Document):
    """An index that no constraint owns: its name and the source's full definition."""

    name: IndexName
    columns: tuple[str, ...] = ()
    unique: bool = False
    definition: SqlText


class Sequence(SchemaObject):
    """A sequence that a column of the table owns or draws its default from; one never used has no `last_value`."""

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


class UserType(SchemaObject):
    """An enum, domain, composite or range type that a column uses, in the order they must be created.

    `definition` is everything but the labels that recreates the type, in the source's SQL.
    """

    kind: Literal["enum", "domain", "composite", "range"]
    labels: tuple[str, ...] = ()
    definition: dict[str, Any] = Field(default_factory=dict)
    comment: str | None = None


class PrimaryKey(Document):
    """The primary key: its name where it has one, and its columns in order."""

    name: IndexName | None = None
    columns: tuple[str, ...]
    definition: str | None = None


class Table(SchemaObject):
    """One table: its columns in order, its keys, constraints, indexes, sequences and types.

    Attributes:
        time_index: The column whose value decides a row's window; None for an untimed table.
        options: Everything else that recreates the table: partitioning, storage parameters, …
    """

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

    def column(self, name: str) -> Column:
        """Return the column of that name; raise a KeyError if there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    def arrow_schema(self) -> pa.Schema:
        """Return the schema of every batch a scan yields and of every data file of this table."""
        import pyarrow as pa

        return pa.schema([column.arrow_field() for column in self.columns])


class View(SchemaObject):
    """One view: its defining query, its columns, and the relations that must exist before it."""

    definition: str
    columns: tuple[Column, ...] = ()
    depends_on: tuple[TableName, ...] = ()
    materialized: bool = False
    options: dict[str, Any] = Field(default_factory=dict)
    comment: str | None = None


class Schema(Document):
    """One schema (namespace) of the source."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)
    comment: str | None = None


class DatabaseSchema(Document):
    """The content of `schemas.json`, `tables.json` and `views.json`; each list is sorted by schema and name.

    `database` is the kind of the source, such as `postgresql`; definitions are in its SQL. `names` is how it compares
    names (`NameRule`), unless its kind says so.
    """

    database: str
    names: Literal["exact", "ascii_case_ignored", "case_ignored"] | None = None
    schemas: tuple[Schema, ...] = ()
    tables: tuple[Table, ...] = ()
    views: tuple[View, ...] = ()

    def table(self, name: TableName) -> Table:
        """Return the table of that name; raise a KeyError if there is none."""
        for table in self.tables:
            if table.name == name.table and table.schema_name == name.schema:  # `table_name` makes an object each time
                return table
        raise KeyError(str(name))
