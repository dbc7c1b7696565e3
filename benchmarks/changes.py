"""Following a source: looking for changes in 30 windows and 20 untimed tables, and a night in which one each changed.

Prints medians of ratios from interleaved rounds. A look is put beside `COPY (SELECT …) TO STDOUT (FORMAT binary)` of
the same rows, thrown away; a night, and a comparison of everything by value, beside a whole export of the same tables.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.export import timed
from benchmarks.sessions import benchmark_session
from benchmarks.tables import TABLES, make_table
from snapshot_assets.engine.export.changes import Changes, chunks_to_look_at, find_changes
from snapshot_assets.engine.export.compare import compare
from snapshot_assets.engine.export.run import ExportRun
from snapshot_assets.engine.runner import SparkRunner
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.servers.postgresql import PostgresqlServer, start_postgresql

WINDOWS = 30
UNTIMED = 20


@dataclass(frozen=True)
class Bench:
    """A database with one timed table and several untimed ones, and runs that export it."""

    server: PostgresqlServer
    uri: str
    kind: str
    start: datetime
    window: timedelta
    spark: SparkSession

    def run(self, folder: Path) -> ExportRun:
        """Return a run that exports everything to a folder."""
        plan = Plan(
            name="bench",
            source=self.uri,
            to=f"file://{folder}/snapshot",
            start_time=self.start,
            end_time=self.start + WINDOWS * self.window,
            chunk_time_window=self.window,
            time_columns={f"public.{self.kind}": TABLES[self.kind].time},
        )
        store, runner = open_store(parse_location(plan.to)), SparkRunner(lambda: self.spark)
        return ExportRun(plan, Configuration().source(self.uri), store, runner, "bench", most_parts=2)

    def export(self, folder: Path) -> float:
        """Export everything; returns seconds, to the last commit."""
        started = time.perf_counter()
        with self.run(folder).open() as opened:
            list(opened.export(range(WINDOWS + 1)))
            taken = time.perf_counter() - started
            opened.seal()
        return taken

    def look(self, folder: Path) -> float:
        """Look for changes in everything; returns seconds."""
        started = time.perf_counter()
        with self.run(folder).look() as opened:
            changes = find_changes(opened, chunks_to_look_at(opened.catalog.state, opened.run.plan, datetime.now(UTC)))
            assert not changes.compared
        return time.perf_counter() - started

    def night(self, folder: Path) -> tuple[float, Changes]:
        """Look, and export again what changed; returns seconds, to the last commit."""
        started = time.perf_counter()
        with self.run(folder).open() as opened:
            changes = find_changes(opened, chunks_to_look_at(opened.catalog.state, opened.run.plan, datetime.now(UTC)))
            list(opened.commits(list(changes.only), replace_completed=True, only=changes.only))
            taken = time.perf_counter() - started
            opened.seal()
        return taken, changes

    def compare(self, folder: Path) -> float:
        """Compare everything by value; returns seconds."""
        started = time.perf_counter()
        with self.run(folder).look() as opened:
            compared = compare(opened)
            assert not compared.unequal
        return time.perf_counter() - started

    def copy(self) -> float:
        """Copy all rows with psql, and throw them away; returns seconds."""
        tables = [self.kind, *(f"untimed{number}" for number in range(UNTIMED))]
        copies = [f"COPY (SELECT * FROM {table}) TO STDOUT (FORMAT binary)" for table in tables]
        arguments = [argument for each in copies for argument in ("-c", each)]
        with Path("/dev/null").open("wb") as nothing:
            return timed([str(self.server.bin / "psql"), self.uri, "-Xq", *arguments], stdout=nothing)

    def change(self) -> None:
        """Change a row of one window, and of one untimed table."""
        column, moment = TABLES[self.kind].time, (self.start + 3.5 * self.window).isoformat()
        self.server.psql_script(
            self.uri,
            f"UPDATE {self.kind} SET {column} = {column} WHERE ctid IN (SELECT ctid FROM {self.kind} WHERE {column} >="
            f" '{moment}' ORDER BY {column} LIMIT 1); UPDATE untimed7 SET n = n WHERE n = 7",
        )


def data_bytes(folder: Path) -> dict[str, int]:
    """Return the sizes of the data files below a folder."""
    return {path.name: path.stat().st_size for path in folder.rglob("*.parquet")}


def measure(bench: Bench, folder: Path, rounds: int) -> None:
    """Run the rounds, and print what they took."""
    followed = folder / "followed"
    bench.export(followed)
    bench.look(followed)
    taken: dict[str, list[float]] = {"look : COPY": [], "night : export": [], "bytes of a night : of what changed": []}
    taken["compare : export"] = []
    for number in range(rounds):
        taken["look : COPY"].append(bench.look(followed) / bench.copy())
        bench.change()
        before = data_bytes(followed)
        night, changes = bench.night(followed)
        assert len(changes.changed) == 2, changes.changed
        written = sum(size for name, size in data_bytes(followed).items() if name not in before)
        replaced = sum(file.bytes for part in changes.changed for file in part.files)
        taken["bytes of a night : of what changed"].append(written / replaced)
        export = bench.export(folder / str(number))
        taken["night : export"].append(night / export)
        taken["compare : export"].append(bench.compare(followed) / export)
        shutil.rmtree(folder / str(number))
    for name, ratios in taken.items():
        print(f"{name:<36}{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})", flush=True)


def prepared(server: PostgresqlServer, kind: str, rows: int, spark: SparkSession) -> Bench:
    """Make the tables; the windows divide the rows of the timed one."""
    uri = make_table(server, kind, rows)
    tables = (
        f"CREATE TABLE untimed{number} AS SELECT n, md5(n::text) AS text FROM generate_series(1, {rows // 100}) AS n;"
        for number in range(UNTIMED)
    )
    server.psql_script(uri, f"{' '.join(tables)} CREATE INDEX ON {kind} ({TABLES[kind].time}); VACUUM ANALYZE;")
    column = f"({TABLES[kind].time})::timestamptz"
    found = server.psql(
        uri, f"SELECT extract(epoch FROM min({column})) || ' ' || extract(epoch FROM max({column})) FROM {kind}"
    )
    first, last = (float(text) for text in found.split())
    window = timedelta(seconds=int((last - first) / WINDOWS) + 1)
    return Bench(server, uri, kind, datetime.fromtimestamp(int(first), UTC), window, spark)


def main() -> None:
    """Measure the chosen tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", choices=TABLES, action="append", help="default: all tables")
    parser.add_argument("--rows", type=int, help="default: a fifth of the table's own number")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    spark, folder = benchmark_session(), Path(tempfile.mkdtemp(prefix="snapshot-bench-"))
    try:
        with start_postgresql() as server:
            for kind in options.table or TABLES:
                rows = options.rows or TABLES[kind].rows // 5
                bench = prepared(server, kind, rows, spark)
                print(
                    f"\n{kind}: {rows:,} rows in {WINDOWS} windows, {UNTIMED} untimed tables, {options.rounds} rounds"
                )
                (folder / kind).mkdir()
                measure(bench, folder / kind, options.rounds)
                server.drop_database(bench.uri)
    finally:
        spark.stop()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
