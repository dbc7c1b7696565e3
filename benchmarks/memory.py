"""Peak memory of a process that writes a large chunk, Python and pyarrow included: bounded, however large the chunk.

Run as `python -m benchmarks.memory`. Each case runs in a process of its own and generates its rows batch by batch.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from snapshot_assets.engine.files.write import write_files

from benchmarks.sample import READINGS, WIDE, readings, wide
from snapshot_assets.engine.files.target import FileTarget
from snapshot_assets.storage.local import LocalStore
from snapshot_assets.storage.location import parse_location

ALLOWED_MIB = 512
_TARGET = FileTarget(1, "public", "t", 1, "00000000", 1, "data/1/public.t-00000000")


def write(case: str, rows: int) -> str:
    """Write one case in this process and describe it with its peak memory."""
    if case == "readings":
        schema, batches = READINGS, readings(rows)
    else:
        width = int(case.removeprefix("wide-"))
        schema, batches = WIDE, wide(rows, width, max(1, (16 << 20) // width))
    with tempfile.TemporaryDirectory() as folder:
        store = LocalStore(parse_location(f"file://{folder}/snapshots/bench"))
        files = write_files(store, _TARGET, schema, batches, max_file_size=256 << 20)
    # Not getrusage(): a child's maximum starts at what its parent had when it forked.
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    peak = int(found[1]) >> 10
    size = sum(file.bytes for file in files) >> 20
    return f"{case:<16}{rows:>12,} rows{len(files):>4} files{size:>8,} MiB{peak:>8,} MiB at most"


def main() -> None:
    """Run every case, or the one named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000, help="narrow rows; the wide ones are fewer")
    parser.add_argument("--case")
    options = parser.parse_args()
    if options.case:
        print(write(options.case, options.rows))
        return
    print(f"allowed: {ALLOWED_MIB} MiB")
    cases = {"readings": 1, "wide-200": 1, "wide-20000": 500, "wide-4000000": 50_000}
    for case, divisor in cases.items():
        rows = str(options.rows // divisor)
        command = [sys.executable, "-m", "benchmarks.memory", "--case", case, "--rows", rows]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
