"""A user's own DataFrames as tables of a snapshot: their documents, and their rows in the exact types of files."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from snapshot_assets.databases.refusals import Refusals
from snapshot_assets.databases.source import Selection
from snapshot_assets.databases.spark.introspect import exact_frame, schema_table
from snapshot_assets.databases.spelled_selection import SpelledNames, refuse_equal_names
from snapshot_assets.engine.export.tasks import Frame
from snapshot_assets.errors import PlanError
from snapshot_assets.format.name_rules import Spellings, rule_of
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import DatabaseSchema, TableName


def described_frames(
    chunks: Mapping[int, Mapping[TableName, DataFrame]], committed: DatabaseSchema, selection: Selection
) -> tuple[DatabaseSchema, dict[int, tuple[Frame, ...]]]:
    """Return the schema of a snapshot with the tables of DataFrames, and the DataFrames by chunk.

    Args:
        chunks: The DataFrames by chunk and table.
        committed: The newest schema of the snapshot; empty for a new one.
        selection: What the plan says about their columns, whose names Spark compares.

    Raises:
        PlanError: Two DataFrames of a chunk are one table, or the plan names a column twice.
    """
    spellings = Spellings(rule_of(committed.database), (table.table_name for table in committed.tables))
    named = {chunk: _named(frames, spellings) for chunk, frames in chunks.items()}
    every = {name: frame for frames in named.values() for name, frame in frames.items()}
    rule, refusals = rule_of("spark"), Refusals()
    refuse_equal_names(selection, rule, refusals)
    refusals.raise_any()
    columns = {name: frame.columns for name, frame in every.items()}
    chosen = SpelledNames(rule, {name.schema for name in every}, columns).selection(selection)
    tables = {name: schema_table(name, frame.schema, chosen) for name, frame in every.items()}
    by_name = {table.table_name: table for table in committed.tables} | tables
    schema = committed.model_copy(update={"tables": tuple(by_name[name] for name in sorted(by_name))})
    exact = {
        chunk: tuple((tables[name], exact_frame(frame, tables[name])) for name, frame in frames.items())
        for chunk, frames in named.items()
    }
    return schema, exact


def _named(frames: Mapping[TableName, DataFrame], spellings: Spellings[TableName]) -> dict[TableName, DataFrame]:
    """Return DataFrames by the names that their tables have in the snapshot."""
    given: dict[TableName, TableName] = {}
    for name in frames:
        if (other := given.setdefault(spellings.of(name), name)) != name:
            raise PlanError(
                f"The asset returned DataFrames for {table_text(other)} and {table_text(name)}, which are one table of"
                " the snapshot. Return one for both."
            )
    return {spelled: frames[name] for spelled, name in given.items()}
