"""A run that is interrupted while it reports what it committed ends its tasks, before its process ends."""

from __future__ import annotations

import threading
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from snapshot_assets.engine.progress import Progress
from snapshot_assets_tests.pipeline.project import Project, run_job
from snapshot_assets_tests.waiting import until


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt a run at its first outcome, as Dagster does where a signal comes while an outcome is reported."""

    def interrupt(*_: Any) -> None:
        raise dg.DagsterExecutionInterruptedError

    monkeypatch.setattr(Progress, "outcome", interrupt)


def threads_of_jobs() -> list[str]:
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith(("export_", "restore_", "compact_"))]


@pytest.mark.usefixtures("interrupted")
def test_an_export_leaves_no_thread(project: Project) -> None:
    result = project.run("chunks", keys=project.keys, with_checks=False)
    assert not result.success
    assert threads_of_jobs() == []


@pytest.mark.slow
@pytest.mark.usefixtures("interrupted")
def test_a_restore_leaves_no_thread(restoring: Project) -> None:
    assert not restoring.run("restored", single=restoring.keys[0]).success
    assert threads_of_jobs() == []


@pytest.mark.usefixtures("interrupted")
def test_a_compaction_leaves_no_thread(restoring: Project) -> None:
    compact = restoring.definitions().resolve_job_def("demo_maintenance")
    config = {"ops": {"demo_maintain": {"config": {"operations": ["compact"], "chunks": [1]}}}}
    assert not compact.execute_in_process(config, restoring.instance, raise_on_error=False).success
    assert threads_of_jobs() == []


def test_a_comparison_leaves_no_task(project: Project, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    assert project.run("schema", "chunks", "untimed_tables", keys=project.keys, with_checks=False).success

    def interrupt(*_: Any) -> None:
        raise dg.DagsterExecutionInterruptedError

    monkeypatch.setattr(Progress, "stage", interrupt)
    assert not run_job(project, "demo_compare", {}, raise_on_error=False).success
    assert until(lambda: not spark.sparkContext.statusTracker().getActiveJobsIds())
    assert not project.checks("chunks", "equals_source")
