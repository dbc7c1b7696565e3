"""What every question to a location costs at growing sizes: processor time, peak memory, and how fast both grow.

Run as `python -m benchmarks.scale`. `benchmarks/location.py` makes the locations; files, windows, revisions and tags
grow together. Each question runs in a process of its own, after a bare opening, whose time it does not include. The
slope is the exponent between two sizes: 1 for a cost in proportion to the files.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from benchmarks.location import START, WINDOW, Generator, Shape, store_of
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import checkpoint_bytes
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.manifest import checksum_of, write_hints
from snapshot_assets.catalog.operations.expire import execute_expiry, plan_expiry
from snapshot_assets.catalog.operations.garbage import plan_collection
from snapshot_assets.catalog.operations.maintain_log import plan_pruning
from snapshot_assets.catalog.rules import Retention
from snapshot_assets.catalog.seals.statement import sign_seal
from snapshot_assets.catalog.state.file_pruning import match_files
from snapshot_assets.catalog.status import location_status
from snapshot_assets.catalog.verify import verify as verification
from snapshot_assets.catalog.verify.objects import check_head, files_to_seal
from snapshot_assets.cli.location import spare_pandas
from snapshot_assets.format import actions as act
from snapshot_assets.format.layout import HINTS, seal_path
from snapshot_assets.format.predicates import Comparison, Literal, Operator
from snapshot_assets.format.relations import TableName

KEPT = 10
COMMITS = 20


def prune_by_time(catalog: Catalog) -> None:
    """Choose the files of one window."""
    middle = START + len(catalog.state.expected_chunks()) // 2 * WINDOW
    assert match_files(catalog.state, start=middle, end=middle + WINDOW).totals()[0]


def prune_by_column(catalog: Catalog) -> None:
    """Choose the files of one table by the bounds of one column."""
    bound = Comparison("n", Operator.LESS, Literal("int64", 20_000))
    written = {1: pa.schema([("n", pa.int64())])}
    assert match_files(catalog.state, TableName("main", "t1"), bound, written).totals()[0]


def commit(catalog: Catalog) -> None:
    """Replace ten files of a window, twenty times."""
    for chunk in catalog.state.files.chunks()[-COMMITS:]:
        gone = [known.file for known in catalog.state.live_files(chunk)][:10]
        changes = [act.RemoveFile(file.path) for file in gone]
        catalog.commit(lambda _, changes=changes: changes)  # type: ignore[misc]


def seal(catalog: Catalog) -> None:
    """Check what a seal checks, without hashing, choose what it hashes, and compute the checksum."""
    assert files_to_seal(catalog.state, datetime.now(UTC), 0)
    assert not check_head(catalog.store, catalog.state, frozenset()).damaged
    checksum_of(catalog.state)


def statement(catalog: Catalog) -> None:
    """Write the statement beside the newest seal."""
    catalog.store.delete(seal_path(revision := catalog.state.seals[-1].revision))
    sign_seal(catalog.store, catalog.state, revision, None)


def hints(catalog: Catalog) -> None:
    """Write the hints, and delete them again: other questions are asked without."""
    write_hints(catalog.store, catalog.state, catalog.refresh)
    for path in HINTS:
        catalog.store.delete(path)


def verify_quick(catalog: Catalog) -> None:
    """Verify all but hints and the objects of tags, each of which is as large as a manifest."""
    setattr(verification, "pin_faults", lambda *_: iter(()))  # noqa: B010
    report = verification.verify(catalog.store, depth="quick")
    assert report.files >= catalog.state.files.totals()[0]


def prune_log(catalog: Catalog) -> None:
    """Plan to delete the log before the older of the two newest checkpoints."""
    plan_pruning(catalog, grace=timedelta(0), unsafe=True)


QUESTIONS: dict[str, Callable[[Catalog], object]] = {
    "open": lambda _: None,
    "open for writing": lambda catalog: Catalog.open_for_writing(catalog.store),
    "prune by time": prune_by_time,
    "prune by column": prune_by_column,
    "write a checkpoint": lambda catalog: checkpoint_bytes(catalog.state),
    "seal": seal,
    "statement": statement,
    "hints": hints,
    "expiry": lambda catalog: plan_expiry(catalog, Retention(KEPT)),
    "garbage": plan_collection,
    "status": lambda catalog: location_status(catalog.store, datetime.now(UTC)),
    "verify quick": verify_quick,
    "log pruning": prune_log,
    "commit": commit,
    "expiry, committed": lambda catalog: execute_expiry(catalog, plan_expiry(catalog, Retention(KEPT))),
    "garbage after it": lambda catalog: plan_collection(catalog, grace=timedelta(0), unsafe=True),
}
"""In this order: the last ones change the location."""


def ask(folder: str, question: str) -> dict[str, float]:
    """Ask one question in this process."""
    spare_pandas()  # as commands do
    store = store_of(folder)
    started = time.process_time()
    catalog = Catalog(store, read_state(store))
    opened = time.process_time()
    QUESTIONS[question](catalog)
    ended = time.process_time()
    return {"seconds": ended - (started if question == "open" else opened), "MiB": peak_memory()}


def peak_memory() -> int:
    """Return the most MiB that this process held; `getrusage` would begin with what the parent held at the fork."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM"))


