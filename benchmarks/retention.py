"""Expiry and garbage collection where many revisions and tags share their files: no time may grow with a product.

Run as `python -m benchmarks.retention`. Every revision replaces ten of a location's files and is sealed; tags pin
some of them, spread evenly. Then all but the newest ten expire. Finally the tags are deleted one by one, each of
which the log records as an expiry, and garbage is collected.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TypeVar

from benchmarks.catalog import HEADER, START, data_file, store_of
from snapshot_assets.catalog import catalog as catalogs
from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.operations.expire import execute_expiry, plan_expiry
from snapshot_assets.catalog.operations.garbage import plan_collection
from snapshot_assets.catalog.pins.tags import delete_tag
from snapshot_assets.catalog.rules import Retention
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.format import actions as act
from snapshot_assets.format.documents import pretty_json, sha256_hex

T = TypeVar("T")
REPLACED = 10
KEPT = 10
OBJECT = pretty_json({"version": 1, "manifest": {}})
"""Stands for a tag's object, the size of which is another matter."""


def make(catalog: Catalog, revisions: int, tags: int, files: int) -> None:
    """Fill a location: some files, revisions that each replace ten of them, and tags spread over these."""
    schema = rules.SchemaContent("schema/000000000000", "0" * 64, ())
    catalog.commit(rules.begin(replace(HEADER, end=START + timedelta(hours=1)), schema))
    live = [data_file(1, number, f"{number:08x}") for number in range(files)]
    catalog.commit(lambda _: [act.AddFile(file) for file in live])
    sealed = []
    for number in range(revisions):
        place = number * REPLACED % files
        gone = live[place : place + REPLACED]
        new = [data_file(1, place + at, f"{files + number * REPLACED + at:08x}") for at in range(len(gone))]
        live[place : place + REPLACED] = new
        changes = [*(act.RemoveFile(file.path) for file in gone), *map(act.AddFile, new)]
        sealed.append(catalog.commit(partial(sealed_with, changes)))
    for number in range(tags):
        name, revision = f"t{number}", sealed[number * revisions // tags]
        path = f"tag/tag-{name}-00000000"
        catalog.store.create(path, OBJECT)
        ref = act.ObjectRef(path, sha256_hex(OBJECT), len(OBJECT))
        assert revision is not None
        created = act.TagCreated(name, revision, ref, datetime.now(UTC))
        catalog.commit(partial(only, created))


def sealed_with(changes: list[act.Action], state: State) -> list[act.Action]:
    """Return changes, and a seal after them."""
    return [*changes, act.Seal(state.revision, "0" * 64, "run")]


def only(action: act.Action, _: State) -> list[act.Action]:
    """Return one action."""
    return [action]


def measured(revisions: int, tags: int, files: int, rounds: int) -> dict[str, float]:
    """Return seconds of processor time: deciding an expiry and committing it, and looking for garbage without tags.

    The first two are medians over copies; garbage is looked for in the last one.
    """
    with tempfile.TemporaryDirectory() as folder:
        store = store_of(f"{folder}/made")
        catalogs.CHECKPOINT_INTERVAL = 10**9
        catalog = Catalog.open_for_writing(store)
        make(catalog, revisions, tags, files)
        write_checkpoint(store, catalog.state)
        decided, committed = [], []
        for number in range(rounds):
            shutil.copytree(f"{folder}/made", f"{folder}/{number}")
            copy = store_of(f"{folder}/{number}")
            catalog = Catalog(copy, read_state(copy))
            took, plan = seconds(partial(plan_expiry, catalog, Retention(KEPT)))
            decided.append(took)
            took, done = seconds(partial(execute_expiry, catalog, plan))
            committed.append(took)
        for number in range(tags):
            delete_tag(catalog, f"t{number}")
        looked_for = [seconds(partial(plan_collection, catalog))[0] for _ in range(rounds)]
    assert len(done.expired) == revisions - KEPT
    return {
        "revisions": revisions,
        "tags": tags,
        "files": files + revisions * REPLACED,
        "decided s": statistics.median(decided),
        "committed s": statistics.median(committed),
        "garbage s": statistics.median(looked_for),
        "released objects": len(done.released),
    }


def seconds(work: Callable[[], T]) -> tuple[float, T]:
    """Return the processor time of some work in seconds, and its result."""
    started = time.process_time()
    result = work()
    return time.process_time() - started, result


def main() -> None:
    """Measure growing numbers of revisions and tags, together and each alone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for revisions, tags in ((250, 91), (1000, 91), (250, 240), (1000, 365)):
        found = measured(revisions, tags, options.files, options.rounds)
        print(json.dumps({name: round(value, 3) for name, value in found.items()}), flush=True)


if __name__ == "__main__":
    main()
