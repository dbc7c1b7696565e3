"""Export of a Parquet table of Spark's catalog by one executor, and by two: how much a second machine gains.

The source is Parquet on the local disk, read by the executors themselves, so no server is the bottleneck. Each executor
is a process of its own (`local-cluster`) with one task at a time, pinned with its Python worker to one processor, as a
machine with one core is. With two executors, the driver and the disk share their two processors: what they take is
printed. The start of Spark, and one small export that warms the executors up, are not measured.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil
from pyspark.sql import SparkSession

from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.engine.export.run import ExportRun
from snapshot_assets.engine.runner import SparkRunner
from snapshot_assets.pipeline.dagster.spark_session import spark_resource
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store

_CHUNKS = 12
_EXECUTOR = "CoarseGrainedExecutorBackend"
_ROWS = """
    SELECT timestamp_seconds(unix_seconds(timestamp '2025-01-01') + id * {seconds} div {rows}) AS ts,
           cast(id % 1000 AS int) AS device, concat('site-', id % 40) AS site, cast(id % 7 AS smallint) AS status,
           round(20 + 10 * sin(id / 50000) + rand(1), 2) AS temperature, round(rand(2) * 100, 1) AS humidity,
           cast(1000 + (id % 500) / 10 AS float) AS pressure, id * 3 AS energy
    FROM range(0, {rows}, 1, {chunks})
"""


def session(executors: int, folder: Path) -> SparkSession:
    """Start a session with one-core executors, its warehouse in a folder."""
    settings = {
        "spark.master": f"local-cluster[{executors},1,2048]",
        "spark.executor.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.files.maxPartitionBytes": "1g",  # a file, which is a day, is one task
    }
    started: SparkSession = spark_resource(**settings).spark_session
    return started


def make_tables(spark: SparkSession, folder: Path, rows: int) -> None:
    """Write the measured table, a file for each of twelve days, and a small one."""
    for name, count in (("metrics", rows), ("warm", 1200)):
        query = _ROWS.format(rows=count, seconds=_CHUNKS * 86_400, chunks=_CHUNKS)
        spark.sql(query).write.parquet(str(folder / "tables" / name))


def pinned_executors(count: int) -> list[psutil.Process]:
    """Pin each executor, with all its threads and what they start, to one processor; returns the executors."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # a zombie is none, too
            found += [process] if _EXECUTOR in " ".join(process.cmdline()) else []
    assert len(found) == count, found
    for number, executor in enumerate(found):
        for thread in Path(f"/proc/{executor.pid}/task").iterdir():
            with suppress(ProcessLookupError):  # it ended
                os.sched_setaffinity(int(thread.name), {number})
    return found


def processor_seconds(processes: list[psutil.Process]) -> float:
    """Return the processor time of processes and of what runs below them."""
    total = 0.0
    for process in processes:
        for each in (process, *process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                total += sum(each.cpu_times()[:2])
    return total


def export(spark: SparkSession, folder: Path, table: str) -> float:
    """Export all windows of a table, side by side; returns the seconds to the last commit."""
    target = Path(tempfile.mkdtemp(dir=folder))
    plan = Plan(
        name="bench",
        source="lake",
        to=target.as_uri(),
        tables=[f"{table}.{table}"],
        start_time="2025-01-01T00:00:00Z",
        end_time=f"2025-01-{_CHUNKS + 1}T00:00:00Z",
        parallelism=4,
    )
    address = DatabaseAddress("lake", f"spark:spark_catalog.{table}")
    runner = SparkRunner(lambda: spark)
    started = time.perf_counter()
    with ExportRun(
        plan, address, open_store(parse_location(plan.to)), runner, "bench", session=lambda: spark
    ).open() as run:
        outcomes = list(run.export(range(1, _CHUNKS + 1)))
    took = time.perf_counter() - started
    assert [outcome.error for outcome in outcomes] == [None] * _CHUNKS, outcomes
    runner.close()
    shutil.rmtree(target)
    return took


def measure(executors: int, folder: Path) -> dict[str, float]:
    """Export once with a number of executors; returns the seconds, and the processor time of each side."""
    spark = session(executors, folder)
    for table in ("metrics", "warm"):
        spark.sql(f"CREATE DATABASE {table}")
        spark.sql(f"CREATE TABLE {table}.{table} USING parquet LOCATION '{folder / 'tables' / table}'")
    export(spark, folder, "warm")
    processes = pinned_executors(executors)
    export(spark, folder, "warm")
    before, everything = processor_seconds(processes), processor_seconds([psutil.Process()])
    seconds = export(spark, folder, "metrics")
    workers = processor_seconds(processes) - before
    return {
        "seconds": seconds,
        "executors": workers,
        "driver": processor_seconds([psutil.Process()]) - everything - workers,
    }


def measured(executors: int, folder: Path) -> dict[str, float]:
    """Return what `measure` finds in a process of its own: a process has one session."""
    command = [sys.executable, "-m", "benchmarks.scale_out", "--executors", str(executors), "--folder", str(folder)]
    loopback = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=loopback)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Run the rounds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=12_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--executors", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.executors:
        print(json.dumps(measure(options.executors, options.folder)))
        return
    folder = Path(tempfile.mkdtemp(prefix="snapshot-bench-"))
    try:
        spark = spark_resource(**{"spark.master": "local[2]"}).spark_session
        make_tables(spark, folder, options.rows)
        spark.stop()
        rounds = [(measured(1, folder), measured(2, folder)) for _ in range(options.rounds)]
    finally:
        shutil.rmtree(folder)
    report(rounds)


def report(rounds: list[tuple[dict[str, float], dict[str, float]]]) -> None:
    """Print the medians for one and two executors, and the ratio of their seconds."""
    for number, name in enumerate(("one executor", "two executors")):
        medians = {key: statistics.median(each[number][key] for each in rounds) for key in rounds[0][number]}
        print(
            f"{name}: {medians['seconds']:.1f} s; processor time: executors {medians['executors']:.1f} s, "
            f"driver {medians['driver']:.1f} s"
        )
    ratios = [one["seconds"] / two["seconds"] for one, two in rounds]
    print(f"scale-out: {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})")


if __name__ == "__main__":
    main()
