"""What a small export waits for: ten tiny chunks, command to prompt, beside Spark's own start and first Python task.

Both run as processes of their own, interleaved, in fresh folders. Also measured: an import of the same chunks, both
after `snapshots warm-up`, the import of the package, and `snapshots export list` on a folder of many locations.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import duckdb

_RANGE = ("--start-time", "2025-01-01T00:00:00Z", "--end-time", "2025-01-11T00:00:00Z")
_TABLE = """
    CREATE TABLE m AS SELECT timestamp '2025-01-01' + to_minutes(i) AS t, i AS n, 'text ' || i AS s
    FROM range(14400) r(i)
"""
_BARE = """
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
assert spark.range(0, 10, 1, 10).mapInArrow(lambda batches: batches, "id long").count() == 10
spark.stop()
"""
_ARCHIVE = "spark-classes.jsa"
_COMMAND = (sys.executable, "-m", "snapshot_assets.cli")


def main() -> None:
    """Run the rounds, and print the median and the ratio of each measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--locations", type=int, default=100, help="locations of `export list`")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "source.duckdb"
        with duckdb.connect(str(source)) as connection:
            connection.execute(_TABLE)
        run((*_COMMAND, "warm-up"), folder, warm=folder / _ARCHIVE)
        rounds = [measure(folder / str(number), source) for number in range(options.rounds)]
        for what in rounds[0]:
            ratios = [each[what] / each["bare Spark"] for each in rounds]
            median = statistics.median(each[what] for each in rounds)
            print(f"{what:24} {median:6.2f} s, {statistics.median(ratios):5.2f} of bare Spark")
        listed = locations(folder / "many", folder / "0" / "location", options.locations)
        for what, command in (
            ("import snapshot_assets", (sys.executable, "-c", "import snapshot_assets")),
            ("python alone", (sys.executable, "-c", "pass")),
            (f"list {options.locations} locations", (*_COMMAND, "export", "list", "--location", listed)),
        ):
            seconds = statistics.median(run(command, folder) for _ in range(options.rounds))
            print(f"{what:24} {seconds:6.2f} s")


def measure(folder: Path, source: Path) -> dict[str, float]:
    """Return the seconds of one round."""
    folder.mkdir()
    (folder / "dagster").mkdir()
    (folder / "dagster" / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    export = (*_COMMAND, "export", "create", "--source", f"duckdb://{source}", *_RANGE, "--parallelism", "2")
    restore = (*_COMMAND, "import")
    bare = run((sys.executable, "-c", _BARE), folder)
    times = {"bare Spark": bare}
    for state, warm in (("", None), (", warmed up", folder.parent / _ARCHIVE)):
        location, target = f"file://{folder}/location{state[-2:]}", f"duckdb://{folder}/copy{state[-2:]}.duckdb"
        times[f"export of ten chunks{state}"] = run((*export, "--to", location), folder, warm)
        times[f"import of ten chunks{state}"] = run((*restore, "--from", location, "--target", target), folder, warm)
    return times


def locations(folder: Path, one: Path, count: int) -> str:
    """Copy a location, and return the URI of the folder of all copies."""
    for number in range(count):
        shutil.copytree(one, folder / f"l{number}")
    return folder.as_uri()


def run(command: Sequence[str], folder: Path, warm: Path | None = None) -> float:
    """Return the seconds of a process, which has the archive of Spark's classes that is given, or none."""
    environment = os.environ | {"DAGSTER_HOME": str(folder / "dagster")}
    environment["SNAPSHOTS_CLASS_ARCHIVE"] = str(warm or folder / "none")
    started = time.monotonic()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    seconds = time.monotonic() - started
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    return seconds


if __name__ == "__main__":
    main()
