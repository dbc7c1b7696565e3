"""What a tiny chunk costs: 1,000 windows in one run at parallelism 4, above the bare scans of the same windows.

Prints milliseconds a chunk: the bare scan on one connection, the export, and the difference.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.sessions import benchmark_session
from snapshot_assets.databases.open import open_database
from snapshot_assets.databases.protocol.source import Scan, Selection, WindowRows
from snapshot_assets.engine.export.run import ExportRun
from snapshot_assets.engine.runner import SparkRunner
from snapshot_assets.format.windows import plan_windows
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.servers.postgresql import start_postgresql

_START = datetime(2025, 1, 1, tzinfo=UTC)
_TABLE = """
    CREATE TABLE m AS SELECT '2025-01-01T00:00:00Z'::timestamptz + i * interval '1 minute' AS t, i, random() AS v
    FROM generate_series(0, {rows} - 1) AS i;
    CREATE INDEX ON m (t);
    VACUUM ANALYZE m;
"""


def main() -> None:
    """Run the rounds and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    spark = benchmark_session()
    with start_postgresql() as server, tempfile.TemporaryDirectory() as folder:
        uri = server.create_database()
        server.psql_script(uri, _TABLE.format(rows=options.chunks * 60))
        plan = Plan(
            name="tiny",
            source=uri,
            to=f"file://{folder}/warm/up",
            start_time=_START,
            end_time=_START + timedelta(hours=options.chunks),
            chunk_time_window="1h",
            parallelism=4,
        )
        export(plan, spark, options.chunks)
        taken = []
        for number in range(options.rounds):
            changed = plan.changed(to=f"file://{Path(folder) / str(number)}/m")
            taken.append((bare(changed), export(changed, spark, options.chunks)))
    spark.stop()
    scans = 1000 * statistics.median(scan for scan, _ in taken) / options.chunks
    exports = 1000 * statistics.median(whole for _, whole in taken) / options.chunks
    above = 1000 * statistics.median(whole - scan for scan, whole in taken) / options.chunks
    print(f"{options.chunks} chunks: bare scan {scans:.1f} ms, export {exports:.1f} ms, above {above:.1f} ms a chunk")


def bare(plan: Plan) -> float:
    """Scan every window on one connection, keeping nothing; returns seconds."""
    database = open_database(Configuration().source(plan.source))
    table = database.extract(Selection()).tables[0]
    assert plan.start_time is not None
    assert plan.end_time is not None
    started = time.perf_counter()
    for window in plan_windows(plan.start_time, plan.end_time, plan.chunk_time_window):
        with database.scan(Scan(table, WindowRows(window.start, window.end))) as batches:
            for _ in batches:
                pass
    taken = time.perf_counter() - started
    database.close()
    return taken


def export(plan: Plan, spark: SparkSession, chunks: int) -> float:
    """Export every window; returns seconds."""
    address = Configuration().source(plan.source)
    run = ExportRun(plan, address, open_store(parse_location(plan.to)), SparkRunner(lambda: spark), "bench")
    started = time.perf_counter()
    with run.open() as opened:
        assert len(list(opened.export(range(1, chunks + 1)))) == chunks
        return time.perf_counter() - started


if __name__ == "__main__":
    main()
