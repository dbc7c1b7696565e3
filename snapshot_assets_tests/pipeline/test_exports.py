"""The job `<plan>_export`, its schedule, and what a run reports while it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from types import ModuleType
from typing import Any

import dagster as dg
import duckdb
import pytest
from dagster import DagsterEvent, DagsterEventType

from snapshot_assets.engine.export import chunks as engine_chunks
from snapshot_assets.engine.export import run as engine_run
from snapshot_assets.format.units import time_text
from snapshot_assets.pipeline.assets import io_manager
from snapshot_assets.pipeline.dagster import partitions
from snapshot_assets.pipeline.dagster.runs import SILENT
from snapshot_assets.plan import windows as plans
from snapshot_assets_tests.pipeline.project import DAY, RANGE_TAGS, ROWS, START, Make, Project, flip, run_job

CONTINUOUS = {"kind": "continuous", "end_time": None}


def export(project: Project, **config: Any) -> dg.ExecuteInProcessResult:
    ops = {"demo__chunks": {"config": config}} if config else {}
    return run_job(project, "demo_export", ops, raise_on_error=False)


def clock(days: int) -> Any:
    """Return a class in place of `datetime` by which so many windows are closed."""
    return type("clock", (datetime,), {"now": classmethod(lambda cls, tz=UTC: START + days * DAY)})


@contextmanager
def closed(monkeypatch: pytest.MonkeyPatch, days: int) -> Iterator[None]:
    """Let so many windows be closed."""
    with monkeypatch.context() as patched:
        patched.setattr(partitions, "datetime", clock(days))
        patched.setattr(plans, "datetime", clock(days))
        patched.setattr(engine_run, "datetime", clock(days))
        patched.setattr(io_manager, "start_of_run", lambda _: START + days * DAY)
        yield


def tick(project: Project, name: str = "demo_export_schedule") -> dg.RunRequest | str:
    """Evaluate a schedule; returns the request, or why there is none."""
    definitions = project.definitions()
    repository = definitions.get_repository_def()
    schedule = repository.get_schedule_def(name)
    with dg.build_schedule_context(
        instance_ref=project.instance.get_ref(), repository_def=repository, resources=definitions.resources
    ) as context:
        found = schedule.evaluate_tick(context)
    if found.skip_message:
        return found.skip_message
    assert found.run_requests is not None
    [request] = found.run_requests
    return request


def requested(project: Project) -> dg.ExecuteInProcessResult:
    request = tick(project)
    assert isinstance(request, dg.RunRequest), request
    return run_job(project, "demo_export", dict(request.run_config["ops"]), raise_on_error=False)


def test_a_run_without_partitions_exports_what_is_due_and_seals_it(project: Project) -> None:
    result = export(project)
    assert result.success
    state = project.state()
    assert state.sealed
    assert state.newest_seal is not None
    assert state.newest_seal.seal.consistency == "run"
    found = project.materialized()
    assert {key: facts["dagster/partition_row_count"] for key, facts in found.items()} == dict(
        zip(project.keys, ROWS, strict=True)
    )
    for asset in ("schema", "untimed_tables", "manifest"):
        assert list(project.materialized(asset)) == [None]
    assert project.checks("manifest", "files_intact") == {None: True}
    assert project.checks("chunks", "file_checksums") == dict.fromkeys(project.keys, True)

    records = project.instance.fetch_materializations(project.key("chunks"), limit=100).records
    assert len(records) == len(ROWS)  # one for each chunk
    assert all(record.asset_materialization.tags["dagster/code_version"] for record in records)
    assert len([line for line in project.log() if line.startswith("Committed ")]) >= 2


@pytest.mark.slow
def test_a_range_of_partitions_is_exported_alone_and_sealed_once_the_rest_is_there(project: Project) -> None:
    tags = dict(zip(RANGE_TAGS, (project.keys[1], project.keys[3]), strict=True))
    assert run_job(project, "demo_export", {}, tags=tags).success
    assert sorted(key or "" for key in project.materialized()) == list(project.keys[1:4])
    assert not project.materialized("manifest")
    assert any("chunks are not exported, such as chunk" in line for line in project.log())
    assert export(project, windows=f"{project.keys[4]}...{project.keys[5]}").success
    assert not project.state().sealed
    assert export(project).success
    assert project.state().sealed


def test_the_schema_counts_as_materialised_when_windows_began_the_snapshot(project: Project) -> None:
    assert project.run("chunks", keys=project.keys[:2], with_checks=False).success
    [facts] = project.materialized("schema").values()
    assert facts["snapshot_id"] == project.state().snapshot_id
    assert project.run("chunks", keys=project.keys[2:], with_checks=False).success
    assert len(project.instance.fetch_materializations(project.key("schema"), limit=9).records) == 1


def test_windows_of_a_fixed_range_that_have_not_closed_are_warned_of(make_project: Make) -> None:
    today = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - DAY / 2  # no window closes meanwhile
    project = make_project(start_time=today - DAY, end_time=today + 3 * DAY)
    assert project.run("chunks", keys=project.keys[:1], with_checks=False).success
    assert not any(line.startswith("Not closed yet") for line in project.log())
    assert project.run("chunks", keys=project.keys[:3], with_checks=False).success
    [line] = [line for line in project.log() if line.startswith("Not closed yet")]
    assert line.startswith(f"Not closed yet: 2 windows, {time_text(today)} to {time_text(today + 2 * DAY)}. Rows that")


def test_a_range_that_is_none_is_refused(project: Project) -> None:
    for windows, words in (
        ("yesterday", "windows 'yesterday' is neither `due` nor a range"),
        ("2013-01-01T00:00...2014-01-01T00:00", "no partition '2014-01-01T00:00'"),
    ):
        result = export(project, windows=windows)
        assert not result.success
        assert words in project.failure(result).description
        assert not any(chunk > 0 for chunk in project.state().chunks)


@pytest.mark.parametrize("late", [plans, engine_run])
def test_a_window_that_closes_during_a_run_belongs_to_the_next(
    make_project: Make, monkeypatch: pytest.MonkeyPatch, late: ModuleType
) -> None:
    """Whichever part of the run reads the clock first."""
    project = make_project(durable=True, late_windows=1, **CONTINUOUS)
    for days in (2, 3):
        with closed(monkeypatch, days), monkeypatch.context() as patched:
            request = tick(project)
            assert isinstance(request, dg.RunRequest)
            patched.setattr(late, "datetime", clock(days + 1))
            assert run_job(project, "demo_export", dict(request.run_config["ops"]), raise_on_error=False).success
        assert (len(project.state().windows()), project.state().sealed) == (days, True)


def test_a_run_has_the_start_that_dagster_records(make_project: Make) -> None:
    """Its steps may run in processes of their own, some before midnight and some after it."""
    project, seen = make_project(durable=True), list[datetime]()

    @dg.asset(required_resource_keys={"snapshots"})
    def reads(context) -> None:  # type: ignore[no-untyped-def]  # Dagster reads the annotation, which is text here
        seen.append(context.resources.snapshots.started)

    project.user_assets = [reads]
    run = project.definitions().resolve_implicit_global_asset_job_def().get_subset(asset_selection={reads.key})
    record = project.instance.get_run_record_by_id(run.execute_in_process(instance=project.instance).run_id)
    assert record is not None
    assert record.start_time is not None
    assert seen == [datetime.fromtimestamp(record.start_time, UTC)]


def test_coverage_warns_of_windows_that_closed_and_were_never_exported(
    make_project: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project(**CONTINUOUS)
    for days, passed in ((2, True), (3, True), (6, False)):
        with closed(monkeypatch, days):
            if days == 2:
                assert export(project).success
            assert project.run_checks("manifest", keys=()).success
            verified = run_job(project, "demo_verify", {})
        assert verified.success
        for found in (project.check("manifest", "coverage"), verified.get_asset_check_evaluations()[-1]):
            assert (found.check_name, found.passed) == ("coverage", passed)
        if not passed:
            assert found.severity is dg.AssetCheckSeverity.WARN
            late = "3 windows from 2013-01-03T00:00:00Z on closed and were never exported."
            assert found.description == (
                f"{late} Materialise the missing partitions, or run the export job, which exports them."
            )
            assert "coverage" in str(found.metadata["first_faults"])


@pytest.mark.slow
def test_the_schedule_catches_up_exports_late_windows_again_and_then_has_nothing_to_do(
    make_project: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project(durable=True, late_windows=2, **CONTINUOUS)
    with closed(monkeypatch, 4):
        assert requested(project).success
        assert (len(project.state().windows()), project.state().sealed) == (4, True)
        assert tick(project) == (
            "Every closed window is exported and sealed. The next, 2013-01-05T00:00, is due at 2013-01-06T00:00:00Z."
        )
    with duckdb.connect(str(project.database)) as connection:
        for day in (0, 2, 3):
            connection.execute(f"INSERT INTO readings VALUES ('{START + day * DAY + timedelta(hours=3)}', 1, -1)")
    with closed(monkeypatch, 6):  # it did not run for a day
        assert requested(project).success
    rows = {key: facts["dagster/partition_row_count"] for key, facts in project.materialized().items()}
    assert rows == dict(zip(project.keys[:6], (ROWS[0], ROWS[1], 1, ROWS[3] + 1, *ROWS[4:]), strict=True))
    assert (len(project.state().windows()), project.state().sealed) == (6, True)


def test_a_run_whose_process_is_gone_is_no_longer_waited_for_after_hours_without_an_event(make_project: Make) -> None:
    """A kill leaves the run as started; a run that goes on has new events, however long ago it started."""
    project = make_project(durable=True)
    instance, job = project.instance, project.definitions().resolve_job_def("demo_export")
    waiting = instance.create_run_for_job(job)
    found = str(tick(project))
    assert found.startswith(f"Run {waiting.run_id} of demo_export has not ended; its last event was ")
    assert "Force termination immediately" in found
    instance.report_run_canceled(waiting)
    gone, alive = instance.create_run_for_job(job), instance.create_run_for_job(job)
    long_ago = (datetime.now(UTC) - SILENT - timedelta(minutes=1)).timestamp()
    for run in (gone, alive):
        start = DagsterEvent(DagsterEventType.RUN_START.value, job.name)
        instance.report_dagster_event(start, run.run_id, timestamp=long_ago)
        assert instance.get_run_by_id(run.run_id).status is dg.DagsterRunStatus.STARTED
    instance.report_engine_event("exporting: 1 of 6 chunks", alive)
    assert str(tick(project)).startswith(f"Run {alive.run_id} of demo_export has not ended")
    instance.report_run_canceled(alive)
    assert isinstance(tick(project), dg.RunRequest)
    assert instance.get_run_by_id(gone.run_id).status is dg.DagsterRunStatus.STARTED


def test_a_run_that_is_cut_off_leaves_what_it_committed(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    commit, calls = engine_chunks._commit, []

    def cut_off(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return commit(*args, **kwargs)

    monkeypatch.setattr(engine_chunks, "_commit", cut_off)
    monkeypatch.setattr(engine_chunks, "Pace", partial(engine_chunks.Pace, 2))
    project.plan = project.plan.changed(parallelism=1)
    assert not export(project).success
    committed = {chunk for chunk in project.state().chunks if project.state().completed(chunk)}
    assert committed
    assert len(project.materialized()) == len(committed)
    monkeypatch.undo()
    assert export(project).success
    assert len(project.materialized()) == len(ROWS)


def test_the_events_of_a_commit_are_one_batch(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, batches = type(project.instance.event_log_storage), list[int]()
    store = storage.store_event_batch

    def counting(self: Any, events: Any) -> None:
        batches.append(sum(event.dagster_event.is_step_materialization for event in events))
        store(self, events)

    monkeypatch.setattr(storage, "store_event_batch", counting)
    assert export(project).success
    assert len(project.materialized()) == len(project.keys) == max(batches)


@pytest.mark.slow
def test_damaged_partitions_are_exported_again_and_others_are_skipped(copied: Make) -> None:
    """A changed byte, a missing file, and a missing receipt."""
    project = copied()
    flip(project.data_file(1))
    project.data_file(2).unlink()
    (project.location / project.state().chunks[4].chunk.receipts[0].path).unlink()
    assert project.run("chunks", keys=project.keys[:5], with_checks=False).success
    facts = [project.materialized()[key] for key in project.keys[:5]]
    assert [each["status"] for each in facts] == ["repaired", "repaired", "present", "repaired", "present"]
    assert [each.get("repaired") for each in facts] == ["1", "1", None, "1", None]
    assert "replace: true" in facts[4]["how_to_replace"]
    assert facts[4]["dagster/partition_row_count"] == ROWS[4]
    committed = [line for line in project.log() if line.startswith("Committed ")]
    assert committed
    assert not any("to 5: " in line or "chunk 5: " in line for line in committed)
    assert project.run("manifest").success
    assert project.checks("manifest", "files_intact") == {None: True}
