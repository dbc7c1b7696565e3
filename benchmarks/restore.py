"""Restore of one PostgreSQL table, against `psql \\copy … from (format binary)` of the same rows, neither with indexes.

Prints medians of ratios from interleaved runs, as `benchmarks.export` does: psql's seconds over ours. Ours includes
reading and verifying the snapshot, the ledger, and the check of row counts, and excludes the start of Spark.
Two tables: one whose columns the driver writes directly, one with columns that go through a staging table.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.export import peak_memory, timed
from benchmarks.sessions import benchmark_session
from snapshot_assets.engine.export.run import ExportRun
from snapshot_assets.engine.restore.run import RestoreRun
from snapshot_assets.engine.runner import SparkRunner
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.open import open_store
from snapshot_assets_tests.servers.postgresql import PostgresqlServer, start_postgresql

_COLUMNS = {
    "native": "ts timestamptz NOT NULL, device int NOT NULL, site text NOT NULL, status smallint,"
    " temperature double precision, humidity double precision, pressure real, energy bigint",
    "staged": "ts timestamptz NOT NULL, device int NOT NULL, site text NOT NULL, took interval, reading numeric(12,4),"
    " source inet, id uuid",
}
_VALUES = {
    "native": "i % 1000, 'site-' || (i % 40), (i % 7)::smallint, round((20 + random())::numeric, 2), random() * 100,"
    " 1000 + (i % 500) / 10.0, i * 3",
    "staged": "i % 1000, 'site-' || (i % 40), (i % 5000) * interval '1 second', (i % 100000) / 7.0,"
    " '10.0.0.0'::inet + (i % 65536), gen_random_uuid()",
}


def snapshot(server: PostgresqlServer, spark: SparkSession, kind: str, rows: int, folder: Path) -> ObjectStore:
    """Make a table, its snapshot, and its binary copy."""
    uri = server.create_database()
    server.psql_script(
        uri,
        f"CREATE TABLE metrics ({_COLUMNS[kind]}); INSERT INTO metrics SELECT '2025-01-01T00:00:00Z'::timestamptz"
        f" + i * interval '10 ms', {_VALUES[kind]} FROM generate_series(0, {rows} - 1) AS i; VACUUM ANALYZE metrics;",
    )
    plan = Plan(
        name="bench",
        source=uri,
        to=f"file://{folder}/{kind}",
        start_time="2025-01-01T00:00:00Z",
        end_time="2026-01-01T00:00:00Z",
        chunk_time_window="365d",
    )
    store = open_store(parse_location(plan.to))
    run = ExportRun(plan, Configuration().source(uri), store, SparkRunner(lambda: spark), "bench", most_parts=2)
    with run.open() as opened:
        list(opened.export([0, 1]))
        opened.seal()
    timed([str(server.bin / "psql"), uri, "-Xqc", rf"\copy metrics to '{folder}/{kind}.bin' (format binary)"])
    return store


def ours(server: PostgresqlServer, spark: SparkSession, store: ObjectStore) -> float:
    """One import into a fresh database."""
    address = Configuration().source(server.create_database())
    started = time.perf_counter()
    run = RestoreRun(store, address, SparkRunner(lambda: spark), slots=2)
    list(run.restore())
    assert run.finish()
    assert all(expected == found for expected, found in run.check_counts().values())
    return time.perf_counter() - started


def psql(server: PostgresqlServer, kind: str, folder: Path) -> float:
    """One copy into a fresh database, the table's making included."""
    uri = server.create_database()
    command = rf"\copy metrics from '{folder}/{kind}.bin' (format binary)"
    return timed([str(server.bin / "psql"), uri, "-Xqc", f"CREATE TABLE metrics ({_COLUMNS[kind]})", "-c", command])


def main() -> None:
    """Run the rounds and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    spark = benchmark_session()
    folder = Path(tempfile.mkdtemp(prefix="snapshot-bench-"))
    try:
        with start_postgresql() as server:
            for kind in _COLUMNS:
                store = snapshot(server, spark, kind, options.rows, folder)
                ours(server, spark, store)
                rounds = [(ours(server, spark, store), psql(server, kind, folder)) for _ in range(options.rounds)]
                ratios = [theirs / own for own, theirs in rounds]
                rate = options.rows / statistics.median(own for own, _ in rounds)
                print(
                    f"{kind}: largest worker so far {peak_memory()} MiB; {rate:,.0f} rows/s, psql's seconds / ours"
                    f" {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
                )
    finally:
        spark.stop()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
