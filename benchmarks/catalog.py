"""The catalog at 10 thousand, 100 thousand and a million files: opening, pruning by time, commits, and checkpoints.

Run as `python -m benchmarks.catalog`. Every location is made by real commits, a hundred files each of ten columns and
one row group. Opening runs in a process of its own, so that its memory is its own; its newest checkpoint is half an
interval old, as it is on average. Then the location is sealed and checkpointed, compactions replace the files of fifty
chunks, and everything is measured again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from snapshot_assets.catalog import catalog as catalogs
from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import checkpoint_bytes, write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.manifest import checksum_of
from snapshot_assets.catalog.operations.compact import CompactedChunk, compact_chunk
from snapshot_assets.catalog.state.file_pruning import match_files
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.format import actions as act
from snapshot_assets.format.actions import ColumnStatistics, DataFile, RowGroup
from snapshot_assets.format.predicates import Comparison, Literal, Operator
from snapshot_assets.format.relations import TableName
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store

FILES_OF_A_COMMIT = 100
START = datetime(2025, 1, 1, tzinfo=UTC)
HEADER = act.Header(
    name="bench",
    source="db",
    catalog="",
    schemas=("main",),
    start=START,
    end=None,
    chunk_time_window=3_600_000_000,
    kind="once",
    format="parquet",
    schema_only=False,
    time_zone="UTC",
    null_time="fail",
    untimed_tables="skip",
    grace=86_400_000_000,
)


def store_of(folder: str) -> ObjectStore:
    """Return the location in a folder."""
    return open_store(parse_location(f"file://{folder}/bench/catalog"))


def data_file(chunk: int, number: int, attempt: str) -> DataFile:
    """Return a file of ten columns, with bounds of them."""
    whole = [ColumnStatistics(f"c{each}", 0, number * 1000 + each, number * 1000 + each + 999) for each in range(8)]
    bounds = (*whole, *(ColumnStatistics(f"c{each}", 0, number / 3, number / 3 + 1) for each in (8, 9)))
    table = f"t{number % FILES_OF_A_COMMIT}"
    path = f"data/{chunk}/main.{table}-{attempt}-0000.parquet"
    group = RowGroup(100, 1000, bounds)
    return DataFile(path, "main", table, chunk, attempt, 100, 1000, f"{number:064x}", 1, 1, bounds, (group,))


def files_of(chunk: int, attempts: int = 0) -> list[DataFile]:
    """Return a hundred files of a chunk, of another attempt each."""
    numbers = range(chunk * FILES_OF_A_COMMIT, (chunk + 1) * FILES_OF_A_COMMIT)
    return [data_file(chunk, number, f"{attempts + number:08x}") for number in numbers]


def commit_chunk(catalog: Catalog, chunk: int) -> float:
    """Commit a chunk of a hundred files, and return how many seconds that took."""
    files = files_of(chunk)
    receipt = act.ObjectRef(f"data/{chunk}/chunk-{chunk:08x}.json", "0" * 64, 10)
    done = act.Chunk(chunk, None, None, act.ChunkStatus.COMPLETED, "0" * 64, 1, receipts=(receipt,), run="run")
    started = time.perf_counter()
    catalog.commit(lambda _: [done, *map(act.AddFile, files)])
    return time.perf_counter() - started


def make(folder: str, files: int) -> tuple[float, float]:
    """Make a location; return the seconds of a commit at its beginning and at its end."""
    store = store_of(folder)
    catalog = Catalog.open_for_writing(store)
    chunks = files // FILES_OF_A_COMMIT
    header = replace(HEADER, end=START + chunks * timedelta(hours=1))
    schema = rules.SchemaContent("schema/000000000000", "0" * 64, ())
    catalogs.CHECKPOINT_INTERVAL = 10**9  # written here, so that commits are measured without them
    catalog.commit(rules.begin(header, schema))
    seconds = []
    for chunk in range(1, chunks + 1):
        seconds.append(commit_chunk(catalog, chunk))
        if chunk % 500 == 0 and chunk < chunks - 50:
            write_checkpoint(store, catalog.state)
            catalog.state = read_state(store)
        elif chunk == chunks - 50:
            write_checkpoint(store, catalog.state)
    return statistics.median(seconds[10:60]), statistics.median(seconds[-50:])


def compact(folder: str) -> dict[str, float]:
    """Seal a location and compact fifty chunks; return the seconds of the seal and the milliseconds of a commit."""
    store = store_of(folder)
    catalog = Catalog(store, read_state(store))
    catalogs.CHECKPOINT_INTERVAL = 10**9
    started = time.perf_counter()
    catalog.commit(lambda state: [act.Seal(state.revision, checksum_of(state), "run")])
    sealed = time.perf_counter() - started
    write_checkpoint(store, catalog.state)
    catalog.state = read_state(store)
    chunks = catalog.state.files.chunks()
    milliseconds = []
    for chunk in chunks[len(chunks) // 2 - 25 :][:50]:
        old, new = files_of(chunk), files_of(chunk, attempts=1 << 31)
        tables = frozenset(TableName(file.schema, file.table) for file in old)
        receipt = act.ObjectRef(f"data/{chunk}/chunk-{1 << 31:08x}.json", "0" * 64, 10)
        removed = frozenset(file.path for file in old)
        done = CompactedChunk(chunk, tables, removed, frozenset(), tuple(new), receipt, {}, catalog.now(), "compaction")
        started = time.perf_counter()
        catalog.commit(compact_chunk(catalog.token(), done, catalog.now))
        milliseconds.append(1000 * (time.perf_counter() - started))
    return {"seal": sealed, "compaction commit ms": statistics.median(milliseconds)}


def opened(folder: str) -> dict[str, float]:
    """Open the newest state and ask it; runs in a process of its own."""
    store = store_of(folder)
    started = time.perf_counter()
    state = read_state(store)
    count, _, _ = state.files.totals()
    took = time.perf_counter() - started
    memory = peak_memory()
    started = time.perf_counter()
    data = checkpoint_bytes(state)
    written = time.perf_counter() - started
    return {
        "files": count,
        "open": took,
        "MiB": memory,
        **pruned(state, count),
        "checkpoint": written,
        "checkpoint MB": len(data) / 1e6,
    }


def peak_memory() -> int:
    """Return the most MiB that this process held; `getrusage` would begin with what the parent held at the fork."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM"))


