"""What a code location of a hundred plans costs Dagster: processor time, peak memory, and the repository's snapshot.

Run as `python -m benchmarks.definitions`. Each plan is as in `examples/nightly.yaml`, with an asset for each of ten
tables; the snapshot is what the code location sends to Dagster's web server and daemon.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

_PLAN = """
  shop{number}:
    kind: continuous
    source: shop
    to: s3://backups/shop{number}
    replicate_to: s3://elsewhere/shop{number}
    start_time: 2025-01-01T00:00:00Z
    chunk_time_window: 1d
    late_windows: 2
    tables: [{tables}]
    dagster: {{export_cron: "30 0 * * *", fresh_for: 26h, verify_sample: 5%}}
    retention: {{keep_daily: 7, tag: {{create_time: "06:00", keep_daily: 7}}}}
"""


def main() -> None:
    """Load the definitions, and print what that took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plans", type=int, default=100)
    parser.add_argument("--tables", type=int, default=10)
    options = parser.parse_args()
    tables = ", ".join(f"public.t{number}" for number in range(options.tables))
    plans = "".join(_PLAN.format(number=number, tables=tables) for number in range(options.plans))
    with tempfile.TemporaryDirectory() as folder:
        configuration = Path(folder) / "snapshots.yaml"
        configuration.write_text(f"sources: {{shop: 'postgresql://localhost/shop'}}\nplans:{plans}")
        os.environ["SNAPSHOTS_CONFIG"] = str(configuration)
        from dagster import serialize_value
        from dagster._core.remote_representation.external_data import RepositorySnap

        imported = time.process_time()
        from snapshot_assets.definitions import defs

        repository = defs.get_repository_def()
        served = len(serialize_value(RepositorySnap.from_def(repository, defer_snapshots=True)))  # as code servers do
        whole = len(serialize_value(RepositorySnap.from_def(repository)))
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM"))
    print(
        f"{options.plans} plans of {options.tables} tables: {time.process_time() - imported:.1f} s after"
        f" {imported:.1f} s of importing Dagster, {peak} MiB at most, a snapshot of {served / 1e6:.1f} MB"
        f" ({whole / 1e6:.1f} MB with that of each job, which a code server sends when one is asked for)"
    )


if __name__ == "__main__":
    main()
