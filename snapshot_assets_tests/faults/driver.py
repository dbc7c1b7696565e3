"""Runs exports that tests may kill: `python -m snapshot_assets_tests.faults.driver`.

Reads one JSON list of jobs per line, forks a child for each job, and answers with one JSON list of results. The parent
imports everything once and opens nothing, so a child starts in milliseconds and a fork is safe.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow.compute
import pyarrow.parquet  # noqa: F401  (the children need both)

from snapshot_assets.catalog.log import store as log
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.databases.duckdb import target as duckdb_target  # noqa: F401
from snapshot_assets.databases.open import open_target
from snapshot_assets.databases.postgresql import target as postgresql_target  # noqa: F401
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.databases.protocol.sql_target import SqlTarget
from snapshot_assets.engine.export.changes import find_changes
from snapshot_assets.engine.export.copy import copy
from snapshot_assets.engine.export.run import ExportRun
from snapshot_assets.engine.export.tasks import Outcome, Task, run_task
from snapshot_assets.engine.restore.run import RestoreRun
from snapshot_assets.engine.retry import RetryPolicy
from snapshot_assets.engine.runner import InlineRunner
from snapshot_assets.errors import SnapshotError
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage import local  # noqa: F401
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.engine.restore.imports import IN_RANGE, Into
from snapshot_assets_tests.faults.source import CHUNKS, PLAN, differences
from snapshot_assets_tests.faults.store import Fault, FaultyStore
from snapshot_assets_tests.waiting import until

_TARGET_CALLS = ("_execute", "_rows", "_insert")
_TARGET_USERS = ("snapshot_assets.engine.restore.run", "snapshot_assets.engine.restore.loader")


@dataclass
class Recorder(InlineRunner):
    """A runner that remembers which chunks were read from the source."""

    read: list[int] = field(default_factory=list)

    def map(self, function: Any, tasks: Sequence[Task]) -> Iterable[Outcome]:
        if function is run_task:  # others compare
            self.read += [work.chunk for task in tasks for work in task.works]
        return super().map(function, tasks)


def export(
    source: str,
    location: str,
    *,
    fault: dict[str, Any] | None = None,
    plan: dict[str, Any] | None = None,
    chunks: Sequence[int] = CHUNKS,
    force: bool = False,
    replace: bool = False,
    changed: bool = False,
    seal: bool = True,
    start_after: str = "",
    signal_to: str = "",
) -> dict[str, Any]:
    """Run begin, export and seal, and return what was done; `changed` exports again what changed in the source."""
    store, runner = _store(location, fault), Recorder()
    run = _run(source, store, runner, PLAN | (plan or {}), force=force)
    result: dict[str, Any] = {"run": run.run_id, "outcomes": {}}
    with _reported(result, start_after, signal_to), run.open() as export:
        for outcome in export.export(chunks, replace_completed=replace):
            result["outcomes"][outcome.chunk] = outcome.status
        if changed:
            only = find_changes(export, CHUNKS).only
            list(export.commits(list(only), replace_completed=True, only=only))
        if seal:
            result["sealed"] = export.seal().seal.revision
    return result | {"read": runner.read, "trace": store.trace}


def copy_query(
    source: str, location: str, *, query: str, plan: dict[str, Any], fault: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Copy a query, and return what was done."""
    store, runner = _store(location, fault), Recorder()
    run = _run(source, store, runner, {"name": PLAN["name"], "kind": "query", "query": query, **plan})
    result: dict[str, Any] = {"run": run.run_id}
    with _reported(result, "", ""):
        done = copy(run)
        assert done.sealed is not None
        result["sealed"] = done.sealed.seal.revision
    return result | {"read": runner.read, "trace": store.trace}


def _store(location: str, fault: dict[str, Any] | None) -> FaultyStore:
    return FaultyStore(open_store(parse_location(location)), Fault(**(fault or {})))


def _run(source: str, store: FaultyStore, runner: Recorder, plan: dict[str, Any], *, force: bool = False) -> ExportRun:
    return ExportRun(
        Plan(**(plan | {"source": source, "to": store.uri})),
        DatabaseAddress("source", source),
        store,
        runner,
        f"run-{os.getpid()}",
        force=force,
        retry=RetryPolicy(base=0),
    )


