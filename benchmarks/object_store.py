"""Exports and verifications of PostgreSQL tables on a local S3 server, beside the same on local disk.

Prints medians of ratios from interleaved rounds: the disk's seconds over the store's, so below 1 the store is slower.
The server runs on this machine, so its work takes processor time away from ours.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.export import bench_plan, measure_export
from benchmarks.sessions import benchmark_session
from benchmarks.tables import TABLES, make_table
from snapshot_assets.catalog.verify.objects import hash_object
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.servers.postgresql import start_postgresql
from snapshot_assets_tests.servers.s3 import S3Server, start_s3

Open = Callable[[int], ObjectStore]
"""Returns the empty store of a round."""


def rounds(uri: str, kind: str, spark: SparkSession, places: Mapping[str, Open], count: int) -> dict[str, list[float]]:
    """Return the seconds of each round's exports, and of hashing what they wrote; the first round is left out."""
    found: dict[str, list[float]] = {}
    for number in range(count + 1):
        for place, opened in places.items():
            store = opened(number)
            taken = {"export": measure_export(bench_plan(uri, kind, store.uri), store, spark)}
            started = time.perf_counter()
            for info in store.list("data/"):
                hash_object(store, info.path)
            taken["hash"] = time.perf_counter() - started
            for what, seconds in taken.items():
                found.setdefault(f"{what} {place}", []).extend([seconds] if number else [])
    return found


def on_disk(folder: Path, number: int) -> ObjectStore:
    """Return the store of a fresh folder, in place of the last round's."""
    shutil.rmtree(folder, ignore_errors=True)
    return open_store(parse_location((folder / str(number)).as_uri()))


def in_bucket(server: S3Server, kind: str, number: int) -> ObjectStore:
    """Return the store of a fresh prefix."""
    return open_store(parse_location(f"s3://{server.bucket}/{kind}-{number}"), server.options)


def main() -> None:
    """Run the rounds and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    spark = benchmark_session()
    folder = Path(tempfile.mkdtemp(prefix="snapshot-bench-"))
    try:
        (folder / "s3").mkdir()
        with start_postgresql() as database, start_s3(folder / "s3") as server:
            for kind in TABLES:
                uri = make_table(database, kind, options.rows)
                places = {"disk": partial(on_disk, folder / "disk"), "store": partial(in_bucket, server, kind)}
                report(kind, rounds(uri, kind, spark, places, options.rounds))
                database.drop_database(uri)
    finally:
        spark.stop()
        shutil.rmtree(folder)


def report(kind: str, found: dict[str, list[float]]) -> None:
    """Print the ratios of a table's exports and verifications."""
    for what in ("export", "hash"):
        pairs = zip(found[f"{what} disk"], found[f"{what} store"], strict=True)
        ratios = [disk / store for disk, store in pairs]
        print(f"{kind:<10}{what:<8}{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})", flush=True)


if __name__ == "__main__":
    main()
