"""Gives tables, types, sequences and views of schema documents their new names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from snapshot_assets.databases.postgresql.ddl import checked_sql
from snapshot_assets.databases.postgresql.renaming.names import Names, types_of
from snapshot_assets.databases.postgresql.renaming.options import Options
from snapshot_assets.databases.postgresql.renaming.queries import renamed_query
from snapshot_assets.databases.postgresql.renaming.texts import Texts
from snapshot_assets.databases.renaming import Renaming, renamed_foreign_keys, renamed_schemas
from snapshot_assets.databases.sql import qualified
from snapshot_assets.errors import RestoreError
from snapshot_assets.format.relations import (
    CheckConstraint,
    Column,
    DatabaseSchema,
    Index,
    PrimaryKey,
    Schema,
    Table,
    TableName,
    UniqueConstraint,
    UserType,
    View,
)

_Key = TypeVar("_Key", PrimaryKey, UniqueConstraint)


def rename(schema: DatabaseSchema, renaming: Renaming) -> tuple[DatabaseSchema, tuple[str, ...]]:
    """Return documents with new names, and what is lost; see `TargetModule.rename`."""
    try:
        return _Documents(schema, renaming).renamed()
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        # Options have no model of their own: in a hostile document their values may be anything.
        raise RestoreError(
            "The snapshot's schema documents do not have the form of PostgreSQL's:"
            f" {type(error).__name__}: {' '.join(str(error).split()):.300}"
        ) from error


class _Documents:
    def __init__(self, schema: DatabaseSchema, renaming: Renaming) -> None:
        self._schema, self._renaming = schema, renaming
        self._names = Names(schema, renaming)
        self._texts = Texts(self._names.objects)
        self._options = Options(self._names, self._texts)
        self._lost: list[str] = []

    def renamed(self) -> tuple[DatabaseSchema, tuple[str, ...]]:
        tables = tuple(map(self._table, self._schema.tables))
        views = tuple(self._views())
        schemas = renamed_schemas(self._schema, self._renaming, self._schema_options)
        update = {"schemas": schemas, "tables": tables, "views": views}
        return self._schema.model_copy(update=update), tuple(self._lost)

    def _schema_options(self, schema: Schema) -> dict[str, Any]:
        options = self._options.of_schema(schema.options)
        if "types" in options:
            kinds = [self._type(UserType.model_validate(each)) for each in options["types"]]
            options["types"] = [kind.model_dump(mode="json", by_alias=True) for kind in kinds]
        return options

    def _table(self, table: Table) -> Table:
        name, texts = table.table_name, self._texts
        keys = renamed_foreign_keys(table.foreign_keys, self._names.objects)
        return table.model_copy(
            update=_named(self._names[name])
            | {
                "columns": tuple(self._columns(table.columns, name)),
                "primary_key": table.primary_key and self._key(table.primary_key, name),
                "unique": tuple(self._key(key, name) for key in table.unique),
                "checks": tuple(self._check(check, name) for check in table.checks),
                "foreign_keys": tuple(
                    key.model_copy(update={"definition": texts.foreign_key(key.definition)}) for key in keys
                ),
                "indexes": tuple(self._index(index, name) for index in table.indexes),
                "sequences": tuple(
                    each.model_copy(update=_named(self._names[each.table_name])) for each in table.sequences
                ),
                "types": tuple(map(self._type, table.types)),
                "options": self._options.of_table(table),
            }
        )

    def _columns(self, columns: Iterable[Column], table: TableName) -> Iterator[Column]:
        for column in columns:
            yield column.model_copy(
                update={
                    "type": self._texts.expression(column.type),
                    "default": self._texts.optional(column.default, table),
                    "generated": self._texts.optional(column.generated, table),
                }
            )

    def _key(self, key: _Key, table: TableName) -> _Key:
        return key.model_copy(update={"name": self._names.index(table, key.name) if key.name else None})

    def _check(self, check: CheckConstraint, table: TableName) -> CheckConstraint:
        excludes = check.definition.startswith("EXCLUDE")
        name = self._names.index(table, check.name) if excludes else check.name
        return CheckConstraint(name=name, definition=self._texts.expression(check.definition, table))

    def _index(self, index: Index, relation: TableName) -> Index:
        name = self._names.index(relation, index.name)
        return index.model_copy(
            update={"name": name, "definition": self._texts.index(index.definition, relation, name)}
        )

    def _type(self, kind: UserType) -> UserType:
        return kind.model_copy(
            update=_named(self._names[kind.table_name]) | {"definition": self._type_definition(kind)}
        )

    def _type_definition(self, kind: UserType) -> dict[str, Any]:
        definition, expression = dict(kind.definition), self._texts.expression
        for name in {"base", "default", "subtype"} & definition.keys():
            definition[name] = expression(str(definition[name]))
        if "constraints" in definition:
            definition["constraints"] = [
                each | {"definition": expression(each["definition"])} for each in definition["constraints"] or ()
            ]
        if "attributes" in definition:
            definition["attributes"] = [
                each | {"type": expression(each["type"])} for each in definition["attributes"] or ()
            ]
        if "needs" in definition:
            definition["needs"] = [list(self._names[TableName(*each)]) for each in definition["needs"]]
        if "functions" in definition:
            definition["functions"] = [expression(str(each)) for each in definition["functions"]]
        if isinstance(multirange := definition.get("multirange"), str):
            schema, name = checked_sql.split_name(multirange)
            new = self._names[TableName(schema or kind.schema_name, name)]
            definition["multirange"] = qualified(new)
        return definition

    def _views(self) -> Iterator[View]:
        for view in self._schema.views:
            query = renamed_query(view.definition, self._names, view.depends_on)
            if query is None:
                self._lost.append(
                    f"View {view.table_name} is left out: its query does not show which of its names are those of"
                    " mapped tables. Create it by hand."
                )
                continue
            name = view.table_name
            indexes = [
                self._index(Index.model_validate(each), name).model_dump(mode="json")
                for each in view.options.get("indexes", ())
            ]
            kinds = [self._type(UserType.model_validate(each)) for each in types_of(view)]
            types = [kind.model_dump(mode="json", by_alias=True) for kind in kinds]
            parts: Mapping[str, list[Any]] = {"indexes": indexes, "types": types}
            options = self._options.of_view(view) | {key: value for key, value in parts.items() if value}
            yield view.model_copy(
                update=_named(self._names[name])
                | {
                    "definition": query,
                    "columns": tuple(self._columns(view.columns, name)),
                    "depends_on": tuple(self._names[each] for each in view.depends_on),
                    "options": options,
                }
            )


def _named(name: TableName) -> dict[str, Any]:
    return {"schema_name": name.schema, "name": name.table}
