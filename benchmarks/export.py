"""Export of PostgreSQL tables, against other tools that take the same rows off the same server.

`make bench` prints medians of ratios from interleaved runs: in every round each tool runs once, and each round's ratio
is the other tool's seconds over ours, so that a machine whose speed drifts does not matter. Ours includes hashing,
receipts and commits, and excludes the start of Spark; the others' start-up is excluded too, where they are libraries.
`--table` chooses one of the tables of `benchmarks.tables`; without it, all are measured, one after the other.
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession

from benchmarks.sessions import benchmark_session
from benchmarks.tables import TABLES, make_table
from snapshot_assets.engine.export.run import ExportRun
from snapshot_assets.engine.runner import SparkRunner
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.servers.postgresql import PostgresqlServer, start_postgresql

ROOT = Path(__file__).resolve().parent.parent
Run = Callable[[Path], float]


def timed(command: list[str], **options: Any) -> float:
    """Run a command and return its seconds."""
    started = time.perf_counter()
    subprocess.run(command, check=True, **options)
    return time.perf_counter() - started


def bench_plan(uri: str, kind: str, to: str) -> Plan:
    """Return a plan that exports a table of `benchmarks.tables` as one chunk."""
    return Plan(
        name="bench",
        source=uri,
        to=to,
        start_time="2025-01-01T00:00:00Z",
        end_time="2026-01-01T00:00:00Z",
        chunk_time_window="365d",
        time_columns={f"public.{kind}": TABLES[kind].time},
    )


def measure_export(plan: Plan, store: ObjectStore, spark: SparkSession) -> float:
    """Return the seconds of one export run of this package to the last commit, without the seal."""
    address = Configuration().source(plan.source)
    started = time.perf_counter()
    run = ExportRun(plan, address, store, SparkRunner(lambda: spark), "bench", most_parts=2)
    with run.open() as opened:
        list(opened.export([1]))
        return time.perf_counter() - started


def ours(uri: str, kind: str, spark: SparkSession, peaks: list[int], target: Path) -> float:
    """Export to a folder; notes the peak memory of our workers."""
    plan = bench_plan(uri, kind, f"file://{target}/snapshot")
    took = measure_export(plan, open_store(parse_location(plan.to)), spark)
    peaks.append(peak_memory())
    return took


def environment(folder: Path) -> Path | None:
    """Make the competitors' environment; None, with the reason printed, where that fails."""
    python = folder / "bin" / "python"
    uv = ROOT / ".venv" / "bin" / "uv"
    try:
        subprocess.run([str(uv), "venv", "-q", "--python", sys.executable, str(folder)], check=True)
        lock = ROOT / "requirements" / "bench.txt"
        install = [str(uv), "pip", "install", "-q", "--python", str(python), "--require-hashes", "-r", str(lock)]
        subprocess.run(install, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"absent: DuckDB's scanner, connectorx and dlt ({error})")
        return None
    return python


def runs(
    server: PostgresqlServer, uri: str, kind: str, spark: SparkSession, python: Path | None, peaks: list[int]
) -> dict[str, Run]:
    """Return each tool's run; `python` is that of the competitors' environment."""
    found: dict[str, Run] = {"ours": partial(ours, uri, kind, spark, peaks)}
    found["psql \\copy csv"] = lambda target: timed(
        [str(server.bin / "psql"), uri, "-Xqc", rf"\copy {kind} to '{target}/{kind}.csv' (format csv)"]
    )
    found["pg_dump -Fd -j 2"] = lambda target: timed(
        [str(server.bin / "pg_dump"), uri, "-Fd", "-j", "2", "-t", kind, "-f", f"{target}/dump"]
    )
    if python is not None:
        for tool, label in (
            ("connectorx", "connectorx -> pyarrow"),
            ("duckdb_scanner", "DuckDB scanner"),
            ("dlt_sql_database", "dlt sql_database"),
        ):
            found[label] = partial(competitor, python, tool, uri, kind)
    found["Spark JDBC"] = partial(competitor, Path(sys.executable), "spark_jdbc", uri, kind)
    return found


