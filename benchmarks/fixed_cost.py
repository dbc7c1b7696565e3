"""What an export costs that does not depend on its rows: from the opening of the source to the first row, and after it.

A table of PostgreSQL goes to the local disk with a Spark session that has run tasks before. Prints the medians of both
parts and the shortest, which other programs disturb least, and the spans of the median round.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.sessions import benchmark_session
from snapshot_assets.engine.export.run import ExportRun
from snapshot_assets.engine.runner import SparkRunner
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.plan.plan import Plan
from snapshot_assets.spans import Span, Spans, recording
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.servers.postgresql import start_postgresql

_START = datetime(2025, 1, 1, tzinfo=UTC)
_TABLE = """
    CREATE TABLE m AS SELECT '2025-01-01T00:00:00Z'::timestamptz + i * interval '1 minute' AS t, i, random() AS v
    FROM generate_series(0, 1439) AS i;
    CREATE INDEX ON m (t);
    VACUUM ANALYZE m;
"""


def main() -> None:
    """Run the rounds and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    spark = benchmark_session()
    with start_postgresql() as server, tempfile.TemporaryDirectory() as folder:
        uri = server.create_database()
        server.psql_script(uri, _TABLE)
        plans = [
            Plan(
                name="fixed",
                source=uri,
                to=f"file://{Path(folder) / str(number)}/m",
                start_time=_START,
                end_time=_START + timedelta(days=1),
                chunk_time_window="1d",
            )
            for number in range(options.rounds + 1)
        ]
        runner = SparkRunner(lambda: spark)
        rounds = [export(plan, runner) for plan in plans][1:]  # the first one imports modules
        runner.close()
    spark.stop()
    for part in (0, 1):
        ordered = sorted(rounds, key=lambda each, part=part: _length(each[0][part]))
        name, begin, end = ordered[len(ordered) // 2][0][part]
        median, least = _length(ordered[len(ordered) // 2][0][part]), _length(ordered[0][0][part])
        processor = statistics.median(each[2] for each in rounds)
        print(
            f"{name}: {median:.3f} s, at least {least:.3f} s; {processor:.3f} s of the driver's processor time in all"
        )
        for each in sorted(ordered[len(ordered) // 2][1], key=lambda span: span.start):
            if begin <= each.start < end:
                print(f"  {(each.start - begin) / 1e6:7.1f} ms {(each.end - each.start) / 1e6:7.1f} ms {each.name}")


def _length(part: tuple[str, int, int]) -> float:
    return (part[2] - part[1]) / 1e9


def export(plan: Plan, runner: SparkRunner) -> tuple[list[tuple[str, int, int]], list[Span], float]:
    """Export and seal; returns both parts with their ends, all spans, and the seconds of processor time."""
    run = ExportRun(plan, Configuration().source(plan.source), open_store(parse_location(plan.to)), runner, "bench")
    processor = time.process_time()
    with recording() as spans, run.open() as opened:
        assert len(list(opened.export([1, 0]))) == 2
        opened.seal()
    processor = time.process_time() - processor
    return list(_parts(spans)), spans, processor


def _parts(spans: Spans) -> list[tuple[str, int, int]]:
    opened = min(each.start for each in spans if each.name == "connect")
    reads = [each for each in spans if each.name == "read"]
    last = max(each.end for each in spans if each.name == "commit")
    return [
        ("open to first row", opened, min(each.end for each in reads)),
        ("last row to last commit", max(each.end for each in reads), last),
    ]


if __name__ == "__main__":
    main()
