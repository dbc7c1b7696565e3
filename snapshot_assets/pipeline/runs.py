"""What Dagster knows of runs, for schedules and sensors."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import dagster as dg

_ACTIVE = (
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)


def running(instance: dg.DagsterInstance, job: str) -> bool:
    """Return whether a run of a job has not ended."""
    return bool(instance.get_run_records(dg.RunsFilter(job_name=job, statuses=list(_ACTIVE)), limit=1))


def failed_before(instance: dg.DagsterInstance, job: str, age: timedelta) -> bool:
    """Return whether the newest run of a job failed at least so long ago."""
    records = instance.get_run_records(dg.RunsFilter(job_name=job), limit=1)
    if not records or records[0].dagster_run.status is not dg.DagsterRunStatus.FAILURE:
        return False
    ended = datetime.fromtimestamp(records[0].end_time or 0, UTC)
    return datetime.now(UTC) - ended >= age
