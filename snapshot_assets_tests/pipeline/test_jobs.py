"""The jobs of regular work, run as Dagster runs them, on a location that was filled without Spark."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from snapshot_assets.catalog.log.replay import list_log, read_state
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.format.layout import checkpoint_path
from snapshot_assets.format.units import human_bytes
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.pipeline.project import Project, maintain, open_project, run_job

JOBS = {"demo_maintenance", "demo_verify"}


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with open_project(tmp_path) as project:
        yield project


@pytest.fixture
def writer(project: Project) -> Writer:
    """A sealed location with an orphan of two days ago, `old`, and garbage that is younger than the grace of a day."""
    writer = Writer(open_store(parse_location(project.plan.to)))
    writer.begin()
    writer.fill()
    writer.complete(1, writer.file(1, b"late rows"), replaces=tuple(writer.catalog.state.files.chunk(1)))
    seal(writer.catalog)
    return writer


@pytest.fixture
def old(project: Project, writer: Writer) -> str:
    path = writer.file(2, b"an orphan").path
    then = time.time() - 2 * 86_400
    os.utime(project.location / path, (then, then))
    return path


def test_the_checkpoint_job_writes_one_and_finds_it_there_again(project: Project, writer: Writer) -> None:
    first = maintain(project, "checkpoint")
    head = writer.catalog.state.revision
    size = (project.location / checkpoint_path(head)).stat().st_size
    sizes = {"bytes": size, "size": human_bytes(size)}
    assert first == {"revision": str(head), "object": checkpoint_path(head), "newly_written": True} | sizes
    assert list_log(writer.store).checkpoints == [head]
    assert maintain(project, "checkpoint") == first | {"newly_written": False}
    assert read_state(writer.store).checkpointed == head


def test_the_gc_job_deletes_what_is_old_enough_and_tells_what(project: Project, writer: Writer, old: str) -> None:
    found = maintain(project, "gc")
    assert not (project.location / old).exists()
    assert (found["dry_run"], found["objects"], found["bytes"], found["orphan_bytes"]) == (False, "1", 9, 9)
    assert found["waiting_objects"] == "2"  # the replaced file, and its receipt
    [row] = found["garbage"].records
    assert (row.data["object"], row.data["reason"], row.data["bytes"]) == (old, "orphan", 9)
    seen = project.observed("manifest")
    assert (seen["objects"], seen["bytes"], seen["size"], seen["waiting_objects"]) == ("1", 9, human_bytes(9), "2")
    assert not [fault for fault in verify(writer.store).faults if fault.is_damage]
    assert maintain(project, "gc")["objects"] == "0"


def test_maintenance_runs_all_operations_in_their_order(project: Project, writer: Writer, old: str) -> None:
    result = run_job(project, "demo_maintenance", {})
    done = [event.step_output_data for event in result.all_events if event.is_successful_output]
    assert [each.output_name for each in done] == ["compact", "checkpoint", "gc"]
    assert [each.metadata["bytes"].value for each in done[1:]] == [
        (project.location / checkpoint_path(read_state(writer.store).revision)).stat().st_size,
        9,
    ]
    assert not (project.location / old).exists()


def test_a_dry_run_of_maintenance_touches_nothing(project: Project, writer: Writer, old: str) -> None:
    before = {path: path.stat().st_mtime for path in project.location.rglob("*")}
    config = {"demo_maintain": {"config": {"dry_run": True}}}
    result = run_job(project, "demo_maintenance", config)
    done = {
        each.step_output_data.output_name: each.step_output_data.metadata
        for each in result.all_events
        if each.is_successful_output
    }
    assert {name: facts["dry_run"].value for name, facts in done.items()} == dict.fromkeys(done, True)
    assert set(done) == {"compact", "checkpoint", "gc"}
    assert (done["gc"]["objects"].value, done["gc"]["garbage"].records[0].data["object"]) == ("1", old)
    assert not project.instance.fetch_observations(project.key("manifest"), limit=1).records
    assert {path: path.stat().st_mtime for path in project.location.rglob("*")} == before


def only(*operations: str) -> dict[str, Any]:
    return {"demo_maintain": {"config": {"operations": list(operations)}}}


def test_an_operation_that_the_plan_does_not_have_is_refused(project: Project, writer: Writer) -> None:
    result = run_job(project, "demo_maintenance", only("retention", "gc"), raise_on_error=False)
    assert project.failure(result).description == (
        "Plan 'demo' has no operation 'retention'; write some of compact, checkpoint, gc."
    )


def test_a_job_where_nothing_was_exported_fails_and_makes_nothing(project: Project) -> None:
    for name in sorted(JOBS):
        result = run_job(project, name, {}, raise_on_error=False)
        assert "There is no snapshot at" in project.failure(result).description
    assert read_state(open_store(parse_location(project.plan.to))).revision == 0


def test_a_damaged_log_fails_the_job_with_its_words(project: Project, writer: Writer, old: str) -> None:
    torn = project.location / "transactions" / "00000000000000000004.txn"
    torn.write_bytes(torn.read_bytes()[:-1])
    result = run_job(project, "demo_maintenance", only("gc"), raise_on_error=False)
    assert "00000000000000000004.txn" in project.failure(result).description
    assert project.failure(result).metadata["error"].value == "TornObjectError"
    assert (project.location / old).exists()


def test_each_job_has_a_schedule_that_is_stopped_and_asks_for_a_run_of_it(tmp_path: Path) -> None:
    with open_project(tmp_path, durable=True) as project:
        _check_schedules(project)


def _check_schedules(project: Project) -> None:
    repository = project.definitions().get_repository_def()
    schedules = {schedule.job_name: schedule for schedule in repository.schedule_defs}
    assert set(schedules) == JOBS | {"demo_export"}
    for schedule in schedules.values():
        assert schedule.default_status is dg.DefaultScheduleStatus.STOPPED
        assert schedule.execution_timezone == "UTC"
        assert schedule.description
        definitions = project.definitions()
        with dg.build_schedule_context(
            instance_ref=project.instance.get_ref(),
            repository_def=repository,
            resources=definitions.resources,
            scheduled_execution_time=datetime(2025, 6, 1, 2, 15, tzinfo=UTC),
        ) as context:
            tick = schedule.evaluate_tick(context)
        assert tick.run_requests is not None
        assert len(tick.run_requests) == 1
    assert not project.location.exists()  # definitions and ticks connect to nothing


def test_a_plan_without_rows_has_them_too(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"schema_only": True, "start_time": None, "end_time": None, "chunk_time_window": None}
    with open_project(tmp_path, parallelism=None, **fields) as project:
        names = {job.name for job in project.definitions().resolve_all_job_defs()}
        assert names >= JOBS