def in_own_process(*arguments: str) -> dict[str, float]:
    """Run this program with other arguments in a process of its own, and return what it prints."""
    command = [sys.executable, "-m", "benchmarks.scale", *arguments]
    done = subprocess.run(command, cwd=Path(__file__).parent.parent, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return {"seconds": math.nan, "MiB": math.nan}
    return dict(json.loads(done.stdout))


def measure(folder: str, shape: Shape, questions: list[str]) -> dict[str, dict[str, float]]:
    """Make a location, ask all questions, and delete it."""
    made = in_own_process("--make", folder, *(str(each) for each in (shape.files, shape.windows, shape.tags)))
    print(f"{shape}: made in {made['seconds']:.0f} s of processor time, {made['MiB']:.0f} MiB", flush=True)
    found = {}
    for question in questions:
        found[question] = in_own_process("--ask", folder, question)
        print(f"  {question}: {found[question]['seconds']:.3f} s, {found[question]['MiB']:.0f} MiB", flush=True)
    shutil.rmtree(folder)
    return found


def table(sizes: list[int], found: list[dict[str, dict[str, float]]]) -> str:
    """Return a Markdown table of seconds and MiB by size, with the exponents between sizes."""
    lines = ["| | " + " | ".join(f"{size:,} files" for size in sizes) + " | slopes |"]
    lines.append("| --- " * (len(sizes) + 2) + "|")
    for question in found[0]:
        cells = [each[question] for each in found]
        pairs = zip(zip(sizes, cells, strict=True), list(zip(sizes, cells, strict=True))[1:], strict=False)
        slopes = [math.log(b["seconds"] / a["seconds"]) / math.log(m / n) for (n, a), (m, b) in pairs]
        shown = [f"{each['seconds']:.3g} s, {each['MiB']:.0f} MiB" for each in cells]
        lines.append(f"| {question} | {' | '.join(shown)} | {', '.join(f'{each:.2f}' for each in slopes)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure locations of growing size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--windows", type=int, help="for all sizes; one for a hundred files by default")
    parser.add_argument("--tags", type=int, help="for all sizes; one for a thousand files by default")
    parser.add_argument("--questions", nargs="+", choices=QUESTIONS, default=[*QUESTIONS])
    parser.add_argument("--folder", help="where locations are made")
    parser.add_argument("--make", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--ask", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ask:
        print(json.dumps(ask(*options.ask)))
        return
    if options.make:
        folder, files, windows, tags = options.make
        shape = Shape.of(int(files), windows=int(windows), tags=int(tags))
        Generator(folder, shape).make()
        print(json.dumps({"seconds": time.process_time(), "MiB": peak_memory()}))
        return
    others = {name: value for name in ("windows", "tags") if (value := getattr(options, name))}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        found = [measure(f"{folder}/{size}", Shape.of(size, **others), options.questions) for size in options.files]
    print(table(options.files, found))


if __name__ == "__main__":
    main()
