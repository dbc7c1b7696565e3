"""Restore of one PostgreSQL table, against other tools that load the same rows, into tables without indexes.

Prints medians of ratios from interleaved runs, as `benchmarks.export` does: the other tool's seconds over ours. Each
run begins with a new database and ends with all rows committed. Ours includes reading and verifying the snapshot, the
ledger, and the check of row counts, and excludes the start of Spark; the start of DuckDB is excluded too.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.export import environment, peak_memory, timed
from benchmarks.sessions import benchmark_session
from benchmarks.tables import TABLES, BenchmarkTable
from snapshot_assets.engine.export.run import ExportRun
from snapshot_assets.engine.restore.run import RestoreRun
from snapshot_assets.engine.runner import SparkRunner
from snapshot_assets.format.relations import TableName
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.servers.postgresql import PostgresqlServer, start_postgresql

Run = Callable[[str], float]
"""Loads the table into the empty database of a URI and returns its seconds."""

_DUCKDB = Path(__file__).with_name("duckdb_writer.py")


@dataclass(frozen=True)
class Bench:
    """One table in a server, with everything that the tools load it from.

    Attributes:
        uri: The database that holds the table.
        folder: Where the tools' files are.
    """

    server: PostgresqlServer
    table: BenchmarkTable
    uri: str
    folder: Path

    def psql(self, uri: str, *commands: str) -> float:
        """Run psql and return its seconds."""
        arguments = [argument for command in commands for argument in ("-c", command)]
        return timed([str(self.server.bin / "psql"), uri, "-Xq", "-v", "ON_ERROR_STOP=1", *arguments])

    def file(self, form: str) -> Path:
        """Return the path of the rows in a format of COPY."""
        return self.folder / f"{self.table.name}.{form}"

    def copied(self, form: str) -> Run:
        """Write the rows in a format of COPY, and return the run of psql that loads them."""
        self.psql(self.uri, rf"\copy {self.table.name} to '{self.file(form)}' (format {form})")
        load = rf"\copy {self.table.name} from '{self.file(form)}' (format {form})"
        return lambda uri: self.psql(uri, self.table.create, load)

    def dumped(self) -> Run:
        """Dump the table, and return the run of pg_restore; its parallel jobs divide tables, not one table's rows."""
        folder = str(self.folder / "dump")
        timed([str(self.server.bin / "pg_dump"), self.uri, "-Fd", "-j", "2", "-t", self.table.name, "-f", folder])
        return lambda uri: timed([str(self.server.bin / "pg_restore"), "-d", uri, "-j", "2", folder])

    def written_by_duckdb(self, python: Path) -> Run:
        """Let DuckDB write the rows to Parquet, and return the run of DuckDB that loads them."""

        def run(what: str, uri: str) -> float:
            command = [str(python), str(_DUCKDB), what, uri, self.table.name, str(self.file("parquet"))]
            return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

        run("dump", self.uri)

        def load(uri: str) -> float:
            self.psql(uri, self.table.create)
            return run("load", uri)

        return load

    def snapshot(self, spark: SparkSession) -> ObjectStore:
        """Export the table to a snapshot of one chunk, in two files."""
        name = TableName("public", self.table.name)
        plan = Plan(
            name="bench",
            source=self.uri,
            to=f"file://{self.folder}/snapshot",
            start_time="1990-01-01T00:00:00Z",
            end_time="2030-01-01T00:00:00Z",
            chunk_time_window="14610d",
            time_columns={str(name): self.table.time},
        )
        store = open_store(parse_location(plan.to))
        address = Configuration().source(self.uri)
        with ExportRun(plan, address, store, SparkRunner(lambda: spark), "bench", most_parts=2).open() as opened:
            list(opened.export([0, 1]))
            opened.seal()
        return store


def ours(store: ObjectStore, spark: SparkSession, uri: str) -> float:
    """One import into an empty database."""
    started = time.perf_counter()
    run = RestoreRun(store, Configuration().source(uri), SparkRunner(lambda: spark), slots=2)
    list(run.restore())
    assert run.finish()
    assert all(expected == found for expected, found in run.check_counts().values())
    return time.perf_counter() - started


def runs(bench: Bench, spark: SparkSession) -> dict[str, Run]:
    """Return each tool's run."""
    store = bench.snapshot(spark)
    found: dict[str, Run] = {"ours": lambda uri: ours(store, spark, uri)}
    for form in ("binary", "csv"):
        found[f"psql \\copy {form}"] = bench.copied(form)
    found["pg_restore -j 2"] = bench.dumped()
    python = environment(bench.folder / "environment")
    if python is not None:
        found["DuckDB's writer"] = bench.written_by_duckdb(python)
    return found


def measure(server: PostgresqlServer, tools: dict[str, Run], rounds: int) -> dict[str, list[float]]:
    """Run every tool once unmeasured, then once a round, each into a new database."""
    seconds: dict[str, list[float]] = {}
    for name, run in tools.items():
        try:
            into_new_database(server, run)
        except subprocess.CalledProcessError as error:
            print(f"absent: {name} ({(error.stderr or str(error)).strip().splitlines()[-1]})")
        else:
            seconds[name] = []
    for _ in range(rounds):
        for name, taken in seconds.items():
            taken.append(into_new_database(server, tools[name]))
    return seconds


def into_new_database(server: PostgresqlServer, run: Run) -> float:
    """Run a tool with a new database, and return its seconds."""
    uri = server.create_database()
    try:
        return run(uri)
    finally:
        server.drop_database(uri)
        server.psql(server.uri(), "CHECKPOINT")  # what one tool left to write must not slow the next


def report(seconds: dict[str, list[float]], rows: int) -> None:
    """Print medians: rows a second, and the ratio of the other's seconds to ours."""
    print(f"{'tool':<24}{'rows/s':>14}{'its seconds / ours':>22}")
    for name, taken in seconds.items():
        ratios = [theirs / own for theirs, own in zip(taken, seconds["ours"], strict=True)]
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
        print(f"{name:<24}{rows / statistics.median(taken):>14,.0f}{spread:>22}")


def main() -> None:
    """Run the rounds of the chosen tables and print their reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", choices=TABLES, action="append", help="default: all tables")
    parser.add_argument("--rows", type=int, help="default: the table's own number")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    spark = benchmark_session()
    folder = Path(tempfile.mkdtemp(prefix="snapshot-bench-"))
    try:
        for name in options.table or TABLES:
            table = TABLES[name]
            rows = options.rows or table.rows
            (folder / name).mkdir()
            with start_postgresql() as server:
                bench = Bench(server, table, server.create_database(), folder / name)
                server.psql_script(bench.uri, table.script(rows))
                print(f"\nrestore of {name}, {rows:,} rows, {options.rounds} rounds")
                report(measure(server, runs(bench, spark), options.rounds), rows)
            print(f"largest worker so far {peak_memory()} MiB")
    finally:
        spark.stop()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
