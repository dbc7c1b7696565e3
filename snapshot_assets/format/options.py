"""Models of what PostgreSQL's schema documents hold beside their fields: `options`, and the `definition` of a type.

`Table`, `View`, `Schema` and `UserType` have plain JSON there, because each kind of database has keys of its own, and
later versions add some. These models are read from it with `of`, and written with `values`. Unknown keys are kept.
A field's type says what its text names, so that renaming needs no list of keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, ValidationError, model_serializer, model_validator

from snapshot_assets.errors import DocumentError
from snapshot_assets.format.relations import (
    ConstraintName,
    Document,
    Index,
    IndexName,
    Role,
    Schema,
    SchemaObject,
    Sequence,
    SqlText,
    Table,
    TableName,
    UserType,
    View,
)

SequenceName = Annotated[str, Role.SEQUENCE]
StatisticsName = Annotated[str, Role.STATISTICS]
ParentIndexName = Annotated[str, Role.PARENT_INDEX]
MultirangeName = Annotated[str, Role.MULTIRANGE]


class Options(Document):
    """Base of the models: an option that has no value is absent on storage. Zero is a value."""

    model_config = ConfigDict(extra="allow")

    _written: ClassVar[frozenset[str]] = frozenset()
    """Keys that are written even when they are empty."""

    @classmethod
    def of(cls, document: Schema | Table | View) -> Self:
        """Return the options of a document; raise a DocumentError if they do not have their form in FORMAT.md."""
        if isinstance(document, Schema):
            return cls._read(document.options, "schemas.json", "options", f"schema {document.name}")
        file, kind = ("tables.json", "table") if isinstance(document, Table) else ("views.json", "view")
        return cls._read(document.options, file, "options", f"{kind} {document.table_name}")

    @classmethod
    def _read(cls, values: dict[str, Any], file: str, field: str, of: str) -> Self:
        try:
            return cls.model_validate(values)
        except ValidationError as cause:
            first = cause.errors(include_url=False)[0]
            path = ".".join(map(str, (field, *first["loc"])))
            found = "is missing" if first["type"] == "missing" else f"is {first['input']!r:.100}"
            expected = first["msg"].replace("Input should be", "expected").replace("Field required", "expected a value")
            raise DocumentError(
                f"The snapshot's {file} is malformed: {path} of {of} {found}; {expected}. Restore without {of}, or from"
                " another revision.",
                object=file,
                field=path,
            ) from cause

    def values(self) -> dict[str, Any]:
        """Return them as JSON, in the order of the fields."""
        return self.model_dump(mode="json", by_alias=True)

    @model_serializer(mode="wrap")
    def _present(self, dump: Callable[[Self], dict[str, Any]]) -> dict[str, Any]:
        return {
            name: value
            for name, value in dump(self).items()
            if name in self._written or not (value is None or value is False or value in ([], {}))
        }


class ColumnSettings(Options):
    """Settings of a column, each of which an ALTER COLUMN sets."""

    storage: str | None = None
    compression: str | None = None
    statistics_target: int | None = None
    options: tuple[str, ...] = ()


class ColumnOptions(ColumnSettings):
    """A column's settings, and where its NOT NULL comes from.

    Attributes:
        inherited: Whether the table does not declare the column itself.
        not_null_name: Name of the constraint, if it is not the usual one.
        not_null_no_inherit: Whether tables that inherit do not get the NOT NULL.
        not_null_inherited: Whether it comes from a parent alone.
        not_null_local: Whether a table with parents forbids NULL itself.
        not_null_not_valid: Name of the constraint, if the source has not validated it.
    """

    inherited: bool = False
    not_null_name: ConstraintName | None = None
    not_null_no_inherit: bool = False
    not_null_inherited: bool = False
    not_null_local: bool = False
    not_null_not_valid: ConstraintName | None = None


class Comments(Options):
    """Comments on parts of a relation or schema, by their names; of a sequence, the full one."""

    constraints: dict[ConstraintName, str] = Field(default_factory=dict)
    indexes: dict[ConstraintName, str] = Field(default_factory=dict)
    statistics: dict[StatisticsName, str] = Field(default_factory=dict)
    columns: dict[str, str] = Field(default_factory=dict)
    sequences: dict[SequenceName, str] = Field(default_factory=dict)


class RelationOptions(Options):
    """What tables, partitions and views have in common.

    Attributes:
        index_statistics_targets: By index, and by the number of its column.
        not_carried: Kind and name of what belongs to it and is not in the snapshot.
        row_security: `enabled`, `forced` or `forced, disabled`.
        sequence_persistence: `logged` or `unlogged`, where that is not what its owner's is.
        sequence_restarts: The value that a sequence returns next, if it was restarted at its first possible one.
        replica_identity: `full`, `nothing` or the name of an index.
        extensions: Those that it needs.
        extension_schemas: Their schemas, other than `public`.
        relation: The kind of a relation that is exported as its rows, such as `foreign table`.
    """

    persistence: str | None = None
    access_method: str | None = None
    tablespace: str | None = None
    storage_parameters: tuple[str, ...] = ()
    toast_storage_parameters: tuple[str, ...] = ()
    columns: dict[str, ColumnOptions] = Field(default_factory=dict)
    statistics: tuple[SqlText, ...] = ()
    statistics_targets: dict[StatisticsName, int] = Field(default_factory=dict)
    index_statistics_targets: dict[ConstraintName, dict[int, int]] = Field(default_factory=dict)
    index_tablespaces: dict[ConstraintName, str] = Field(default_factory=dict)
    clustered_on: IndexName | None = None
    comments: Comments = Field(default_factory=Comments)
    not_carried: tuple[str, ...] = ()
    partition_by: SqlText | None = None
    row_security: str | None = None
    replica_identity: Literal["full", "nothing"] | IndexName | None = None
    constraint_storage: dict[ConstraintName, tuple[str, ...]] = Field(default_factory=dict)
    sequence_persistence: dict[SequenceName, str] = Field(default_factory=dict)
    sequence_restarts: dict[SequenceName, int] = Field(default_factory=dict)
    extensions: tuple[str, ...] = ()
    extension_schemas: dict[str, str] = Field(default_factory=dict)
    relation: str | None = None

    def column(self, name: str) -> ColumnOptions:
        """Return the options of a column; those without any value for one that has none."""
        return self.columns.get(name, ColumnOptions())


class PartitionPart(Options):
    """A constraint or index of a partition; `parent` is that of the partition's parent that it is attached to."""

    name: ConstraintName
    definition: SqlText
    parent: ParentIndexName | None = None

    @property
    def is_key(self) -> bool:
        """Whether it is a constraint that has an index."""
        return not self.definition.startswith(("CHECK", "FOREIGN KEY"))

    @property
    def excludes(self) -> bool:
        """Whether it is an exclusion constraint."""
        return self.definition.startswith("EXCLUDE")


