"""A driver of `local-cluster`: everything that a plan does in Spark, with executors that lack this package.

Run as `python -m snapshot_assets_tests.pipeline.on_cluster FOLDER EXECUTORS_PYTHON`; its last line is JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import snapshot_assets
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.engine.compact.options import CompactionOptions
from snapshot_assets.engine.compact.plan import plan_compaction
from snapshot_assets.engine.reading.read import load_frames
from snapshot_assets.engine.runner import SparkRunner
from snapshot_assets.errors import TaskLostError
from snapshot_assets.format.relations import TableName
from snapshot_assets.pipeline.dagster.resources import Snapshots
from snapshot_assets.pipeline.dagster.spark_session import spark_resource
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets_tests.catalog.execute import delete_rows
from snapshot_assets_tests.cli.helpers import make_plan, make_source

MASTER = "local-cluster[2,1,1024]"
SETTINGS = {
    "spark.master": MASTER,
    "spark.task.maxFailures": "1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
READINGS = TableName("main", "readings")


def seen_by_executors(spark: SparkSession) -> list[str]:
    """Return where a task's interpreter lies, and where it finds this package, or that it does not."""

    def look(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import sys

        try:
            import snapshot_assets

            found = str(snapshot_assets.__file__)
        except ImportError as error:
            found = str(error)
        yield pa.RecordBatch.from_pydict({"seen": [sys.executable, found]})

    return sorted({row.seen for row in spark.range(1).repartition(1).mapInArrow(look, "seen string").collect()})


def kill_executor(_: int) -> list[int]:
    """End the JVM that has started this worker's daemon."""

    def parent(process: int) -> int:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])

    os.kill(parent(os.getppid()), signal.SIGKILL)
    signal.pause()
    return []


def message_of_a_lost_executor(spark: SparkSession) -> str:
    try:
        list(SparkRunner(lambda: spark).map(kill_executor, [1]))
    except TaskLostError as error:
        return str(error)
    return ""


def compacted_rows(snapshots: Snapshots, plan: str) -> int:
    """Compact the readings, seal them, and return how many deleted rows were left out."""
    catalog = Catalog.open_for_writing(snapshots.store(plan))
    compaction = plan_compaction(catalog.store, catalog.require_snapshot(), CompactionOptions(tables=(READINGS,)))
    compacted = list(snapshots.compact_run(plan, catalog).execute(compaction))
    seal(Catalog.open_for_writing(snapshots.store(plan)))
    return sum(each.rows_deleted for each in compacted)


def main(folder: Path, python: str) -> dict[str, Any]:
    """Export, read, delete rows, compact, restore and lose an executor; returns what each found."""
    resource = spark_resource(**SETTINGS | {"spark.pyspark.python": python})
    spark = resource.spark_session
    found: dict[str, Any] = {
        "daemon": spark.conf.get("spark.python.daemon.module", None),
        "before": seen_by_executors(spark),
    }
    source = make_source(folder / "source.duckdb")
    plan = make_plan("live", (folder / "location").as_uri(), target="copy", parallelism=2)
    copy = DatabaseAddress("copy", f"duckdb://{folder / 'copy.duckdb'}")
    configuration = Configuration({"live": DatabaseAddress("live", source), "copy": copy}, plans=(plan,))
    snapshots = Snapshots(configuration, "run", lambda: resource.spark_session, master=MASTER)

    export = snapshots.open_export(plan.name)
    found["exported"] = [outcome.status for outcome in export.export(export.catalog.state.expected_chunks())]
    export.seal()
    snapshots.close()

    snapshot_assets.register(spark)
    reader = spark.read.format("snapshot").option("table", "main.readings")
    found["read"] = reader.load(plan.to).count()
    found["part"] = reader.option("start", "2025-01-02T12:00:00Z").load(plan.to).count()
    state = export.catalog.refresh()
    frames = load_frames(spark, snapshots.store(plan.name), state, state.files.chunks())
    found["frames"] = {str(name): frame.count() for name, frame in frames.items()}

    catalog = Catalog.open_for_writing(snapshots.store(plan.name))
    delete_rows(catalog, READINGS, "value < 30")
    seal(catalog)
    found["left"] = spark.read.format("snapshot").option("table", "main.readings").load(plan.to).count()
    found["compacted"] = compacted_rows(snapshots, plan.name)

    restored = snapshots.restore_run(plan.name)
    found["restored"] = sum(outcome.rows for outcome in restored.restore())
    restored.finish()
    found["after"] = seen_by_executors(spark)
    found["lost"] = message_of_a_lost_executor(spark)
    spark.stop()
    return found


if __name__ == "__main__":
    sys.stdout.write(f"{json.dumps(main(Path(sys.argv[1]), sys.argv[2]))}\n")
