"""However partitions are run, each has the same events and the same stored rows: single, a range, or a backfill."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pytest
from dagster._core.definitions.automation_tick_evaluation_context import build_run_requests_with_backfill_policies
from dagster._core.definitions.events import AssetKeyPartitionKey
from pyspark.sql import SparkSession

from snapshot_assets_tests.pipeline.project import DAY, QUIET, START, Make, Project, open_project

OF_ONE_RUN = {"snapshot_id", "seconds", "rows_per_second", "mib_per_second", "files", "bytes", "size", "chunk_checksum"}
"""Metadata of how a run went, and of its files: names and footers have ids and times, which may be a digit shorter."""

RUNS = {"single": 3, "range": 1, "backfill": 1, "backfill_by_two": 2}


def singly(project: Project) -> int:
    for key in project.keys:
        assert project.run("chunks", single=key, with_checks=False).success
    return len(project.keys)


def as_range(project: Project) -> int:
    assert project.run("chunks", keys=project.keys, with_checks=False).success
    return 1


def as_backfill(project: Project) -> int:
    """Run what Dagster's daemon requests for a backfill of all partitions; returns the number of runs."""
    definitions = project.definitions()
    wanted = [AssetKeyPartitionKey(project.key("chunks"), key) for key in project.keys]
    graph = definitions.get_repository_def().asset_graph
    requests = build_run_requests_with_backfill_policies(wanted, graph, project.instance)
    selection = dg.AssetSelection.assets(project.key("chunks")).without_checks()
    jobs = dg.Definitions(jobs=[dg.define_asset_job("run", selection)])
    job = dg.Definitions.merge(definitions, jobs).resolve_job_def("run")
    for request in requests:
        assert job.execute_in_process(instance=project.instance, tags=dict(request.tags), run_config=QUIET).success
    return len(requests)


def shown(project: Project) -> list[tuple[str, dict[str, Any], set[str]]]:
    """Return each partition's events: metadata, apart from that of one run, and the names of tags."""
    found = []
    for asset in (["demo", "chunks"], ["demo", "main", "readings"]):
        records = project.instance.fetch_materializations(dg.AssetKey(asset), limit=100, ascending=True).records
        for record in sorted(records, key=lambda record: record.partition_key or ""):
            event = record.asset_materialization
            assert event is not None
            assert event.partition is not None
            kept = {name: value.value for name, value in event.metadata.items() if name not in OF_ONE_RUN}
            found.append((f"{asset[-1]} {event.partition}", kept, set(event.tags)))
    return found


def stored(project: Project) -> list[tuple[Any, ...]]:
    """Return the rows of each chunk, in the file's order."""
    files = [known.file for known in project.state().live_files()]
    rows = "SELECT * EXCLUDE filename FROM read_parquet($path, filename = true)"
    return [
        (file.chunk, duckdb.execute(rows, {"path": str(project.location / file.path)}).fetchall())
        for file in sorted(files, key=lambda file: file.chunk)
    ]


@pytest.fixture
def projects(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., Project]]:
    with ExitStack() as stack:

        def make(name: str, **fields: Any) -> Project:
            (tmp_path / name).mkdir()
            end = START + 3 * DAY  # the third day has no rows
            project = open_project(tmp_path / name, end_time=end, tables=["main.readings"], **fields)
            return stack.enter_context(project)

        yield make


@pytest.mark.slow
def test_however_partitions_are_run_their_events_and_rows_are_the_same(projects: Make) -> None:
    ways: dict[str, tuple[Callable[[Project], int], dict[str, Any]]] = {
        "single": (singly, {}),
        "range": (as_range, {}),
        "backfill": (as_backfill, {}),
        "backfill_by_two": (as_backfill, {"chunks_per_run": 2}),
    }
    made = {name: projects(name, **fields) for name, (_, fields) in ways.items()}
    assert {name: run(made[name]) for name, (run, _) in ways.items()} == RUNS
    events = {name: shown(project) for name, project in made.items()}
    assert [name for name, _, _ in events["single"]] == [
        f"{asset} {key}" for asset in ("chunks", "readings") for key in made["single"].keys
    ]
    for name, project in made.items():
        assert events[name] == events["single"], name
        assert stored(project) == stored(made["single"]), name
