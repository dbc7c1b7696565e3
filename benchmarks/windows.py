"""What a run of 10,000 one-minute windows with 20 rows costs: the command's processor time and memory.

Once without an instance of Dagster, and once with one that uses its PostgreSQL storage.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb

from snapshot_assets.format.units import time_text
from snapshot_assets_tests.servers.postgresql import start_postgresql

_START = datetime(2025, 1, 1, tzinfo=UTC)
_POSTGRESQL = "storage: {{postgres: {{postgres_url: '{url}'}}}}\n"


def main() -> None:
    """Run the command once with each storage, and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=10_000)
    windows = parser.parse_args().windows
    with tempfile.TemporaryDirectory() as name, start_postgresql() as server:
        folder = Path(name)
        with duckdb.connect(str(folder / "source.duckdb")) as connection:
            connection.execute("CREATE TABLE m (t TIMESTAMPTZ, n INTEGER)")
            connection.execute(
                f"INSERT INTO m SELECT '{_START}'::TIMESTAMPTZ + to_minutes(n * 7), n FROM range(20) r(n)"
            )
        url = server.create_database().replace("postgresql:", "postgresql+psycopg2:")
        home = folder / "dagster"
        home.mkdir()
        (home / "dagster.yaml").write_text(f"telemetry: {{enabled: false}}\n{_POSTGRESQL.format(url=url)}")
        for recorded, place in (("no instance", ""), ("PostgreSQL", str(home))):
            seconds = export(folder, folder / f"location of {recorded}", place, windows)
            print(f"{windows:,} windows, {recorded}: {seconds:.0f} s of processor time")


def export(folder: Path, location: Path, home: str, windows: int) -> float:
    """Export to a new location, recorded by the instance at `home` if that is given; returns the processor seconds."""
    given = {
        "--source": f"duckdb://{folder}/source.duckdb",
        "--to": location.as_uri(),
        "--start-time": time_text(_START),
        "--end-time": time_text(_START + timedelta(minutes=windows)),
        "--chunk-time-window": "1m",
        "--time-column": "main.m=t",
    }
    options = [part for option in given.items() for part in option]
    before = spent()
    subprocess.run(
        [sys.executable, "-m", "snapshot_assets.cli", "export", "create", *options],
        env=os.environ | {"DAGSTER_HOME": home},
        check=True,
        capture_output=True,
    )
    return spent() - before


def spent() -> float:
    """Return the processor seconds of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
