"""Gives schema documents new names, in one walk over their fields: the type of each says what its text names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_origin

from snapshot_assets.databases.convert.renaming import Renaming, renamed_schemas
from snapshot_assets.databases.postgresql.renaming.names import Names
from snapshot_assets.databases.postgresql.renaming.texts import Texts, renamed_query
from snapshot_assets.format.options import (
    CodeEntry,
    PartitionOptions,
    SchemaOptions,
    TableOptions,
    TypeDefinition,
    ViewOptions,
)
from snapshot_assets.format.relations import (
    DatabaseSchema,
    Document,
    ForeignKey,
    Role,
    SchemaObject,
    Table,
    TableName,
    UserType,
    View,
)

_Model = TypeVar("_Model", bound=Document)


class _Of(NamedTuple):
    """What a field belongs to: a relation or type, if any, and the parent of a partition; by their old names."""

    relation: TableName | None = None
    parent: TableName | None = None


def rename(schema: DatabaseSchema, renaming: Renaming) -> tuple[DatabaseSchema, tuple[str, ...]]:
    """Return documents with new names, and what is lost; see `DatabaseModule.rename`."""
    documents, lost = _Documents(schema, renaming), list[str]()
    update = {
        "schemas": renamed_schemas(schema, renaming, lambda each: documents.renamed(SchemaOptions.of(each)).values()),
        "tables": tuple(map(documents.renamed, schema.tables)),
        "views": tuple(documents.views(schema.views, lost)),
    }
    return schema.model_copy(update=update), tuple(lost)


class _Documents:
    def __init__(self, schema: DatabaseSchema, renaming: Renaming) -> None:
        self._names = Names(schema, renaming)
        self._texts = Texts(self._names)

    def views(self, views: Iterable[View], lost: list[str]) -> Iterator[View]:
        """Yield views with new names; add to `lost` those whose query is not understood."""
        for view in views:
            query = renamed_query(view.definition, self._names, view.depends_on)
            if query is not None:
                yield self.renamed(view).model_copy(update={"definition": query})
                continue
            lost.append(
                f"View {view.table_name} is left out: its query does not show which of its names are those of mapped"
                " tables. Create it by hand."
            )

    def renamed(self, model: _Model, of: _Of = _Of()) -> _Model:  # noqa: B008  # it is immutable
        """Return a document, or a part of one that belongs to something, with new names."""
        if isinstance(model, CodeEntry):
            return model  # its statement would keep the old names
        update: dict[str, Any] = {}  # of some fields, the type does not say what they name
        if isinstance(model, SchemaObject):
            of = _Of(model.table_name, model.of if isinstance(model, PartitionOptions) else None)
            new = self._names[model.table_name]
            update = {"schema_name": new.schema, "name": new.table}
        if isinstance(model, ForeignKey):
            new = self._names[model.referenced]
            update = {"referenced_schema": new.schema, "referenced_table": new.table}
        if isinstance(model, Table):
            update["options"] = self.renamed(TableOptions.of(model), of).values()
        if isinstance(model, View):
            update["options"] = self.renamed(ViewOptions.of(model), of).values()
        if isinstance(model, UserType):
            update["definition"] = self.renamed(TypeDefinition.of_type(model), of).values()
        for name, field in type(model).model_fields.items():
            if name in model.model_fields_set and name not in update:  # others name nothing
                hint = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
                update[name] = self._value(getattr(model, name), hint, of)
        return model.model_copy(update=update)

    def _value(self, value: Any, hint: Any, of: _Of) -> Any:
        """Return a value of a field, whose type is `hint`, with new names."""
        arguments = get_args(hint)
        literals = [word for each in arguments if get_origin(each) is Literal for word in get_args(each)]
        if value is None or value in literals:
            return value
        if isinstance(value, Document):
            return self.renamed(value, of)
        if isinstance(value, TableName):
            return self._names[value]
        if get_origin(hint) is Annotated:
            return self._text(value, hint.__metadata__[0], of)
        if isinstance(value, dict):
            names, values = arguments
            return {self._value(key, names, of): self._value(own, values, of) for key, own in value.items()}
        if isinstance(value, tuple):
            return tuple(self._value(each, arguments[0], of) for each in value)
        if NoneType in arguments:
            [inner] = [each for each in arguments if each is not NoneType and get_origin(each) is not Literal]
            return self._value(value, inner, of)
        return value

    def _text(self, text: str, role: Role, of: _Of) -> str:
        names, relation = self._names, of.relation
        if role is Role.SQL:
            return self._texts.renamed(text, relation if relation in names.relations else None)
        if role is Role.SEQUENCE:
            return names.sequence(text)
        if relation is None:
            return text
        if role is Role.PARENT_INDEX:
            return names.index(of.parent or relation, text)
        rule = {
            Role.INDEX: names.index,
            Role.CONSTRAINT: names.constraint,
            Role.STATISTICS: names.statistics,
            Role.MULTIRANGE: names.multirange,
        }
        return rule[role](relation, text)
