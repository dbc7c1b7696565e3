"""The whole description of what a plan selects."""

from __future__ import annotations

from snapshot_assets.databases.postgresql.introspect.build import table_document, view_document
from snapshot_assets.databases.postgresql.introspect.columns import read_columns
from snapshot_assets.databases.postgresql.introspect.constraints import (
    read_constraints,
    read_indexes,
    read_not_carried,
    read_statistics,
)
from snapshot_assets.databases.postgresql.introspect.extensions import read_extensions
from snapshot_assets.databases.postgresql.introspect.hypertables import read_dimensions
from snapshot_assets.databases.postgresql.introspect.query_results import Facts
from snapshot_assets.databases.postgresql.introspect.relations import (
    Relation,
    read_relations,
    read_schemas,
    without_used_types,
)
from snapshot_assets.databases.postgresql.introspect.sequences import read_sequences
from snapshot_assets.databases.postgresql.introspect.user_types import read_types
from snapshot_assets.databases.postgresql.introspect.views import read_views
from snapshot_assets.databases.postgresql.session import Session
from snapshot_assets.databases.selection import check_selection, selects
from snapshot_assets.databases.source import Selection
from snapshot_assets.errors import DatabaseDeniedError, UnknownRelationError
from snapshot_assets.format.relations import DatabaseSchema, Schema, TableName


def extract(session: Session, selection: Selection) -> DatabaseSchema:
    """Describe the selected schemas, tables and views (see `Database.extract`)."""
    schemas = read_schemas(session)
    relations = read_relations(session)
    _check(selection, schemas, relations)
    tables, views = _selected(selection, relations)
    _check_readable(tables)
    facts = _read_facts(session, relations, tables, views)
    table_documents = tuple(table_document(table, facts, selection) for table in tables)
    view_documents = tuple(view_document(view, facts) for view in views)
    used = {name.schema for name in (*(table.name for table in tables), *(view.name for view in views))}
    return DatabaseSchema(
        database="postgresql",
        schemas=tuple(
            without_used_types(schema, [kind for types in facts.types.values() for kind in types.types])
            for schema in schemas
            if schema.name in used or _wanted(schema, selection)
        ),
        tables=table_documents,
        views=view_documents,
    )


def _wanted(schema: Schema, selection: Selection) -> bool:
    return not selection.tables and (not selection.schemas or schema.name in selection.schemas)


def _check(selection: Selection, schemas: list[Schema], relations: list[Relation]) -> None:
    by_oid = {relation.oid: relation for relation in relations}
    partitions = {relation.name: relation for relation in relations if relation.facts["is_partition"]}
    for name in (*selection.tables, *selection.time_columns, *(name for name, _ in selection.carriers)):
        if name in partitions:
            parent = by_oid[partitions[name].facts["parents"][0]].name
            raise UnknownRelationError(
                f"{str(name)!r} is a partition of {str(parent)!r} and is exported with it. Name {str(parent)!r}.",
                table=str(name),
                near=(str(parent),),
            )
    known = {relation.name: relation.facts["columns"] for relation in relations if relation.name not in partitions}
    check_selection(selection, [schema.name for schema in schemas], known)


def _selected(selection: Selection, relations: list[Relation]) -> tuple[list[Relation], list[Relation]]:
    """Return the relations exported as tables, and the views exported as views."""
    tables: list[Relation] = []
    views: list[Relation] = []
    for relation in relations:
        if relation.facts["is_partition"] or not selects(selection, relation.name):
            continue
        if not relation.is_view or selection.tables:
            tables.append(relation)
        elif relation.kind != "f":
            views.append(relation)
    return tables, views


def _check_readable(tables: list[Relation]) -> None:
    if denied := [table for table in tables if not table.facts["readable"]]:
        raise DatabaseDeniedError(
            f"This user may not read {len(denied)} of the selected tables:"
            f" {', '.join(str(table.name) for table in denied)}. Grant SELECT on them and USAGE on their schemas, or"
            " leave them out.",
            tables=tuple(str(table.name) for table in denied),
        )
    if hidden := [table for table in tables if table.facts["rows_hidden"]]:
        raise DatabaseDeniedError(
            f"Row security would hide rows of {', '.join(str(table.name) for table in hidden)} from this user. Export"
            " as their owner or as a user with BYPASSRLS, or leave them out.",
            tables=tuple(str(table.name) for table in hidden),
        )


def _read_facts(session: Session, relations: list[Relation], tables: list[Relation], views: list[Relation]) -> Facts:
    partitions = _partitions(relations, tables)
    own = [relation.oid for relation in (*tables, *(part for parts in partitions.values() for part in parts))]
    every = [*own, *(view.oid for view in views)]
    columns = read_columns(session, every)
    queries = read_views(session, [view.oid for view in views])
    of_types = {relation.oid: relation.facts["of_type_oid"] for relation in relations}
    types = {
        oid: {
            *(column.facts["type_oid"] for column in columns.get(oid, ())),
            *(queries[oid]["types"] if oid in queries else ()),
            *([of_types[oid]] if of_types[oid] else ()),
        }
        for oid in every
    }
    return Facts(
        relations={relation.oid: relation for relation in relations},
        partitions=partitions,
        columns=columns,
        constraints=read_constraints(session, own),
        indexes=read_indexes(session, every),
        statistics=read_statistics(session, every),
        not_carried=read_not_carried(session, every),
        sequences=read_sequences(session, own),
        types=read_types(session, types),
        extensions=read_extensions(session, every),
        views=queries,
        dimensions=read_dimensions(session),
    )


def _partitions(relations: list[Relation], tables: list[Relation]) -> dict[TableName, list[Relation]]:
    """Return the partitions of each table, of all levels, parents first."""
    children: dict[int, list[Relation]] = {}
    for relation in relations:
        if relation.facts["is_partition"]:
            children.setdefault(relation.facts["parents"][0], []).append(relation)
    found: dict[TableName, list[Relation]] = {}
    for table in tables:
        level = children.get(table.oid, [])
        while level:
            found.setdefault(table.name, []).extend(level)
            level = [child for part in level for child in children.get(part.oid, [])]
    return found
