"""Reading a snapshot in Spark, beside plain `spark.read.parquet` of the same files: count, two columns, full scan.

Prints medians of ratios from interleaved runs: plain Spark's seconds over ours, so above 1 we are faster. Each kind of
read runs three ways: `read` natively (its files were hashed before), `read` natively with its hashing, and the Python
source with its hashing, `spark.read.format("snapshot")`. The aggregates of two columns and of all make Spark decode
every value, and move none to Python.

Without Spark, `snapshots sql` reads beside DuckDB, and a scan beside `pyarrow.dataset`, on the same files; their
ratios are our seconds over theirs.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import duckdb
import pyarrow.dataset
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import snapshot_assets
from benchmarks.sessions import benchmark_session
from snapshot_assets.engine.export.run import ExportRun
from snapshot_assets.engine.reading import read as native_read
from snapshot_assets.engine.reading.sql import SqlSession
from snapshot_assets.engine.reading.sql_places import DEFAULT
from snapshot_assets.engine.runner import SparkRunner
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store

_TABLE = "main.metrics"
_TWO = ["device", "value"]
_ROWS = (
    "SELECT TIMESTAMPTZ '2025-01-01 00:00:00Z' + to_milliseconds(i * 100) AS ts, (i % 1000)::INT AS device,"
    " 'site-' || (i % 40) AS site, random() * 100 AS value, i * 3 AS energy FROM range({rows}) r(i)"
)

Read = Callable[[], DataFrame]


def main() -> None:
    """Export, read and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    spark = benchmark_session()
    snapshot_assets.register(spark)
    with tempfile.TemporaryDirectory() as folder:
        uri, files = _export(spark, Path(folder), options.rows)
        size = sum(Path(file).stat().st_size for file in files)
        print(f"{options.rows:,} rows, {len(files)} files, {size / 1e6:.0f} MB")
        for work, columns, consume in _WORK:
            plain, ways = _reads(spark, uri, files, columns)
            _compare(work, plain, ways, consume, options.rounds)
        _without_spark(uri, files, options.rounds)


def _export(spark: SparkSession, folder: Path, rows: int) -> tuple[str, list[str]]:
    """Export a table; returns the location and the paths of its data files."""
    database = folder / "metrics.duckdb"
    with duckdb.connect(str(database)) as connection:
        connection.execute(f"SET TimeZone = 'UTC'; CREATE TABLE metrics AS {_ROWS.format(rows=rows)}")
    plan = Plan(
        name="bench",
        source=f"duckdb://{database}",
        to=f"file://{folder}/snapshots",
        start_time="2025-01-01T00:00:00Z",
        end_time="2026-01-01T00:00:00Z",
        chunk_time_window="365d",
    )
    store = open_store(parse_location(plan.to))
    run = ExportRun(plan, Configuration().source(f"duckdb://{database}"), store, SparkRunner(lambda: spark), "bench")
    with run.open() as export:
        list(export.export([0, 1]))
        export.seal()
    return plan.to, [str(file) for file in (folder / "snapshots/data").rglob("*.parquet")]


def _reads(spark: SparkSession, uri: str, files: list[str], columns: list[str]) -> tuple[Read, dict[str, Read]]:
    def plain() -> DataFrame:
        frame = spark.read.parquet(*files)
        return frame.select(*columns) if columns else frame

    def native() -> DataFrame:
        return snapshot_assets.read(spark, uri, _TABLE, columns=columns or None)

    def hashed() -> DataFrame:
        native_read.forget(spark)
        return native()

    def python() -> DataFrame:
        options = {"columns": ", ".join(columns)} if columns else {}
        return spark.read.format("snapshot").options(table=_TABLE, **options).load(uri)

    return plain, {"natively": native, "natively, with hashing": hashed, "Python source, hashed": python}


def _count(frame: DataFrame) -> None:
    frame.count()


def _scan(frame: DataFrame) -> None:
    """Decode every value: a hash depends on all columns, and its sum leaves no row out."""
    frame.select(F.sum(F.hash(*frame.columns).cast("bigint"))).collect()


_WORK = (("count()", [], _count), ("two columns of five", _TWO, _scan), ("full scan", [], _scan))


def _compare(work: str, plain: Read, ways: dict[str, Read], consume: Callable[[DataFrame], None], rounds: int) -> None:
    for read in (plain, *ways.values()):
        consume(read())  # Spark compiles, and starts Python
    ratios: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        theirs = _seconds(plain, consume)
        for name, read in ways.items():
            ratios[name].append(theirs / _seconds(read, consume))
    for name, found in ratios.items():
        print(f"{work}, {name}: {statistics.median(found):.2f} ({min(found):.2f}-{max(found):.2f})")


def _without_spark(uri: str, files: list[str], rounds: int) -> None:
    snapshot = snapshot_assets.open(uri)

    def opened() -> SqlSession:
        return SqlSession({DEFAULT: snapshot}, verify=False)

    def hashed(query: str) -> None:
        with SqlSession({DEFAULT: snapshot}) as session:
            session.rows(query.format("main.metrics"), 1000)

    def unverified(session: SqlSession, query: str) -> None:
        session.rows(query.format("main.metrics"), 1000)

    def plain(query: str) -> None:
        with duckdb.connect() as connection:
            connection.execute(query.format(f"read_parquet({files})")).fetchall()

    def drain(batches: Iterable[object]) -> None:
        for _ in batches:
            pass

    session = opened()
    works: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {
        "opening a session : opening DuckDB": (lambda: opened().__exit__(), lambda: duckdb.connect().close())
    }
    for name, query in _QUERIES.items():
        theirs = partial(plain, query)
        works[f"sql {name} in an open session, unverified : DuckDB"] = (partial(unverified, session, query), theirs)
        works[f"sql {name} in a new session, hashed : DuckDB"] = (partial(hashed, query), theirs)
    table, dataset = snapshot.table("main.metrics"), pyarrow.dataset.dataset(files)
    works["Arrow scan : pyarrow.dataset"] = (
        lambda: drain(table.scan(verify=False)),
        lambda: drain(dataset.to_batches()),
    )
    for name, (ours, theirs) in works.items():
        ratios = [_taken(ours) / _taken(theirs) for _ in range(rounds + 1)][1:]
        print(f"{name}: {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})", flush=True)


_QUERIES = {
    "count": "SELECT count(*) FROM {}",
    "group": "SELECT site, count(*), avg(value), max(energy) FROM {} GROUP BY site ORDER BY site",
}


def _taken(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _seconds(read: Read, consume: Callable[[DataFrame], None]) -> float:
    started = time.perf_counter()
    consume(read())
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
