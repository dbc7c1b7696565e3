"""A user's own DataFrames as tables of a snapshot: their documents, and their rows in the exact types of files."""

from __future__ import annotations

from collections.abc import Mapping, Set

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from snapshot_assets.databases.protocol.refusals import Refusals
from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.databases.selection.selection import suggestion
from snapshot_assets.databases.selection.spelled_selection import SpelledNames, refuse_equal_names
from snapshot_assets.databases.spark.introspect import exact_frame, schema_table
from snapshot_assets.engine.export.tasks import Frame
from snapshot_assets.errors import PlanError
from snapshot_assets.format.names import ColumnPath, NameRule, Spellings, rule_of, table_text
from snapshot_assets.format.relations import DatabaseSchema, TableName


def described_frames(
    chunks: Mapping[int, Mapping[TableName, DataFrame]], committed: DatabaseSchema, selection: Selection
) -> tuple[DatabaseSchema, dict[int, tuple[Frame, ...]]]:
    """Return the schema of a snapshot with the tables of DataFrames, and the DataFrames by chunk.

    The tables join those of `committed`, the newest schema; Spark compares the names of the plan's columns.

    A column may be NULL in any of them: what Spark infers of one DataFrame says nothing of the table's others.

    Raises:
        PlanError: Two DataFrames of a chunk are one table, those of one table have other columns, or the plan hides a
            column that is not there, or twice.
    """
    spellings = Spellings(rule_of(committed), (table.table_name for table in committed.tables))
    named = {chunk: _spell_names(frames, spellings) for chunk, frames in chunks.items()}
    every: dict[TableName, StructType] = {}
    for frames in named.values():
        for name, frame in frames.items():
            fields = frame.schema.fields
            nullable = StructType([StructField(each.name, each.dataType, True, each.metadata) for each in fields])
            _refuse_other_columns(name, every.setdefault(name, nullable), nullable)
    rule, refusals = rule_of(committed), Refusals()
    _refuse_unknown_columns(selection, every, {table.table_name for table in committed.tables}, rule)
    refuse_equal_names(selection, rule, refusals)
    refusals.raise_any()
    columns = {name: schema.names for name, schema in every.items()}
    spelled = SpelledNames(rule, {name.schema for name in every}, columns).selection(selection)
    tables = {name: schema_table(name, schema, spelled) for name, schema in every.items()}
    by_name = {table.table_name: table for table in committed.tables} | tables
    schema = committed.model_copy(update={"tables": tuple(by_name[name] for name in sorted(by_name))})
    exact = {
        chunk: tuple((tables[name], exact_frame(frame, tables[name])) for name, frame in frames.items())
        for chunk, frames in named.items()
    }
    return schema, exact


def _refuse_other_columns(name: TableName, first: StructType, other: StructType) -> None:
    """Refuse DataFrames of one table that differ: a chunk would lose a column, or lack one that others have.

    Raises:
        PlanError: Two have other columns or types, or one has two columns that are one to Spark.
    """
    if len({column.lower() for column in first.names}) < len(first.names):
        raise PlanError(
            f"The DataFrame for {name} has columns that differ only in case: {', '.join(first.names)}. Rename one."
        )
    if first != other:
        differing = {*first, *other} - ({*first} & {*other})
        found = ", ".join(sorted(f"{each.name} {each.dataType.simpleString()}" for each in differing))
        raise PlanError(
            f"The DataFrames of this run's partitions differ in the columns of {name}:"
            f" {found or 'they are in another order'}. Return the same columns for all, or run these partitions apart."
        )


def _refuse_unknown_columns(
    selection: Selection, schemas: Mapping[TableName, StructType], committed: Set[TableName], rule: NameRule
) -> None:
    """Refuse a column that is to be hidden and is not there: a misspelt one would be exported.

    Raises:
        PlanError: A table has no such column, or there is no such table.
    """
    spellings = Spellings(rule, {*schemas, *committed})
    for table, column in (*selection.exclude_columns, *selection.masks):
        name = spellings.of(table)
        if name in schemas:
            known = schemas[name].names
            if not any(rule.same(column, each) for each in known):
                raise PlanError(
                    f"exclude_columns or mask names {ColumnPath(table, column)}, which the DataFrame has"
                    f" not. {suggestion(column, known)}"
                )
        elif name not in committed:
            raise PlanError(
                f"exclude_columns or mask names {ColumnPath(table, column)}, and no DataFrame is that"
                f" table. {suggestion(table_text(table), [table_text(each) for each in schemas])}"
            )


def _spell_names(frames: Mapping[TableName, DataFrame], spellings: Spellings[TableName]) -> dict[TableName, DataFrame]:
    """Return DataFrames by the names that their tables have in the snapshot."""
    given: dict[TableName, TableName] = {}
    for name in frames:
        if (other := given.setdefault(spellings.of(name), name)) != name:
            raise PlanError(
                f"The asset returned DataFrames for {other} and {name}, which are one table of"
                " the snapshot. Return one for both."
            )
    return {spelled: frames[name] for spelled, name in given.items()}
