"""Loads chunks as Spark DataFrames."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from snapshot_assets.catalog.schemas import read_schema, read_schemas
from snapshot_assets.catalog.state.file_pruning import deletions, written_schemas
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.databases.spark.types import batch_schema, spark_schema
from snapshot_assets.engine.executors import prepare_session
from snapshot_assets.engine.files.read import TextSchema, read_batches, text_schemas
from snapshot_assets.engine.session import task_frame
from snapshot_assets.errors import IncompleteError, PlanError
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.header import format_of
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.name_texts import written_name, yaml_key
from snapshot_assets.format.names import Spellings, rule_of, table_text
from snapshot_assets.format.predicates import Predicate
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName
from snapshot_assets.storage.base import ObjectStore

_Part = tuple[DataFile, tuple[Predicate, ...], TextSchema | None]
"""A file, the predicates of its deleted rows, and what a text file does not say about itself."""


def load_frames(
    spark: SparkSession, store: ObjectStore, state: State, chunks: Sequence[int], table: TableName | None = None
) -> dict[TableName, DataFrame]:
    """Return the rows of completed chunks as one DataFrame a table, in no order.

    Windows return every timed table and chunk 0 every untimed one, even without rows. Rows that a tombstone deletes are
    left out. Each task hashes its file before it yields a row.

    Args:
        spark: The session.
        store: The location.
        state: The catalog's state.
        chunks: Chunk ids.
        table: The one table that is wanted; None for all.

    Raises:
        IncompleteError: Chunks are not completed; names them.
        PlanError: The chunks do not have that table: windows have the tables with a time index, chunk 0 the others.
    """
    missing = [chunk for chunk in chunks if not state.completed(chunk)]
    if missing:
        raise IncompleteError(
            f"Chunks {missing[:10]} of {store.uri} are not exported; materialise them.", missing=missing
        )
    files: dict[TableName, list[DataFile]] = {}
    for chunk in chunks:
        for known in state.live_files(chunk):
            files.setdefault(TableName(known.file.schema, known.file.table), []).append(known.file)
    schema = read_schema(store, state.schemas[state.schema_id])
    for each in schema.tables:
        if any((chunk == UNTIMED_CHUNK) is (each.time_index is None) for chunk in chunks):
            files.setdefault(each.table_name, [])
    if table is not None:
        files = _only(table, files, schema, store.uri)
    prepare_session(spark)
    documents = read_schemas(store, state) if state.tombstones or format_of(state.header).is_text else {}
    text_of = text_schemas(state.header, documents)
    frames = {}
    for name, some in sorted(files.items()):
        gone = deletions(state, name, written_schemas(documents, name))
        left = [(file, gone.of(file.path), text_of(file)) for file in some if file.path not in gone.dropped]
        zone = state.header.time_zone if state.header else "UTC"
        frames[name] = _frame(spark, store, schema.table(name), left, zone)
    return frames


def _only(
    table: TableName, files: dict[TableName, list[DataFile]], schema: DatabaseSchema, uri: str
) -> dict[TableName, list[DataFile]]:
    known_names = {*files, *(each.table_name for each in schema.tables)}
    spelled = Spellings(rule_of(schema.database), known_names).of(table)
    chosen = {name: some for name, some in files.items() if name == spelled}
    if not chosen:
        known = next((each for each in schema.tables if each.table_name == spelled), None)
        why = "is not in the snapshot"
        if known is not None:
            why = "has no time index, so it is in chunk 0" if known.time_index is None else "is not in chunk 0"
        remedy = f"`time_columns: {{{yaml_key(written_name(*table))}: null}}`"
        raise PlanError(
            f"{table} of {uri} {why}. For an asset of a table without a time index, write {remedy} in the plan:"
            " then the asset has no partitions.",
            table=table_text(table),
        )
    return chosen


def _frame(
    spark: SparkSession,
    store: ObjectStore,
    table: Table,
    files: Sequence[_Part],
    zone: str,
) -> DataFrame:
    arrow = batch_schema(table.arrow_schema())

    def read(part: _Part) -> Iterator[pa.RecordBatch]:
        file, deleted, text = part
        return read_batches(store, file, arrow, text, verify=True, zone=zone, deleted=deleted)

    return task_frame(spark, files, spark_schema(arrow), read)