class PartitionPlace(SchemaObject):
    """A partition's name, its parent, and its bounds."""

    model_config = ConfigDict(extra="ignore")

    of: TableName
    bounds: str


class PartitionPlaces(Options):
    """The places of a table's partitions alone: quicker to read than `TableOptions`, where there are thousands."""

    partitions: tuple[PartitionPlace, ...] = ()


class PartitionOptions(RelationOptions, PartitionPlace):
    """A partition: its place, and in what it differs from its table.

    Attributes:
        column_order: Its columns, in its own order.
        generated: Expressions by column.
        not_null: Columns in which it alone forbids NULL.
        identities: Kinds of identity by column, of columns with their own sequence.
        identity_sequences: The sequence of an identity column that owns several.
        former: Whether the newest document lacks it; never on storage.
    """

    model_config = ConfigDict(extra="allow")

    column_order: tuple[str, ...] = ()
    defaults: dict[str, SqlText | None] = Field(default_factory=dict)
    generated: dict[str, SqlText] = Field(default_factory=dict)
    not_null: tuple[str, ...] = ()
    identities: dict[str, str] = Field(default_factory=dict)
    identity_sequences: dict[str, TableName] = Field(default_factory=dict)
    constraints: tuple[PartitionPart, ...] = ()
    inherited_checks: tuple[PartitionPart, ...] = ()
    indexes: tuple[PartitionPart, ...] = ()
    sequences: tuple[Sequence, ...] = ()
    comment: str | None = None
    former: bool = False

    @property
    def keys(self) -> tuple[PartitionPart, ...]:
        """The constraints that have an index."""
        return tuple(each for each in self.constraints if each.is_key)


class NeedEntry(Options):
    """An object that a table needs, and that is not in the snapshot; FORMAT.md describes the fields."""

    _written = frozenset(("for", "sql"))

    kind: str
    name: str
    used_by: tuple[str, ...] = Field(default=(), alias="for")
    text: bool = False
    sql: tuple[str, ...] = ()