def pruned(state: State, files: int) -> dict[str, float]:
    """Prune by one window of time, and by the bounds of one column: the first time these are read, the second not."""
    middle = START + files // FILES_OF_A_COMMIT // 2 * timedelta(hours=1)
    bound = Comparison("c3", Operator.GREATER_EQUAL, Literal("int64", (files + FILES_OF_A_COMMIT) * 1000 - 50_000))
    written = {1: pa.schema([("c3", pa.int64())])}

    def by_time() -> int:
        return len(list(match_files(state, start=middle, end=middle + timedelta(hours=1))))

    def by_column() -> int:
        return len(list(match_files(state, predicate=bound, written=written)))

    (_, cold), (hours, by_hour) = timed(by_time), timed(by_time)
    (_, first), (few, again) = timed(by_column), timed(by_column)
    assert (hours, few) == (FILES_OF_A_COMMIT, 51), (hours, few)
    return {"time ms, first": cold, "time ms": by_hour, "column ms, first": first, "column ms": again}


def timed(call: Callable[[], int]) -> tuple[int, float]:
    """Return what a call gives, and its milliseconds."""
    started = time.perf_counter()
    found = call()
    return found, 1000 * (time.perf_counter() - started)


def main() -> None:
    """Make and measure locations of growing size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--open", help="only open the location in this folder, and print what was measured as JSON")
    options = parser.parse_args()
    if options.open:
        print(json.dumps(opened(options.open)))
        return
    for files in options.files:
        with tempfile.TemporaryDirectory() as folder:
            first, last = make(folder, files)
            show(reopened(folder) | {"commit ms": 1000 * last, "commit, last / first": last / first})
            compacted = compact(folder)
            show(reopened(folder) | compacted)


def reopened(folder: str) -> dict[str, float]:
    """Return the medians of what three processes measure that open a location."""
    command = [sys.executable, "-m", "benchmarks.catalog", "--open", folder]
    cwd = Path(__file__).parent.parent
    runs = [json.loads(subprocess.check_output(command, cwd=cwd)) for _ in range(3)]
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def show(found: dict[str, float]) -> None:
    """Print what was measured, as a line of JSON."""
    print(json.dumps({name: round(value, 3) for name, value in found.items()}), flush=True)


if __name__ == "__main__":
    main()
