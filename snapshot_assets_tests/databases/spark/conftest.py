"""A namespace of the session's Spark catalog to restore into."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from snapshot_assets.databases.source import DatabaseAddress
from snapshot_assets.databases.spark.ledger import Ledger
from snapshot_assets.databases.spark.target import SparkTarget
from snapshot_assets.engine.restore.loader import ChunkOutcome
from snapshot_assets.engine.restore.run import RestoreRun
from snapshot_assets.engine.restore.settings import Filters, RestoreSettings
from snapshot_assets.engine.retry import RetryPolicy
from snapshot_assets.engine.runner import InlineRunner
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import IN_RANGE, unequal_rows
from snapshot_assets_tests.faults.source import TIMES


class Lake:
    """A namespace of the session's catalog, and imports into it."""

    uri = "spark:spark_catalog.restored"

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    @property
    def target(self) -> SparkTarget:
        return SparkTarget(DatabaseAddress("lake", self.uri), self.spark)

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.spark, "lake", ("spark_catalog", "restored", "snapshot_assets_ledger"))

    def run(self, place: Place, filters: Filters | None = None, **settings: bool) -> RestoreRun:
        return RestoreRun(
            place.store,
            DatabaseAddress("lake", self.uri),
            InlineRunner(),
            RestoreSettings(filters or Filters(), **settings),
            retry=RetryPolicy(base=0),
            session=lambda: self.spark,
        )

    def restore(
        self, place: Place, *chunks: int, tables: tuple[TableName, ...] = (), **settings: bool
    ) -> dict[int, ChunkOutcome]:
        run = self.run(place, Filters(tables=tables), **settings)
        run.begin(chunks)
        outcomes = {each.chunk: each for each in run.restore()}
        run.finish()
        return outcomes

    def table(self, name: str) -> pa.Table:
        self.spark.sql(f"REFRESH TABLE restored.{name}")
        return self.spark.table(f"restored.{name}").toArrow()

    def differences(
        self, source: str, where: dict[str, str] = IN_RANGE, tables: Iterable[str] = TIMES
    ) -> dict[str, list[tuple]]:
        """Return, by table, the rows that source and target do not have equally often."""
        return unequal_rows(source, {table: self.table(table) for table in tables}, where)


@pytest.fixture
def lake(spark: SparkSession) -> Iterator[Lake]:
    yield Lake(spark)
    spark.sql("DROP DATABASE IF EXISTS restored CASCADE")
