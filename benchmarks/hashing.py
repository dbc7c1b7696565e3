"""What SHA-256 costs a data file: its share of the processor time that writing takes.

Run as `python -m benchmarks.hashing`. The same rows are written again and again; each time the hash of the object's
bytes, in the pieces in which they were written, is timed by itself. Reading the rows from a database comes on top, so
that the share of a whole export is smaller still.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.sample import READINGS, readings
from snapshot_assets.engine.files.target import FileTarget
from snapshot_assets.engine.files.write import write_files
from snapshot_assets.storage.local import LocalStore
from snapshot_assets.storage.location import parse_location

_PIECE = 1 << 20
_TARGET = FileTarget(1, "public", "readings", 1, "00000000", 1, "data/1/public.readings-00000000")


def main() -> None:
    """Write and hash, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    batches = list(readings(options.rows))
    writing, hashing = [], []
    with tempfile.TemporaryDirectory() as folder:
        store = LocalStore(parse_location(f"file://{folder}/snapshots/bench"))
        for _ in range(options.rounds):
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
        f"{options.rows:,} rows, {len(data) / (1 << 20):.0f} MiB: writing {statistics.median(writing):.2f} s of"
        f" processor time, hashing {statistics.median(hashing):.3f} s of it: {100 * statistics.median(shares):.1f} %"
    )


if __name__ == "__main__":
    main()
