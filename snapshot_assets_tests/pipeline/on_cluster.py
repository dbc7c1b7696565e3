"""A driver of `local-cluster`: an export and the frames of its chunks, with executors that lack this package.

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

from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.engine.reading.read import load_frames
from snapshot_assets.engine.runner import SparkRunner
from snapshot_assets.errors import TaskLostError
from snapshot_assets.pipeline.dagster.resources import Snapshots
from snapshot_assets.pipeline.dagster.spark_session import spark_resource
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets_tests.cli.helpers import make_plan, make_source

MASTER = "local-cluster[2,1,1024]"
SETTINGS = {
    "spark.master": MASTER,
    "spark.task.maxFailures": "1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


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
    process = os.getpid()
    for _ in range(2):  # the daemon, then its JVM
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(process, signal.SIGKILL)
    signal.pause()
    return []


def main(folder: Path, python: str) -> dict[str, Any]:
    """Export, load frames and lose an executor; returns what each found."""
    resource = spark_resource(**SETTINGS | {"spark.pyspark.python": python})
    spark = resource.spark_session
    found: dict[str, Any] = {
        "daemon": spark.conf.get("spark.python.daemon.module", None),
        "before": seen_by_executors(spark),
    }
    source, plan = make_source(folder / "source.duckdb"), make_plan("live", (folder / "location").as_uri())
    configuration = Configuration({"live": DatabaseAddress("live", source)}, plans=(plan,))
    snapshots = Snapshots(configuration, "run", lambda: resource.spark_session, master=MASTER)
    export = snapshots.open_export(plan.name)
    found["exported"] = [outcome.status for outcome in export.export(export.catalog.state.expected_chunks())]
    snapshots.close()
    state = export.catalog.refresh()
    frames = load_frames(spark, snapshots.store(plan.name), state, state.files.chunks())
    found["frames"] = {str(name): frame.count() for name, frame in frames.items()}
    found["after"] = seen_by_executors(spark)
    try:
        list(SparkRunner(lambda: spark).map(kill_executor, [1]))
    except TaskLostError as error:
        found["lost"] = str(error)
    spark.stop()
    return found


if __name__ == "__main__":
    sys.stdout.write(f"{json.dumps(main(Path(sys.argv[1]), sys.argv[2]))}\n")
