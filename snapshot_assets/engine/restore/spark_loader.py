"""Restores into a Spark catalog: the driver writes DataFrames, because a task has no Spark session."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from snapshot_assets.databases.open import kind_of, open_target
from snapshot_assets.databases.source import DatabaseAddress, Rows
from snapshot_assets.databases.spark.ledger import Claim, Contents
from snapshot_assets.databases.spark.sql import identifier
from snapshot_assets.databases.spark.target import SparkTarget
from snapshot_assets.databases.spark.types import batch_schema, spark_schema
from snapshot_assets.databases.target import RestoreTarget
from snapshot_assets.engine.executors import prepare_session
from snapshot_assets.engine.restore.decide import ChunkLoad
from snapshot_assets.engine.restore.loader import Loader
from snapshot_assets.engine.restore.tasks import FileResult, FileWork, batches_of
from snapshot_assets.engine.session import Session, spark_errors, task_frame
from snapshot_assets.errors import SnapshotError
from snapshot_assets.format.relations import Column, Table, TableName
from snapshot_assets.storage.base import ObjectStore

_AS_THEY_ARE = ("string", "char(", "varchar(")
"""Types that an insert converts from a string, checking its length; a cast would not check it."""


def is_spark(address: DatabaseAddress) -> bool:
    """Return whether a target is a Spark catalog."""
    return kind_of(address.uri) == "spark"


def open_restore_target(address: DatabaseAddress, session: Session | None) -> AbstractContextManager[RestoreTarget]:
    """Open a target of any kind, and close it at the end of the context.

    Args:
        address: Alias and URI.
        session: Returns the Spark session; called only for a Spark catalog.

    Raises:
        UnknownSourceError: The target is a Spark catalog, and there is no session; see also `open_target`.
    """
    if is_spark(address) and session is not None:
        return closing(SparkTarget(address, session()))
    return closing(open_target(address))


@dataclass(frozen=True)
class _Part:
    """The rows of one chunk for one table.

    Attributes:
        table: The table as the target holds it.
        rows: The chunk's rows in the target; None if they cannot be identified, because the table has no time index.
    """

    claim: Claim
    table: Table
    rows: Rows | None
    works: tuple[FileWork, ...]


@dataclass(frozen=True)
class SparkLoader(Loader):
    """A loader whose driver writes each table's rows of a chunk as one DataFrame."""

    session: Session | None = None

    def _load(self, loads: Sequence[ChunkLoad], works: Mapping[int, list[FileWork]]) -> list[FileResult]:
        assert self.session is not None  # the target could not be opened without one
        spark = prepare_session(self.session())
        target = SparkTarget(self.address, spark)
        parts = [part for load in loads for part in self._parts(spark, load, works[load.chunk.chunk])]
        claims = [part.claim for part in parts]
        if not claims:
            return []
        contents = target.claim(claims, self.record.id)
        results, done, begun = [], [], set[str]()
        try:
            for part in parts:
                with self.runner.jobs(spark):
                    begun.add(part.claim.id)
                    result = self._write(spark, target, part, contents)
                results.append(result)
                if result.rows is not None:
                    done.append(part.claim)
        finally:  # also of an interrupted run: the next one deletes only what was cut off
            try:
                target.note(done)
                target.withdraw([claim for claim in claims if claim.id not in begun])
            finally:
                target.release(claims)
        return results

    def _parts(self, spark: SparkSession, load: ChunkLoad, works: Sequence[FileWork]) -> Iterator[_Part]:
        by_table: dict[TableName, list[FileWork]] = {}
        for work in works:
            by_table.setdefault(work.table.table_name, []).append(work)
        bounds: dict[TableName, Rows | None] = {table.table_name: rows for table, rows in load.chunk.tables}
        for name, rows in (dict.fromkeys(by_table) | bounds).items():
            mine = by_table.get(name, [])
            if mine or load.replace:
                counted = tuple(self._counted(spark, work) for work in mine)
                claim = Claim(
                    uuid.uuid4().hex,
                    self.record.location_id,
                    name,
                    load.chunk.chunk,
                    tuple(work.entry for work in counted),
                    load.replace,
                )
                yield _Part(claim, self.tables[name], rows, counted)

    def _counted(self, spark: SparkSession, work: FileWork) -> FileWork:
        """Return the work with the number of rows that will be inserted, which is less than the file's if it is cut."""
        rows = work.plan.file.rows
        if not work.plan.whole:
            with self.runner.jobs(spark), spark_errors():
                rows = _frame(spark, self.store, [work]).count()
        return replace(work, entry=replace(work.entry, rows=rows))

    def _write(self, spark: SparkSession, target: SparkTarget, part: _Part, contents: Contents) -> FileResult:
        claim = part.claim
        try:
            alone = not self.record.into_nonempty
            if not target.clear(claim, part.table, part.rows, contents, alone=alone):
                return FileResult(claim.chunk)
            with spark_errors():
                target.write(claim, self._rows(spark, target, part))
        except SnapshotError as error:
            return FileResult(claim.chunk, error=error)
        return FileResult(claim.chunk, sum(file.rows for file in claim.files))

    def _rows(self, spark: SparkSession, target: SparkTarget, part: _Part) -> DataFrame:
        """Return a part's rows in the types and the order of the table's columns."""
        order = target.columns(part.table)
        columns = {column.name: column for column in part.table.columns}
        kinds: dict[pa.Schema, list[FileWork]] = {}
        for work in part.works:  # files with different carriers are read separately
            kinds.setdefault(_schema(work.table), []).append(work)
        frames = [_frame(spark, self.store, works) for works in kinds.values()]
        if not frames:
            frames = [spark.createDataFrame([], spark_schema(_schema(part.table)))]
        whole = [frame.selectExpr(*(_selected(columns[name]) for name in order)) for frame in frames]
        return reduce(DataFrame.unionAll, whole)


def _selected(column: Column) -> str:
    name = identifier(column.name)
    return name if column.type.startswith(_AS_THEY_ARE) else f"CAST({name} AS {column.type}) AS {name}"


def _schema(table: Table) -> pa.Schema:
    return batch_schema([column.arrow_field() for column in table.columns])


def _frame(spark: SparkSession, store: ObjectStore, works: Sequence[FileWork]) -> DataFrame:
    """Return the restored rows of files that have one schema."""
    schema = _schema(works[0].table)
    return task_frame(spark, works, spark_schema(schema), lambda work: batches_of(store, work.plan, work.table, schema))
