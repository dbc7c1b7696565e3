"""The job `<plan>_copy` of a query with windows, and its schedule."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import dagster as dg
import duckdb
import pytest

from snapshot_assets.pipeline.automation import exports
from snapshot_assets_tests.pipeline.project import DAY, ROWS, START, Make, Project, run_job
from snapshot_assets_tests.pipeline.test_exports import closed, tick

COPY: dict[str, Any] = {
    "kind": "query",
    "query": "SELECT moment, value FROM readings WHERE moment >= :start AND moment < :end",
    "format": "json",
    "end_time": None,
    "dagster": {"export_cron": "30 4 * * *", "default_status": "running", "fresh_for": "2d"},
}


def copy(project: Project, **config: Any) -> dg.ExecuteInProcessResult:
    ops = {"demo__copy": {"config": config}} if config else {}
    return run_job(project, "demo_copy", ops, raise_on_error=False)


def copied(project: Project) -> dict[str | None, int]:
    return {key: facts["dagster/partition_row_count"] for key, facts in project.materialized("copy").items()}


@pytest.mark.slow
def test_the_schedule_copies_what_is_due_and_late_windows_again(
    make_project: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project(durable=True, late_windows=1, **COPY)
    with closed(monkeypatch, 2):
        assert copy(project).success
        assert copied(project) == dict(zip(project.keys[:2], ROWS[:2], strict=True))
        assert (len(project.state().windows()), project.state().sealed) == (2, True)
        following = "The next, 2013-01-03T00:00, is due at 2013-01-04T00:00:00Z."
        assert tick(project, "demo_copy_schedule") == f"Every closed window is exported and sealed. {following}"
    with duckdb.connect(str(project.database)) as connection:
        for day in (0, 1):
            connection.execute(f"INSERT INTO readings VALUES ('{START + day * DAY + timedelta(hours=3)}', 1, -1)")
    with closed(monkeypatch, 4):  # nothing ran for a day
        request = tick(project, "demo_copy_schedule")
        assert isinstance(request, dg.RunRequest), request
        assert run_job(project, "demo_copy", dict(request.run_config["ops"])).success
    assert copied(project) == dict(zip(project.keys[:4], (ROWS[0], ROWS[1] + 1, *ROWS[2:4]), strict=True))
    assert (len(project.state().windows()), project.state().sealed) == (4, True)


@pytest.mark.slow
def test_run_config_chooses_windows_of_a_copy(make_project: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    project = make_project(**COPY)
    with closed(monkeypatch, 0):
        assert copy(project).success  # no window has closed
    assert not project.location.exists()
    with closed(monkeypatch, 3):
        refused = copy(project, windows="yesterday")
        assert "windows 'yesterday' is neither `due` nor a range" in project.failure(refused).description
        assert copy(project, windows=f"{project.keys[1]}...{project.keys[1]}").success
        assert (list(copied(project)), project.state().sealed) == ([project.keys[1]], False)
        monkeypatch.setattr(exports, "MANY_WINDOWS", 1)
        assert copy(project).success  # the rest of what is due
        assert (len(project.state().windows()), project.state().sealed) == (3, True)
    [line] = [line for line in project.log() if line.startswith("This run copies 2 windows. Dagster stores an event")]
    assert "use a longer chunk_time_window, or runs of at most 1 windows (chunks_per_run)" in line


def test_the_schedule_waits_until_a_window_has_closed(make_project: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    project = make_project(durable=True, **COPY)
    with closed(monkeypatch, 0):
        following = "The next, 2013-01-01T00:00, is due at 2013-01-02T00:00:00Z."
        assert tick(project, "demo_copy_schedule") == f"No window of demo has closed yet. {following}"
    with closed(monkeypatch, 1):
        assert isinstance(tick(project, "demo_copy_schedule"), dg.RunRequest)


def test_a_copy_by_windows_has_a_schedule_and_is_fresh_by_the_plan(make_project: Make) -> None:
    project = make_project(**COPY)
    repository = project.definitions().get_repository_def()
    [schedule] = repository.schedule_defs
    assert (schedule.name, schedule.cron_schedule) == ("demo_copy_schedule", "30 4 * * *")
    assert schedule.default_status is dg.DefaultScheduleStatus.RUNNING
    assert schedule.description == "Copies every closed window of demo that is missing, and seals the snapshot."
    assert repository.asset_graph.get(project.key("copy")).freshness_policy is not None
    project.plan = project.plan.changed(to=f"file://{project.folder}/copies/{{now}}", dagster={})
    assert not project.definitions().get_repository_def().schedule_defs  # each copy is a whole one
