"""What Dagster knows of runs, for schedules and sensors."""

from __future__ import annotations

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
