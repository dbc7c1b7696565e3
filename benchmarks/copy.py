"""Copies of PostgreSQL tables as CSV, JSON lines and Parquet, and a restore from CSV, against psql.

Prints medians of ratios from interleaved runs, as `benchmarks.export` does: psql's seconds over ours. Ours includes
hashing, receipts, the seal and the upload, and excludes the start of Spark. Two tables: readings of numbers, and rows
of other types, which the database or Python has to write as text. Locations: local disk, and a local S3 server,
beside psql piped into obstore's multipart upload.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import obstore
from obstore.store import S3Store
from pyspark.sql import SparkSession

from benchmarks.export import measure_once, timed
from benchmarks.sessions import benchmark_session
from snapshot_assets.engine.export.copy import copy
from snapshot_assets.engine.export.run import ExportRun
from snapshot_assets.engine.restore.run import RestoreRun
from snapshot_assets.engine.runner import SparkRunner
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import StoreOptions, open_store
from snapshot_assets_tests.servers.postgresql import PostgresqlServer, start_postgresql
from snapshot_assets_tests.servers.s3 import S3Server, start_s3

_COLUMNS = {
    "readings": "ts timestamptz NOT NULL, device int NOT NULL, site text NOT NULL, status smallint,"
    " temperature double precision, humidity double precision, pressure real, energy bigint",
    "orders": "id uuid NOT NULL, placed timestamp NOT NULL, day date, amount numeric(12,4), note text, tags text[],"
    " details jsonb, took interval, source inet, paid boolean",
}
_VALUES = {
    "readings": "'2025-01-01T00:00:00Z'::timestamptz + i * interval '10 ms', i % 1000, 'site-' || (i % 40),"
    " (i % 7)::smallint, round((20 + 10 * sin(i / 50000.0) + random())::numeric, 2), random() * 100,"
    " 1000 + (i % 500) / 10.0, i * 3",
    "orders": "gen_random_uuid(), '2025-01-01'::timestamp + i * interval '1 s', '2025-01-01'::date + i % 365,"
    " (i % 1000000) / 7.0, CASE i % 5 WHEN 0 THEN NULL WHEN 1 THEN 'said \"yes\", then no' ELSE 'note ' || i END,"
    " ARRAY['a' || i % 10, NULL], jsonb_build_object('n', i, 'name', 'item-' || (i % 100)),"
    " (i % 5000) * interval '1 second', '10.0.0.0'::inet + (i % 65536), i % 3 = 0",
}
_FORMATS = {
    "csv": {"format": "csv"},
    "csv, gzip": {"format": "csv", "format_options": {"compression": "gzip"}},
    "csv, zstd": {"format": "csv", "format_options": {"compression": "zstd"}},
    "json": {"format": "json"},
    "parquet": {"format": "parquet"},
}
_PIPES = {"csv, gzip": "gzip -1", "csv, zstd": "zstd -q"}

Pair = tuple[Callable[[Path], float], Callable[[Path], float]]


def make_table(server: PostgresqlServer, kind: str, rows: int) -> str:
    """Make a database with the table `metrics`; returns its URI."""
    uri = server.create_database()
    script = f"INSERT INTO metrics SELECT {_VALUES[kind]} FROM generate_series(0, {rows} - 1) AS i"
    server.psql_script(uri, f"CREATE TABLE metrics ({_COLUMNS[kind]}); {script}; VACUUM ANALYZE metrics;")
    return uri


def ours(uri: str, spark: SparkSession, name: str, to: str, options: StoreOptions, target: Path) -> float:
    """Copy the table, up to the seal."""
    location = f"{to}/{target.name}" if to else f"file://{target}/copy"
    plan = Plan(name="bench", kind="query", query="public.metrics", source=uri, to=location, **_FORMATS[name])
    store = open_store(parse_location(location), options)
    started = time.perf_counter()
    run = ExportRun(plan, Configuration().source(uri), store, SparkRunner(lambda: spark), "bench", most_parts=2)
    assert copy(run).sealed
    return time.perf_counter() - started


def psql(server: PostgresqlServer, uri: str, name: str, target: Path) -> float:
    """Let psql write the table to a file, through a compressor where the format has one."""
    program, file = str(server.bin / "psql"), target / "metrics"
    if name == "json":
        query = "SELECT row_to_json(m) FROM metrics m"
        return timed([program, uri, "-XAtqc", query, "-v", "FETCH_COUNT=10000", "-o", str(file)])
    if name in _PIPES:
        copied = f"'{program}' '{uri}' -Xqc 'COPY metrics TO STDOUT (FORMAT csv)' | {_PIPES[name]} > '{file}'"
        return timed(["bash", "-o", "pipefail", "-c", copied])
    return timed([program, uri, "-Xqc", rf"\copy metrics to '{file}' (format csv)"])


def bucket_of(s3: S3Server) -> S3Store:
    """Return the server's bucket for obstore."""
    return S3Store(
        s3.bucket,
        endpoint=s3.options.endpoint,
        region=s3.options.region,
        access_key_id=s3.options.access_key_id,
        secret_access_key=s3.options.secret_access_key,
        client_options={"allow_http": True},
    )


