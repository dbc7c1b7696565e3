"""The tables that live rows were exported with, where the newest schema lacks them or their partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.databases.postgresql.former_partitions import relation_names, with_former_partitions
from snapshot_assets.engine.schema_history import exported_with
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName


@dataclass(frozen=True)
class WrittenTable:
    """A table as a schema has it that rows of it were exported with, and that schema."""

    table: Table
    schema: DatabaseSchema


def written_tables(state: State, documents: Mapping[int, DatabaseSchema]) -> dict[TableName, list[WrittenTable]]:
    """Return how the schemas have each table that its live rows were exported with, the newest first."""
    exported = exported_with(state)
    ids: dict[TableName, set[int]] = {}
    for each in state.live_files():
        some = {each.file.schema_id, exported.get(each.file.chunk, 0)} - {0}
        ids.setdefault(TableName(each.file.schema, each.file.table), set()).update(some)
    tables = {each: {table.table_name: table for table in schema.tables} for each, schema in documents.items()}
    written = {}
    for name, some in sorted(ids.items()):
        kept = [each for each in sorted(some & documents.keys(), reverse=True) if name in tables[each]]
        written[name] = [WrittenTable(tables[each][name], documents[each]) for each in kept]
    return written


def dropped_tables(newest: DatabaseSchema, written: Mapping[TableName, Sequence[WrittenTable]]) -> list[WrittenTable]:
    """Return the tables that the newest schema lacks, though there are files of them, as the last schema has them.

    A table that no intact schema has is left out.
    """
    there = {table.table_name for table in newest.tables}
    return [found[0] for name, found in written.items() if found and name not in there]


def with_tables(newest: DatabaseSchema, dropped: Sequence[WrittenTable]) -> DatabaseSchema:
    """Return the newest schema with tables that it lacks."""
    added = {each.table.schema_name for each in dropped} - {each.name for each in newest.schemas}
    schemas = {item.name: item for each in dropped for item in each.schema.schemas if item.name in added}
    update = {
        "schemas": (*newest.schemas, *(schemas[name] for name in sorted(schemas))),
        "tables": tuple(sorted((*newest.tables, *(each.table for each in dropped)), key=lambda each: each.table_name)),
    }
    return newest.model_copy(update=update)


def with_places(
    schema: DatabaseSchema, newest: DatabaseSchema, written: Mapping[TableName, Sequence[WrittenTable]]
) -> DatabaseSchema:
    """Return a schema of PostgreSQL whose partitions have a place for all rows that are restored."""
    if schema.database != "postgresql":
        return schema
    taken = relation_names(newest) | relation_names(schema) | {view.table_name for view in newest.views}
    tables = (
        with_former_partitions(table, [each.table for each in written.get(table.table_name, ())], taken)
        for table in schema.tables
    )
    return schema.model_copy(update={"tables": tuple(tables)})