@contextmanager
def _reported(result: dict[str, Any], start_after: str, signal_to: str) -> Iterator[None]:
    """Wait for one file, put an error of the run into its result, and create the other file."""
    if start_after:
        until(Path(start_after).exists)
    try:
        yield
    except SnapshotError as error:
        result["error"] = [kind.__name__ for kind in type(error).__mro__]
        result["message"] = str(error)
    if signal_to:
        Path(signal_to).touch()


@contextmanager
def counted_targets(store: FaultyStore) -> Iterator[None]:
    """Within the context, count and strike every statement to a target like a call of the store."""

    def counted(address: DatabaseAddress) -> SqlTarget:
        target = open_target(address)
        own = vars(target)["_own"]  # what the plug-in opened, which calls its own methods past the boundary
        for name in _TARGET_CALLS:
            setattr(own, name, _struck(store, name.removeprefix("_"), getattr(own, name)))
        return target

    with patch(f"{_TARGET_USERS[0]}.open_target", counted), patch(f"{_TARGET_USERS[1]}.open_target", counted):
        yield


def _struck(store: FaultyStore, operation: str, call: Any) -> Any:
    def run(*arguments: Any) -> Any:
        what = arguments[-1] if operation != "insert" else f"into {arguments[0].table_name}"
        with store._call(operation, str(what)):
            return call(*arguments)

    return run


def restore(
    location: str,
    target: str,
    *,
    fault: dict[str, Any] | None = None,
    chunks: Sequence[int] = (),
    again: bool = False,
    start_after: str = "",
    signal_to: str = "",
) -> dict[str, Any]:
    """Run one import and return what was done; faults also strike calls to the target."""
    store = _store(location, fault)
    result: dict[str, Any] = {"outcomes": {}}
    with counted_targets(store):
        run = RestoreRun(store, DatabaseAddress("target", target), InlineRunner(), retry=RetryPolicy(base=0))
        with _reported(result, start_after, signal_to):
            run.begin(chunks, chunks if again else ())
            for outcome in run.restore():
                result["outcomes"][outcome.chunk] = outcome.status
            result["finished"] = run.finish()
    return result | {"trace": store.trace}


def compare(source: str, location: str, target: str) -> dict[str, Any]:
    """Compare an import's target with the source, and return what the import left at the location."""
    into = Into(target)
    return {
        "differences": {table: len(rows) for table, rows in into.differences(source, IN_RANGE).items()},
        "tags": sorted(read_state(open_store(parse_location(location))).tags),
        "imports": len(into.imports()),
    }


def check(source: str, location: str, query: str = "") -> dict[str, Any]:
    """Verify a location in full and compare its rows with the source's, or with those of the query."""
    parsed = parse_location(location)
    store = open_store(parsed)
    report = verify(store, depth="full")
    return {
        "damage": [f"{fault.kind}: {fault.message}" for fault in report.faults if fault.is_damage],
        "warnings": [f"{fault.kind}: {fault.object}" for fault in report.faults if not fault.is_damage],
        "differences": {
            table: len(rows) for table, rows in differences(source, store, parsed.local_path, query).items()
        },
    }


JOBS = {"export": export, "copy": copy_query, "check": check, "restore": restore, "compare": compare}


def _child(job: dict[str, Any], pipe: int) -> None:
    try:
        answer = JOBS[job.pop("job")](**job)
    except BaseException:
        answer = {"crash": traceback.format_exc()}
    with os.fdopen(pipe, "w") as out:
        json.dump(answer, out)


def _fork(job: dict[str, Any]) -> tuple[int, int]:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _child(job, writer)
        os._exit(0)
    os.close(writer)
    return pid, reader


def _join(pid: int, reader: int) -> dict[str, Any]:
    with os.fdopen(reader) as answer:
        text = answer.read()
    _, status = os.waitpid(pid, 0)
    return {"signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, **(json.loads(text) if text else {})}


def main() -> None:
    log._SETTLE_WAIT = 0
    for line in sys.stdin:
        children = [_fork(job) for job in json.loads(line)]
        print(json.dumps([_join(*child) for child in children]), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