def psql_to_s3(server: PostgresqlServer, uri: str, store: S3Store, target: Path) -> float:
    """Upload what psql writes as one object, in parts."""
    started = time.perf_counter()
    command = [str(server.bin / "psql"), uri, "-Xqc", "COPY metrics TO STDOUT (FORMAT csv)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        obstore.put(store, f"psql/{target.name}.csv", iter(partial(process.stdout.read, 1 << 20), b""))
    assert process.returncode == 0
    return time.perf_counter() - started


def restored(server: PostgresqlServer, spark: SparkSession, store: ObjectStore, _: Path) -> float:
    """Import the copy into a new database."""
    address = Configuration().source(server.create_database())
    started = time.perf_counter()
    run = RestoreRun(store, address, SparkRunner(lambda: spark), slots=2)
    list(run.restore())
    assert run.finish()
    return time.perf_counter() - started


def loaded(server: PostgresqlServer, kind: str, file: Path, _: Path) -> float:
    """Let psql load the CSV file into a new database, the table's making included."""
    command = rf"\copy metrics from '{file}' (format csv)"
    table = f"CREATE TABLE metrics ({_COLUMNS[kind]})"
    return timed([str(server.bin / "psql"), server.create_database(), "-Xqc", table, "-c", command])


@contextmanager
def restores(server: PostgresqlServer, spark: SparkSession, kind: str, uri: str, folder: Path) -> Iterator[Pair]:
    """Yield the two ways to load a table from CSV."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        target = Path(name)
        ours(uri, spark, "csv", "", StoreOptions(), target)
        psql(server, uri, "csv", target)
        store = open_store(parse_location(f"file://{target}/copy"))
        yield partial(restored, server, spark, store), partial(loaded, server, kind, target / "metrics")


def compare(label: str, pair: Pair, folder: Path, rounds: int, rows: int) -> None:
    """Run both once unmeasured, then once a round, and print the ratios."""
    own, other = pair
    sizes = [measure_once(run, folder)[1] for run in pair]
    taken = [(measure_once(own, folder)[0], measure_once(other, folder)[0]) for _ in range(rounds)]
    ratios = [theirs / mine for mine, theirs in taken]
    rate = rows / statistics.median(mine for mine, _ in taken)
    spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
    print(
        f"{label:<28}{rate:>14,.0f}{spread:>22}{sizes[0] / (1 << 20):>10.1f}{sizes[1] / (1 << 20):>10.1f}", flush=True
    )


def main() -> None:
    """Run the rounds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="a part of the names of what is measured, such as `csv`")
    options = parser.parse_args()
    spark = benchmark_session()
    folder = Path(tempfile.mkdtemp(prefix="snapshot-bench-"))
    print(f"{options.rows:,} rows, {options.rounds} rounds")
    print(f"{'what':<28}{'our rows/s':>14}{'psql seconds / ours':>22}{'MB':>10}{'its MB':>10}")
    try:
        (folder / "s3").mkdir()
        with start_postgresql() as server, start_s3(folder / "s3") as s3:
            for kind in _COLUMNS:
                uri = make_table(server, kind, options.rows)
                pairs: dict[str, Pair] = {
                    f"{kind}: {name}": (
                        partial(ours, uri, spark, name, "", StoreOptions()),
                        partial(psql, server, uri, name),
                    )
                    for name in _FORMATS
                }
                pairs[f"{kind}: csv to S3"] = (
                    partial(ours, uri, spark, "csv", f"s3://{s3.bucket}/{kind}", s3.options),
                    partial(psql_to_s3, server, uri, bucket_of(s3)),
                )
                with restores(server, spark, kind, uri, folder) as pair:
                    for label, each in (pairs | {f"{kind}: restore from csv": pair}).items():
                        if options.only in label:
                            compare(label, each, folder, options.rounds, options.rows)
    finally:
        spark.stop()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
