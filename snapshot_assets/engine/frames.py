"""DataFrames in and out: a user's own DataFrames written as chunks, and chunks loaded back as DataFrames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from snapshot_assets.catalog.schemas import read_schema
from snapshot_assets.catalog.state import State
from snapshot_assets.catalog.verify import hash_object
from snapshot_assets.engine.session import prepare_session
from snapshot_assets.errors import ChecksumMismatchError, IncompleteError
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName
from snapshot_assets.storage.base import ObjectStore

_BATCH_ROWS = 65_536


@dataclass(frozen=True)
class FrameChunk:
    """One chunk's DataFrames by table."""

    chunk: int
    frames: Mapping[TableName, DataFrame]


def merged_schema(known: DatabaseSchema, tables: Sequence[Table]) -> DatabaseSchema:
    """Return a schema in which `tables` stand beside, or in place of, the known ones."""
    by_name = {table.table_name: table for table in (*known.tables, *tables)}
    return known.model_copy(update={"tables": tuple(by_name[name] for name in sorted(by_name))})


def load_frames(
    spark: SparkSession, store: ObjectStore, state: State, chunks: Sequence[int]
) -> dict[TableName, DataFrame]:
    """Return the rows of completed chunks as one DataFrame a table.

    Every timed table is there for windows, and every untimed one for chunk 0, rows or none: which tables come back
    depends on the schema, not on the data.

    Each file is hashed by the task that reads it, before it yields a row. Rows come in no order.

    Args:
        spark: The session.
        store: The location.
        state: The catalog's state.
        chunks: Chunk ids.

    Raises:
        IncompleteError: A chunk is not completed; names them.
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
    for table in schema.tables:
        if any((chunk == UNTIMED_CHUNK) is (table.time_index is None) for chunk in chunks):
            files.setdefault(table.table_name, [])
    prepare_session(spark)
    return {name: _frame(spark, store, schema.table(name), found) for name, found in sorted(files.items())}


def _frame(spark: SparkSession, store: ObjectStore, table: Table, files: Sequence[DataFile]) -> DataFrame:
    arrow = pa.schema([pa.field(field.name, _spark_type(field.type)) for field in table.arrow_schema()])
    shared = tuple(files)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read_file(store, shared[number], arrow)

    schema = from_arrow_schema(arrow, prefer_timestamp_ntz=True)
    return spark.range(0, len(files), 1, max(1, len(files))).mapInArrow(read, schema)


def read_file(store: ObjectStore, file: DataFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield a data file's rows in the given schema: missing columns are NULL, dropped ones ignored.

    Raises:
        ChecksumMismatchError: The object's bytes are not those that were written; no row was yielded.
    """
    found, _ = hash_object(store, file.path)
    if found != file.sha256:
        raise ChecksumMismatchError(
            f"{file.path} has SHA-256 {found}; expected {file.sha256}.", object=file.path, expected=file.sha256
        )
    with store.open_reader(file.path) as source, pq.ParquetFile(source) as parquet:
        present = set(parquet.schema_arrow.names)
        for batch in parquet.iter_batches(_BATCH_ROWS, columns=[name for name in schema.names if name in present]):
            columns = [
                batch.column(field.name).cast(field.type)
                if field.name in present
                else pa.nulls(batch.num_rows, field.type)
                for field in schema
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _spark_type(arrow_type: pa.DataType) -> pa.DataType:
    """Return the Arrow type of Spark's nearest type that loses nothing."""
    if pa.types.is_fixed_size_binary(arrow_type) or pa.types.is_large_binary(arrow_type):
        return pa.binary()
    if pa.types.is_time(arrow_type) or pa.types.is_large_string(arrow_type) or pa.types.is_decimal256(arrow_type):
        return pa.string()
    widened = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20)}
    if arrow_type in widened:
        return widened[arrow_type]
    if pa.types.is_timestamp(arrow_type):
        return pa.timestamp("us", arrow_type.tz)
    return arrow_type
