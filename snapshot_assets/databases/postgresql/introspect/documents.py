"""Builds the schema documents of a plan's selection: relations, and the types and sequences that none of them uses."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from snapshot_assets.databases.postgresql.code.read import schemas_with_code
from snapshot_assets.databases.postgresql.database_locale import with_database_locale
from snapshot_assets.databases.postgresql.introspect.columns import SourceColumn
from snapshot_assets.databases.postgresql.introspect.dependencies import with_row_types
from snapshot_assets.databases.postgresql.introspect.hidden_columns import broken_views, read_hidden_objects
from snapshot_assets.databases.postgresql.introspect.options import sequence_comments, table_options, view_options
from snapshot_assets.databases.postgresql.introspect.relation_parts import read_relation_parts
from snapshot_assets.databases.postgresql.introspect.relations import (
    OWN_SCHEMA,
    SourceRelation,
    read_relations,
    read_reserved,
    read_schemas,
    root_of,
)
from snapshot_assets.databases.postgresql.introspect.revealing_views import refuse_revealing_rows
from snapshot_assets.databases.postgresql.introspect.sequences import (
    SourceSequence,
    grants,
    read_loose_sequences,
    read_sequences,
    recorded_states,
)
from snapshot_assets.databases.postgresql.introspect.types_and_extensions import TYPE_PARTS, read_each_type
from snapshot_assets.databases.postgresql.large_objects import count_large_objects, large_objects_table
from snapshot_assets.databases.postgresql.session import PostgresqlSession, oid_array
from snapshot_assets.databases.postgresql.types import TIMESTAMPS, carried
from snapshot_assets.databases.protocol.refusals import Refusals
from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.databases.selection.columns import refuse_reserved
from snapshot_assets.databases.selection.exclusions import with_lost, without_emptied
from snapshot_assets.databases.selection.hidden import (
    column_name,
    excludes,
    hidden_of,
    hides,
    refuse_revealing,
    refuse_views,
)
from snapshot_assets.databases.selection.selection import check_selection, selected_schemas, selects
from snapshot_assets.databases.selection.time_index import choose_time_index
from snapshot_assets.errors import DatabaseDeniedError, PlanError, UnknownRelationError
from snapshot_assets.format import relations as documents
from snapshot_assets.format.arrow_types import arrow_type_text
from snapshot_assets.format.names import ColumnPath, column_text, table_text
from snapshot_assets.format.options import Comments, SchemaOptions
from snapshot_assets.format.relations import Column, DatabaseSchema, Schema, Table, TableName, UserType, View
from snapshot_assets.format.units import counted

_TYPES = f"""
SELECT t.oid::int8 AS oid
FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace LEFT JOIN pg_class c ON c.oid = t.typrelid
WHERE {OWN_SCHEMA} AND (t.typtype IN ('e', 'd', 'r') OR c.relkind = 'c') AND NOT EXISTS (
    SELECT FROM pg_depend d WHERE d.classid = 'pg_type'::regclass AND d.objid = t.oid AND d.deptype IN ('e', 'i'))
