"""What SHA-256 costs a data file: its share of the processor time that writing takes.

Run as `python -m benchmarks.hashing`. The same rows are written again and again; each time the hash of the object's
bytes, in the pieces in which they were written, is timed by itself. Reading the rows from a database comes on top, so
that the share of a whole export is smaller still.

Then `verify` at depth `full` reads a location of such files, beside `sha256sum` of the same files in as many processes
as there are cores: both in seconds and in processor time, interleaved, with a warm cache.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb

from benchmarks.sample import READINGS, readings
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.engine.export.run import ExportRun
from snapshot_assets.engine.files.target import FileTarget
from snapshot_assets.engine.files.write import write_files
from snapshot_assets.engine.runner import InlineRunner
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.local import LocalStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store

_PIECE = 1 << 20
_TARGET = FileTarget(1, "public", "readings", 1, "00000000", 1, "data/1/public.readings-00000000")


def main() -> None:
    """Measure both, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=2000, help="size of the location that is verified")
    options = parser.parse_args()
    share_of_writing(options.rows, options.rounds)
    with tempfile.TemporaryDirectory() as folder:
        verification(Path(folder), options.megabytes, options.rounds)


def share_of_writing(rows: int, rounds: int) -> None:
    """Write and hash the same rows."""
    batches = list(readings(rows))
    writing, hashing = [], []
    with tempfile.TemporaryDirectory() as folder:
        store = LocalStore(parse_location(f"file://{folder}/snapshots/bench"))
        for _ in range(rounds):
            started = time.process_time()
            files = write_files(store, _TARGET, READINGS, batches, max_file_size=256 << 20)
            writing.append(time.process_time() - started)
            data = b"".join(Path(folder, "snapshots/bench", file.path).read_bytes() for file in files)
            started = time.process_time()
            digest = hashlib.sha256()
            for start in range(0, len(data), _PIECE):
                digest.update(data[start : start + _PIECE])
            hashing.append(time.process_time() - started)
    shares = [part / whole for part, whole in zip(hashing, writing, strict=True)]
    print(
        f"{rows:,} rows, {len(data) / (1 << 20):.0f} MiB: writing {statistics.median(writing):.2f} s of"
        f" processor time, hashing {statistics.median(hashing):.3f} s of it: {100 * statistics.median(shares):.1f} %"
    )


def verification(folder: Path, megabytes: int, rounds: int) -> None:
    """Verify a location, beside `sha256sum`."""
    database = folder / "blobs.duckdb"
    with duckdb.connect(str(database)) as connection:
        connection.execute(
            "CREATE TABLE random AS SELECT random() a, random() b, random() c, random() d FROM"
            f" range({megabytes * 1_000_000 // 32}) r(i)"
        )
    to = f"file://{folder}/snapshots"
    plan = Plan(name="bench", source=f"duckdb://{database}", to=to, max_file_size="64MB")
    store = open_store(parse_location(to))
    with ExportRun(plan, Configuration().source(f"duckdb://{database}"), store, InlineRunner(), "bench").open() as run:
        list(run.export([0]))
        run.seal()
    files = sorted((folder / "snapshots/data").rglob("*.parquet"))
    command = ["xargs", "-0", "-P", str(os.cpu_count()), "-n", "1", "sha256sum"]
    names = b"\0".join(str(file).encode() for file in files)

    def theirs() -> None:
        subprocess.run(command, input=names, stdout=subprocess.DEVNULL, check=True)

    def ours() -> None:
        report = verify(store)
        assert not report.faults
        assert report.files == len(files)

    theirs(), ours()
    pairs = [(_measured(theirs), _measured(ours)) for _ in range(rounds)]
    for unit, which in (("seconds", 0), ("processor time", 1)):
        ratios = [other[which] / own[which] for other, own in pairs]
        print(
            f"verify of {sum(file.stat().st_size for file in files) / 1e9:.1f} GB in {len(files)} files, sha256sum's"
            f" {unit} over ours: {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
        )


def _measured(work: Callable[[], None]) -> tuple[float, float]:
    """Return the seconds and the processor time, with that of child processes, that some work takes."""
    before, started = sum(os.times()[:4]), time.perf_counter()
    work()
    return time.perf_counter() - started, sum(os.times()[:4]) - before


if __name__ == "__main__":
    main()
