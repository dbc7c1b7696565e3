"""Runs the queries from which the documents are built: a few for all relations together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from snapshot_assets.databases.postgresql.introspect.columns import SourceColumn, read_columns
from snapshot_assets.databases.postgresql.introspect.constraints import (
    CONSTRAINTS,
    INDEXES,
    NOT_CARRIED,
    STATISTICS,
    Rows,
    read_by_relation,
)
from snapshot_assets.databases.postgresql.introspect.relations import SourceRelation, read_hypertables, read_views
from snapshot_assets.databases.postgresql.introspect.sequences import SourceSequence, read_sequences
from snapshot_assets.databases.postgresql.introspect.types_and_extensions import (
    Extensions,
    UsedTypes,
    read_extensions,
    read_types,
)
from snapshot_assets.databases.postgresql.session import PostgresqlSession
from snapshot_assets.format.relations import TableName


@dataclass(frozen=True)
class QueryResults:
    """The results of all queries, by the relation's oid; partitions and time dimensions by the table's name."""

    relations: Mapping[int, SourceRelation]
    partitions: Mapping[TableName, Sequence[SourceRelation]]
    columns: Mapping[int, list[SourceColumn]]
    constraints: Rows
    indexes: Rows
    statistics: Rows
    not_carried: Rows
    sequences: Mapping[int, list[SourceSequence]]
    types: Mapping[int, UsedTypes]
    extensions: Extensions
    views: Mapping[int, dict[str, Any]]
    hypertables: Mapping[TableName, str]


def read_results(
    session: PostgresqlSession,
    relations: list[SourceRelation],
    tables: list[SourceRelation],
    views: list[SourceRelation],
) -> QueryResults:
    """Read the properties of the relations that are exported.

    Args:
        session: Where to read.
        relations: Every relation of the database.
        tables: Relations that are exported as tables; their partitions are read too.
        views: Views that are exported as views.
    """
    partitions = _partitions(relations, tables)
    with_rows = [relation.oid for relation in (*tables, *(part for parts in partitions.values() for part in parts))]
    every = [*with_rows, *(view.oid for view in views)]
    columns = read_columns(session, every)
    queries = read_views(session, [view.oid for view in views])
    by_oid = {relation.oid: relation for relation in relations}
    types = {oid: {column.row["type_oid"] for column in columns.get(oid, ())} for oid in every}
    for oid, used in types.items():
        used.update(queries[oid]["types"] if oid in queries else ())
        used.update([by_oid[oid].row["of_type_oid"]] if by_oid[oid].row["of_type_oid"] else ())
    return QueryResults(
        relations=by_oid,
        partitions=partitions,
        columns=columns,
        constraints=read_by_relation(session, CONSTRAINTS, with_rows, "reading constraints"),
        indexes=read_by_relation(session, INDEXES, every, "reading indexes"),
        statistics=read_by_relation(session, STATISTICS, every, "reading statistics objects"),
        not_carried=read_by_relation(session, NOT_CARRIED, every, "reading triggers, policies and rules"),
        sequences=read_sequences(session, with_rows),
        types=read_types(session, types),
        extensions=read_extensions(session, every),
        views=queries,
        hypertables=read_hypertables(session),
    )


def _partitions(relations: list[SourceRelation], tables: list[SourceRelation]) -> dict[TableName, list[SourceRelation]]:
    """Return the partitions of each table, of all levels, parents first."""
    children: dict[int, list[SourceRelation]] = {}
    for relation in relations:
        if relation.row["is_partition"]:
            children.setdefault(relation.row["parents"][0], []).append(relation)
    partitions: dict[TableName, list[SourceRelation]] = {}
    for table in tables:
        level = children.get(table.oid, [])
        while level:
            partitions.setdefault(table.name, []).extend(level)
            level = [child for part in level for child in children.get(part.oid, [])]
    return partitions
