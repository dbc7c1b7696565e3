"""The job that extends the locks of a plan's location."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from snapshot_assets.errors import PlanError
from snapshot_assets.format.layout import LOCKS
from snapshot_assets.storage.options import ObjectLock
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.catalog.tags import sealed_by
from snapshot_assets_tests.pipeline.project import job, open_project
from snapshot_assets_tests.servers.locked import LockedBucket

JOB = "demo_extend_locks"


def test_the_job_extends_the_locks_of_all_that_is_needed(tmp_path: Path, lockable: LockedBucket) -> None:
    options = replace(lockable.options, lock=ObjectLock("governance", "30d"))
    began, writer = datetime.now(UTC), Writer(lockable.store())
    writer.begin()
    sealed_by(writer)
    with open_project(
        tmp_path, to=lockable.uri, storage=options, dagster={"extend_locks_cron": "0 5 * * 0"}
    ) as project:
        done = job(project, JOB, "demo_extend_all_locks")
        [schedule] = [each for each in project.definitions().schedules or () if each.job_name == JOB]
    assert schedule.cron_schedule == "0 5 * * 0"
    paths = [info.path for info in writer.store.list() if info.path not in (LOCKS, "manifest.json", "SHA256SUMS")]
    assert done["locked_objects"] == sum(each.path in paths for each in lockable.versions())
    until = datetime.fromisoformat(done["locked_until"])
    assert {lockable.bucket().retained_until(path) for path in paths} == {until}
    assert began + timedelta(days=30) < until <= datetime.now(UTC) + timedelta(days=31)


def test_a_plan_without_locks_has_no_such_job_and_its_schedule_is_refused(tmp_path: Path) -> None:
    with open_project(tmp_path) as project:
        assert JOB not in {each.name for each in project.definitions().resolve_all_job_defs()}
        project.plan = project.plan.changed(dagster={"extend_locks_cron": "0 5 * * 0"})
        with pytest.raises(PlanError, match="extend_locks_cron needs the storage option lock; write it, or remove"):
            project.definitions()
