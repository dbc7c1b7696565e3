"""Builds the schema documents of a plan's selection."""

from __future__ import annotations

from typing import Any

from snapshot_assets.databases.columns import choose_time_index
from snapshot_assets.databases.postgresql.introspect.columns import SourceColumn
from snapshot_assets.databases.postgresql.introspect.options import table_options, view_options
from snapshot_assets.databases.postgresql.introspect.query_results import QueryResults, read_results
from snapshot_assets.databases.postgresql.introspect.relations import (
    SourceRelation,
    read_relations,
    read_schemas,
    without_used_types,
)
from snapshot_assets.databases.postgresql.session import PostgresqlSession
from snapshot_assets.databases.postgresql.types import TIMESTAMPS, carried
from snapshot_assets.databases.selection import check_selection, selects
from snapshot_assets.databases.source import Selection
from snapshot_assets.errors import DatabaseDeniedError, UnknownRelationError
from snapshot_assets.format import relations as documents
from snapshot_assets.format.arrow_types import arrow_type_text
from snapshot_assets.format.relations import Column, DatabaseSchema, Schema, Table, View


def extract(session: PostgresqlSession, selection: Selection) -> DatabaseSchema:
    """Describe the selected schemas, tables and views (see `Database.extract`)."""
    schemas = read_schemas(session)
    relations = read_relations(session)
    _check(selection, schemas, relations)
    tables, views = _selected(selection, relations)
    _check_readable(tables)
    results = read_results(session, relations, tables, views)
    table_documents = tuple(_table(table, results, selection) for table in tables)
    view_documents = tuple(_view(view, results) for view in views)
    used = {relation.name.schema for relation in (*tables, *views)}
    used_types = [kind for types in results.types.values() for kind in types.types]
    return DatabaseSchema(
        database="postgresql",
        schemas=tuple(
            without_used_types(schema, used_types)
            for schema in schemas
            if schema.name in used or _selects_schema(selection, schema.name)
        ),
        tables=table_documents,
        views=view_documents,
    )


def _selects_schema(selection: Selection, name: str) -> bool:
    return not selection.tables and (not selection.schemas or name in selection.schemas)


def _check(selection: Selection, schemas: list[Schema], relations: list[SourceRelation]) -> None:
    by_oid = {relation.oid: relation for relation in relations}
    partitions = {relation.name: relation for relation in relations if relation.row["is_partition"]}
    for name in (*selection.tables, *selection.time_columns, *(name for name, _ in selection.carriers)):
        if name in partitions:
            parent = by_oid[partitions[name].row["parents"][0]].name
            raise UnknownRelationError(
                f"{str(name)!r} is a partition of {str(parent)!r} and is exported with it. Name {str(parent)!r}.",
                table=str(name),
                near=(str(parent),),
            )
    columns = {relation.name: relation.row["columns"] for relation in relations if relation.name not in partitions}
    check_selection(selection, [schema.name for schema in schemas], columns)


def _selected(
    selection: Selection, relations: list[SourceRelation]
) -> tuple[list[SourceRelation], list[SourceRelation]]:
    """Return the relations exported as tables, and the views exported as views."""
    tables: list[SourceRelation] = []
    views: list[SourceRelation] = []
    for relation in relations:
        if relation.row["is_partition"] or not selects(selection, relation.name):
            continue
        if not relation.is_view or selection.tables:
            tables.append(relation)
        elif relation.kind != "f":
            views.append(relation)
    return tables, views


def _check_readable(tables: list[SourceRelation]) -> None:
    if denied := [str(table.name) for table in tables if not table.row["readable"]]:
        raise DatabaseDeniedError(
            f"This user may not read {len(denied)} of the selected tables: {', '.join(denied)}."
            " Grant SELECT on them and USAGE on their schemas, or leave them out.",
            tables=tuple(denied),
        )
    if hidden := [str(table.name) for table in tables if table.row["rows_hidden"]]:
        raise DatabaseDeniedError(
            f"Row security would hide rows of {', '.join(hidden)} from this user. Export as their owner or as a user"
            " with BYPASSRLS, or leave them out.",
            tables=tuple(hidden),
        )


def _table(relation: SourceRelation, results: QueryResults, selection: Selection) -> Table:
    columns = results.columns.get(relation.oid, [])
    constraints = results.constraints.get(relation.oid, [])
    timestamps = [column.name for column in columns if column.type.builtin in TIMESTAMPS]
    dates = [column.name for column in columns if column.type.builtin == "date"]
    dimension = results.hypertables.get(relation.name)
    primary = next((row for row in constraints if row["kind"] == "p"), None)
    return Table(
        schema_name=relation.name.schema,
        name=relation.name.table,
        columns=tuple(_column(relation, column, selection) for column in columns),
        time_index=choose_time_index(
            relation.name,
            selection.time_columns,
            timestamps=timestamps,
            dates=dates,
            dimension=dimension if dimension in (*timestamps, *dates) else None,
        ),
        primary_key=documents.PrimaryKey(**_fields(primary, "name", "columns", "definition")) if primary else None,
        unique=tuple(
            documents.UniqueConstraint(**_fields(row, "name", "columns", "definition"))
            for row in constraints
            if row["kind"] == "u"
        ),
        checks=tuple(
            documents.CheckConstraint(**_fields(row, "name", "definition"))
            for row in constraints
            if row["kind"] in "cx"
        ),
        foreign_keys=tuple(_foreign_key(row) for row in constraints if row["kind"] == "f"),
        indexes=_indexes(relation, results),
        sequences=tuple(each.document for each in results.sequences.get(relation.oid, [])),
        types=results.types[relation.oid].types,
        options=table_options(relation, results),
        comment=relation.row["comment"],
    )


def _view(relation: SourceRelation, results: QueryResults) -> View:
    query = results.views[relation.oid]
    indexes = [index.model_dump(mode="json") for index in _indexes(relation, results)]
    reads = (results.relations[oid].name for oid in query["depends_on"] if oid in results.relations)
    return View(
        schema_name=relation.name.schema,
        name=relation.name.table,
        definition=query["definition"],
        columns=tuple(_column(relation, column, Selection()) for column in results.columns.get(relation.oid, [])),
        depends_on=tuple(sorted(reads)),
        materialized=relation.kind == "m",
        options=view_options(relation, results, indexes),
        comment=relation.row["comment"],
    )


def _column(relation: SourceRelation, column: SourceColumn, selection: Selection) -> Column:
    override = selection.carriers.get((relation.name, column.name))
    arrow_type, carrier = carried(column.type, override, f"{relation.name}.{column.name}")
    row = column.row
    generated = row["generated_kind"]
    return Column(
        name=column.name,
        type=column.type.text,
        arrow_type=arrow_type_text(arrow_type),
        carrier=carrier,
        nullable=not row["not_null"],
        default=None if generated else row["default"],
        generated=row["default"] if generated else None,
        generated_kind=generated,
        identity=row["identity"],
        collation=row["collation"],
        comment=row["comment"],
    )


def _foreign_key(row: dict[str, Any]) -> documents.ForeignKey:
    referenced = ("referenced_schema", "referenced_table", "referenced_columns")
    return documents.ForeignKey(**_fields(row, "name", "columns", *referenced, "definition"))


def _indexes(relation: SourceRelation, results: QueryResults) -> tuple[documents.Index, ...]:
    rows = results.indexes.get(relation.oid, [])
    return tuple(documents.Index(**_fields(row, "name", "columns", "unique", "definition")) for row in rows)


def _fields(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: row[name] for name in names}
