"""Partitions in schema documents, of whatever database; only PostgreSQL's documents have any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from snapshot_assets.format.options import PartitionPlaces, TableOptions
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName


def partitions_of(table: Table) -> list[TableName]:
    """Return the partitions of all levels."""
    return [part.table_name for part in PartitionPlaces.of(table).partitions]


def former_partitions(table: Table) -> list[TableName]:
    """Return the partitions that only rows of older windows need."""
    return [part.table_name for part in TableOptions.of(table).partitions if part.former]


def relation_names(schema: DatabaseSchema) -> set[TableName]:
    """Return the names of all tables and partitions."""
    return {name for table in schema.tables for name in (table.table_name, *partitions_of(table))}


def with_former_partitions(
    schema: DatabaseSchema, newest: DatabaseSchema, older: Mapping[TableName, Sequence[Table]]
) -> DatabaseSchema:
    """Return what is restored of the newest schema, with partitions that have a place for every row of older documents.

    `older` has the tables by name, as the schemas have them that their files were written with, newest first.
    """
    if schema.database != "postgresql":
        return schema
    from snapshot_assets.databases.postgresql.former_partitions import with_former_partitions as table_with_former

    taken = relation_names(newest) | relation_names(schema) | {view.table_name for view in newest.views}
    tables = (table_with_former(table, older.get(table.table_name, ()), taken) for table in schema.tables)
    return schema.model_copy(update={"tables": tuple(tables)})
