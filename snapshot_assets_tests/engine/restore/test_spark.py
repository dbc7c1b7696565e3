"""Which rows the driver writes into a Spark catalog; needs no catalog."""

from __future__ import annotations

from typing import cast

from pyspark.sql import SparkSession

from snapshot_assets.databases.source import AllRows, DatabaseAddress
from snapshot_assets.databases.target import LoadedFile, RestoreRecord
from snapshot_assets.engine.restore.files import ChunkFiles, FilePlan
from snapshot_assets.engine.restore.loader import ChunkLoad
from snapshot_assets.engine.restore.spark_loader import SparkLoader
from snapshot_assets.engine.restore.tasks import FileWork
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.relations import Column, Table, TableName
from snapshot_assets.storage.base import ObjectStore

NOTES, READINGS = TableName("main", "notes"), TableName("main", "readings")


def test_a_window_s_files_of_timed_and_untimed_tables_are_loaded_together() -> None:
    table = Table(schema="main", name="notes", columns=(Column(name="note", type="string", arrow_type="string"),))
    timed = table.model_copy(update={"name": "readings", "time_index": "note"})
    record = RestoreRecord("a" * 32, "0" * 32, "file:///x", 1, "c" * 64, "{}", (NOTES, READINGS))
    works = []
    for each in (timed, table):
        path = f"data/1/{each.table_name}.parquet"
        file = DataFile(path, "main", each.name, 1, "0" * 8, 2, 9, "f" * 64, 1, 0)
        entry = LoadedFile(record.location_id, each.table_name, path, 1, file.sha256, record.id)
        works.append(FileWork(FilePlan(file, each), each, entry))
    chunk = ChunkFiles(1, tuple(work.plan for work in works), ((timed, AllRows()),))
    loader = SparkLoader(
        cast(ObjectStore, None),
        DatabaseAddress("lake", "spark:spark_catalog"),
        None,
        record,
        {NOTES: table, READINGS: timed},
        {},
    )
    parts = list(loader._parts(cast(SparkSession, None), ChunkLoad(chunk, chunk.files), works))
    assert {part.claim.table: part.rows for part in parts} == {READINGS: AllRows(), NOTES: None}
    assert [file.rows for part in parts for file in part.claim.files] == [2, 2]