"""

_OIDS = f"""
WITH RECURSIVE held (relation, "column", type) AS (
    SELECT a.attrelid, a.attname, a.atttypid FROM pg_attribute a
    WHERE a.attrelid = ANY ({{oids}}) AND a.attnum > 0 AND NOT a.attisdropped
    UNION SELECT h.relation, h."column", x.type
    FROM held h CROSS JOIN LATERAL ({TYPE_PARTS.format(type="h.type")}) x (type)
)
SELECT h.relation::int8 AS relation, h."column"::text AS "column" FROM held h
WHERE h.type = 'pg_catalog.oid'::regtype ORDER BY 1, 2
"""


def _with_loose(
    schemas: Iterable[Schema],
    types: Sequence[tuple[UserType, set[TableName], dict[str, str]]],
    sequences: Sequence[SourceSequence],
    hidden: Collection[TableName],
    *,
    carried: bool,
) -> list[Schema]:
    """Return schemas' documents with their types and sequences that no relation uses; hidden types are not carried.

    Without `carried`, all of them are listed as not carried. A type comes with the types and relations, and the
    extensions that it needs.
    """
    complete = []
    for schema in schemas:
        not_carried, kept = [*schema.options.get("not_carried", ())], []
        places: dict[str, str] = {}
        for kind, needed, extensions in types:
            if kind.schema_name == schema.name and (not carried or kind.table_name in hidden):
                not_carried.append(f"type {kind.table_name.dotted}")
            elif kind.schema_name == schema.name:
                definition = kind.definition | ({"needs": sorted(map(list, needed))} if needed else {})
                kept.append(kind.model_copy(update={"definition": definition}))
                places |= extensions
        own = [each for each in sequences if each.document.schema_name == schema.name]
        readable = [each for each in own if carried and each.readable]
        unread = (each.document.table_name for each in own if not (carried and each.readable))
        not_carried += [f"sequence {name.dotted}" for name in unread]
        update = {
            "not_carried": tuple(sorted(not_carried)),
            "sequences": tuple(each.document for each in readable),
            "comments": Comments(sequences=sequence_comments(readable)),
            **recorded_states(readable, unlogged=False),
        }
        if carried:
            other = {name: place for name, place in places.items() if place != "public"}
            update |= {"types": tuple(kept), "extensions": tuple(sorted(places)), "extension_schemas": other}
        options = SchemaOptions.of(schema).model_copy(update=update).values()
        complete.append(schema.model_copy(update={"options": options}))
    return complete


_Part = TypeVar("_Part", bound=documents.Document)


def extract(session: PostgresqlSession, selection: Selection, refusals: Refusals) -> DatabaseSchema:
    """Describe the selected schemas, tables and views (see `Database.extract`)."""
    schemas = read_schemas(session)
    relations = read_relations(session)
    refuse_reserved(selection, read_reserved(session, relations), refusals)
    _check(selection, schemas.values(), relations, refusals)
    chosen = [each for each in relations if not each.row["is_partition"] and selects(selection, each.name)]
    tables = [each for each in chosen if not each.is_view or selection.tables]
    views = [each for each in chosen if each.kind in "vm" and not selection.tables]
    tables = _readable(session, tables, selection, refusals)
    read_relation_parts(session, selection, relations, tables, views, refusals)
    with_row_types(session, tables)
    refuse_views(selection, [view.name for view in views], refusals)
    refuse_revealing_rows(session, selection, relations, tables, refusals)
    broken = broken_views(session, selection, relations, views)
    views = [view for view in views if view.name not in broken]
    objects: list[Table] = []
    with refusals.noting():
        objects = _large_objects(session, selection, tables, relations)
    missing = [] if objects or not (count := count_large_objects(session)) else [f"large objects ({count:,} of them)"]
    exported_tables = [*(_table(table, selection, refusals) for table in tables), *objects]
    return DatabaseSchema(
        database="postgresql",
        schemas=_schemas(session, selection, schemas, relations, tables, views, broken, missing),
        tables=tuple(sorted(exported_tables, key=lambda table: table.table_name)),
        views=tuple(map(_view, views)),
    )


def _schemas(
    session: PostgresqlSession,
    selection: Selection,
    schemas: Mapping[int, Schema],
    relations: Iterable[SourceRelation],
    tables: Sequence[SourceRelation],
    views: Sequence[SourceRelation],
    broken: Mapping[TableName, str],
    missing: Iterable[str],
) -> tuple[Schema, ...]:
    """Return the selected schemas with all that is no table or view, and the names of what is not carried."""
    exported = [relation.name for relation in (*tables, *views)]
    names = selected_schemas(selection, exported, [schema.name for schema in schemas.values()])
    # The columns of partitions have the types of their table's.
    every = [*(each for table in tables for each in (table, *table.partitions)), *views]
    used_types = [kind for relation in every for kind in relation.used.types]
    used_names = {kind.table_name for kind in used_types}
    hidden = read_hidden_objects(session, selection, relations, used_names)
    oids = {row["oid"] for row in session.rows(_TYPES, "listing types")}
    types = list(read_each_type(session, oids))
    selected = _with_loose(
        [schema for schema in schemas.values() if schema.name in names],
        [each for each in types if each[0].table_name not in used_names],
        read_loose_sequences(session, schemas),
        hidden.types,
        carried=not selection.tables,
    )
    # What is exported as its rows becomes a table, which its triggers and rules do not suit.
    as_rows = {table.oid for table in every if table.is_view} - {view.oid for view in views}
    complete = schemas_with_code(
        session,
        [with_lost(schema, broken) for schema in selected],
        {oid: schema.name for oid, schema in schemas.items()},
        [kind for kind, _, _ in types],
        {each.oid: each.name for each in every if each.oid not in as_rows},
        used_types,
        {name for each in every for name in each.used.extensions},
        hidden,
        missing,
    )
    return with_database_locale(session, without_emptied(complete, selection, [each.name for each in relations]))


def _large_objects(
    session: PostgresqlSession, selection: Selection, tables: list[SourceRelation], relations: list[SourceRelation]
) -> list[Table]:
    """Return the table of the large objects, if they are selected; refuse it if the plan hides a column of oids."""
    everything = not (selection.schemas or selection.tables)
    referring = any(column.type.builtin == "oid" for table in tables for column in table.columns)
    if selection.large_objects is False or not (everything or referring):
        return []
    found = large_objects_table(session)
    if found is None:
        return []
    by_oid = {each.oid: each for each in relations}
    undecided = selection.large_objects is None and hides(selection)
    query = _OIDS.format(oids=oid_array(by_oid))
    for row in session.rows(query, "reading columns for large objects") if undecided else ():
        name = root_of(by_oid[row["relation"]]).name
        if excludes(selection, name) or row["column"] in hidden_of(selection, name).names:
            raise PlanError(
                f"The plan hides {column_name(name, row['column'])}, which may hold the oids of large objects, and"
                " their contents would be exported. Write `large_objects: skip` in the plan (--skip-large-objects), or"
                " `large_objects: export` to export all of them.",
                table=table_text(name),
                column=row["column"],
            )
    return [found]


def _check(
    selection: Selection, schemas: Iterable[Schema], relations: list[SourceRelation], refusals: Refusals
) -> None:
    partitions = {relation.name: relation for relation in relations if relation.row["is_partition"]}
    columned = (*selection.carriers, *selection.exclude_columns, *selection.masks)
    for name in (*selection.tables, *selection.time_columns, *(name for name, _ in columned)):
        if name in partitions:
            parent = partitions[name].parents[0].name
            raise UnknownRelationError(
                f"'{name}' is a partition of '{parent}' and is exported with it. Name '{parent}'.",
                table=table_text(name),
                near=(table_text(parent),),
            )
    columns = {relation.name: relation.row["columns"] for relation in relations if relation.name not in partitions}
    check_selection(selection, [schema.name for schema in schemas], columns, refusals)
    for relation in partitions.values():
        root = root_of(relation)
        if excludes(selection, relation.name) and selects(selection, root.name):
            error = PlanError(
                f"exclude_tables matches {relation.name}, a partition of {root.name}, with which its rows are exported."
                f" Exclude {root.name} too, or write patterns that do not match its partitions.",
                table=table_text(relation.name),
            )
            refusals.note(error)


def _readable(
    session: PostgresqlSession, tables: list[SourceRelation], selection: Selection, refusals: Refusals
) -> list[SourceRelation]:
    """Return the tables all of whose rows and exported columns this user may read, with sequences; note the others.

    Without its last value, a restored sequence would return numbers that are already used.
    """
    readable: list[SourceRelation] = []
    restricted: list[TableName] = []
    denied: dict[TableName, list[str]] = {}  # the exported columns, where some are not exported
    for table in tables:
        hidden = hidden_of(selection, table.name).names
        # Beside foreign partitions, the others are read by themselves.
        parts = table.partitions if any(part.kind == "f" for part in table.partitions) else []
        unread = [
            each
            for each in (table, *(part for part in parts if part.kind == "r"))
            if not each.row["readable"] or set(each.row["denied_columns"] or ()) - hidden
        ]
        for each in unread:
            denied[each.name] = [column for column in each.row["columns"] if column not in hidden] if hidden else []
        if not unread and table.row["rows_hidden"]:
            restricted.append(table.name)
        elif not unread:
            readable.append(table)
    with_rows = {each.oid: each for table in tables for each in (table, *table.partitions)}
    used = read_sequences(session, with_rows)
    for oid, sequences in used.items():
        with_rows[oid].sequences = sequences
    numbers = sorted({e.document.table_name for each in used.values() for e in each if not e.readable})
    if denied or numbers:
        what = [f"{len(denied)} of the selected tables: {', '.join(map(str, denied))}"] if denied else []
        drawn = f"{counted(len(numbers), 'sequence')} that selected tables draw numbers from"
        what += [f"{drawn}: {', '.join(map(str, numbers))}"] if numbers else []
        message = (
            f"This user may not read {'; nor '.join(what)}. Leave the tables out, or grant it:"
            f" {grants(session, {**denied, **dict.fromkeys(numbers, ())})}"
        )
        refusals.note(DatabaseDeniedError(message, tables=tuple(map(table_text, denied))))
    if restricted:
        message = (
            f"Row security would hide rows of {', '.join(map(str, restricted))} from this user. Export as a user with"
            " BYPASSRLS, or as their owner unless their row security is forced, or leave them out."
        )
        refusals.note(DatabaseDeniedError(message, tables=tuple(map(table_text, restricted))))
    return readable


def _table(relation: SourceRelation, selection: Selection, refusals: Refusals) -> Table:
    columns, constraints = relation.columns, relation.constraints
    timestamps = [column.name for column in columns if column.type.builtin in TIMESTAMPS]
    dates = [column.name for column in columns if column.type.builtin == "date"]
    dimension = relation.dimension if relation.dimension in (*timestamps, *dates) else None
    primary_keys = _parts(documents.PrimaryKey, constraints, "p")
    hidden = hidden_of(selection, relation.name)
    time_index = None
    with refusals.noting():
        time_index = choose_time_index(
            relation.name, selection.time_columns, timestamps=timestamps, dates=dates, dimension=dimension
        )
        refuse_revealing(relation.name, hidden, time_index, {})
    exported: list[Column] = []
    for column in columns:
        with refusals.noting():
            exported.append(_column(relation, column, selection))
    return Table(
        schema_name=relation.name.schema,
        name=relation.name.table,
        columns=tuple(exported),
        time_index=time_index,
        primary_key=primary_keys[0] if primary_keys else None,
        unique=_parts(documents.UniqueConstraint, constraints, "u"),
        checks=_parts(documents.CheckConstraint, constraints, "cx"),
        foreign_keys=_parts(documents.ForeignKey, constraints, "f"),
        indexes=_parts(documents.Index, relation.indexes),
        sequences=tuple(each.document for each in relation.sequences),
        types=relation.used.types,
        options=table_options(relation) | hidden.options(),
        comment=relation.row["comment"],
    )


def _parts(model: type[_Part], rows: Iterable[dict[str, Any]], kinds: str | None = None) -> tuple[_Part, ...]:
    """Return the documents of rows, or of those that have one of the given kinds."""
    return tuple(
        model(**{name: row[name] for name in model.model_fields}) for row in rows if not kinds or row["kind"] in kinds
    )


def _view(relation: SourceRelation) -> View:
    return View(
        schema_name=relation.name.schema,
        name=relation.name.table,
        definition=relation.query["definition"],
        columns=tuple(_column(relation, column, Selection()) for column in relation.columns),
        depends_on=tuple(relation.query["depends_on"]),
        materialized=relation.kind == "m",
        options=view_options(relation, _parts(documents.Index, relation.indexes)),
        comment=relation.row["comment"],
    )


def _column(relation: SourceRelation, column: SourceColumn, selection: Selection) -> Column:
    override = selection.carriers.get((relation.name, column.name))
    arrow_type, carrier = carried(column.type, override, column_text(ColumnPath(relation.name, column.name)))
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