def competitor(python: Path, tool: str, uri: str, kind: str, target: Path) -> float:
    """Run another tool in its own process and return the seconds that it reports."""
    # -P: the script's folder holds a `copy.py`, which must not stand for Python's own.
    command = [str(python), "-P", str(ROOT / "benchmarks" / "competitors.py"), tool, uri, kind, str(target)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout)


def peak_memory() -> int:
    """Return the most MiB that one of Spark's Python workers has held; they outlive their tasks a while."""
    return max((worker_peak(process) for process in psutil.Process().children(recursive=True)), default=0) >> 10


def worker_peak(process: psutil.Process) -> int:
    """Return the peak kB of a Python worker; 0 for another process, or one that has just ended."""
    try:
        if "snapshot_assets.engine.worker_daemon" not in process.cmdline():
            return 0
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
        return 0
    return int(found[1]) if found else 0


def main() -> None:
    """Run the rounds and print a report of each table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", choices=TABLES, help="only this table")
    parser.add_argument("--rows", type=int, help="rows of each table, other than its usual ones")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", action="append", help="a part of the names of other tools, such as `DuckDB`; several")
    options = parser.parse_args()
    spark = benchmark_session()
    folder = Path(tempfile.mkdtemp(prefix="snapshot-bench-"))
    try:
        python = environment(folder / "environment")
        with start_postgresql() as server:
            for kind in [options.table] if options.table else TABLES:
                rows = options.rows or TABLES[kind].rows
                uri, peaks = make_table(server, kind, rows), list[int]()
                tools = runs(server, uri, kind, spark, python, peaks)
                wanted = ("ours", *(options.only or [""]))
                chosen = {name: run for name, run in tools.items() if any(part in name for part in wanted)}
                seconds, sizes = measure(chosen, folder, options.rounds)
                report(kind, seconds, sizes, rows)
                print(f"our largest worker held {max(peaks)} MiB at most", flush=True)
                server.drop_database(uri)
    finally:
        spark.stop()
        shutil.rmtree(folder)


def measure(tools: dict[str, Run], folder: Path, rounds: int) -> tuple[dict[str, list[float]], dict[str, int]]:
    """Run every tool once unmeasured, then once a round, each into a fresh folder."""
    seconds: dict[str, list[float]] = {}
    sizes: dict[str, int] = {}
    for name, run in tools.items():
        try:
            _, sizes[name] = measure_once(run, folder)
        except subprocess.CalledProcessError as error:
            print(f"absent: {name} ({(error.stderr or str(error)).strip().splitlines()[-1]})")
        else:
            seconds[name] = []
    for _ in range(rounds):
        for name, taken in seconds.items():
            took, _ = measure_once(tools[name], folder)
            taken.append(took)
    return seconds, sizes


def measure_once(run: Run, folder: Path) -> tuple[float, int]:
    """Run a tool into a fresh folder; returns its seconds and the bytes it wrote."""
    with tempfile.TemporaryDirectory(dir=folder) as target:
        took = run(Path(target))
        return took, sum(path.stat().st_size for path in Path(target).rglob("*") if path.is_file())


def report(kind: str, seconds: dict[str, list[float]], sizes: dict[str, int], rows: int) -> None:
    """Print medians: rows a second, the ratio of the other's seconds to ours, and bytes written."""
    print(f"\n{kind}: {rows:,} rows, {len(seconds['ours'])} rounds")
    print(f"{'tool':<24}{'rows/s':>14}{'its seconds / ours':>22}{'MB written':>14}")
    for name, taken in seconds.items():
        ratios = [theirs / own for theirs, own in zip(taken, seconds["ours"], strict=True)]
        rate = rows / statistics.median(taken)
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
        print(f"{name:<24}{rate:>14,.0f}{spread:>22}{sizes[name] / (1 << 20):>14.1f}")


if __name__ == "__main__":
    main()