class TableOptions(RelationOptions):
    """The options of a table.

    Attributes:
        partitions: Its partitions of all levels, parents first.
        inherits: The tables that it inherits from.
        of_type: The type of a typed table.
        identity_sequences: The sequence of an identity column that owns several.
        row_types: Relations whose row types its columns have.
        needs: What it needs that is not in the snapshot.
    """

    hypertable: bool = False
    partitions: tuple[PartitionOptions, ...] = ()
    inherits: tuple[TableName, ...] = ()
    of_type: SqlText | None = None
    identity_sequences: dict[str, TableName] = Field(default_factory=dict)
    row_types: tuple[TableName, ...] = ()
    needs: tuple[NeedEntry, ...] = ()


class ViewOptions(RelationOptions):
    """The options of a view; it may name functions in `not_carried`, whose arguments have types."""

    not_carried: tuple[SqlText, ...] = ()
    populated: bool = False
    indexes: tuple[Index, ...] = ()
    types: tuple[UserType, ...] = ()


PARTS = frozenset(("shell type", "operator family members", "text search mapping", "trigger state", "rule state"))
"""Kinds of code that are parts of other objects, which have sentences of their own."""


class CodeEntry(Options):
    """An object that is SQL text; FORMAT.md describes the fields."""

    kind: str
    name: str
    sql: str = ""
    schema_name: str | None = Field(default=None, alias="schema")
    on: TableName | None = None
    comment: str | None = None
    needs: tuple[str, ...] = ()
    type: UserType | None = None

    @model_validator(mode="after")
    def _has_type(self) -> Self:
        if self.kind == "type" and self.type is None:
            raise ValueError("expected the document of the type in `type`")
        return self

    @property
    def key(self) -> str:
        """Kind and name, as `needs` and `not_carried` have it."""
        return f"{self.kind} {self.name}"

    @property
    def is_part(self) -> bool:
        """Whether it is a part of another object."""
        return self.kind in PARTS


class SchemaOptions(Options):
    """The options of a schema.

    Attributes:
        not_carried: Kind and name of what is not in the snapshot.
        uncommented: Whether someone removed the comment that every new database has for it.
        of_extension: The extension that makes the schema.
        sequences: Those that no table draws from.
        types: Those that no table or view uses, each after those that it needs.
        code_needs: What types, tables and views need directly, by kind and name.
    """

    not_carried: tuple[str, ...] = ()
    uncommented: bool = False
    of_extension: str | None = None
    sequences: tuple[Sequence, ...] = ()
    comments: Comments = Field(default_factory=Comments)
    sequence_persistence: dict[SequenceName, str] = Field(default_factory=dict)
    sequence_restarts: dict[SequenceName, int] = Field(default_factory=dict)
    types: tuple[UserType, ...] = ()
    extensions: tuple[str, ...] = ()
    extension_schemas: dict[str, str] = Field(default_factory=dict)
    code: tuple[CodeEntry, ...] = ()
    code_needs: dict[str, tuple[str, ...]] = Field(default_factory=dict)


class DomainCheck(Options):
    """A check of a domain."""

    name: str
    definition: SqlText
    comment: str | None = None


class Attribute(Options):
    """An attribute of a composite type."""

    name: str
    type: SqlText
    collation: str | None = None
    comment: str | None = None


class TypeDefinition(Options):
    """The definition of a domain, composite type or range type; names of functions and operator classes are in SQL.

    Attributes:
        not_null_name: Name of a domain's NOT NULL, if it is not the usual one.
        functions: The functions that a domain calls, which are not in the snapshot.
        needs: The types and relations that must exist before it.
    """

    base: SqlText | None = None
    not_null: bool = False
    default: SqlText | None = None
    collation: str | None = None
    constraints: tuple[DomainCheck, ...] = ()
    functions: tuple[SqlText, ...] = ()
    not_null_name: str | None = None
    not_null_comment: str | None = None
    attributes: tuple[Attribute, ...] = ()
    subtype: SqlText | None = None
    subtype_opclass: str | None = None
    canonical: str | None = None
    subtype_diff: str | None = None
    multirange: MultirangeName | None = None
    needs: tuple[TableName, ...] = ()

    @classmethod
    def of_type(cls, kind: UserType) -> Self:
        """Return the definition of a type; raise a DocumentError if it does not have the form of PostgreSQL's."""
        return cls._read(kind.definition, "schema document", "definition", f"type {kind.table_name}")
