"""Other runs of a job: whether a schedule or sensor waits for one, and how the last one ended."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import dagster as dg

from snapshot_assets.format.units import human_seconds

_TO_END = (
    "If its process is gone, end it on its page in the UI: Terminate, with `Force termination immediately`. Until then"
    " it may keep a place in a pool."
)


_ACTIVE = (
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)


SILENT = timedelta(hours=6)
"""How long a run may have had no event and still count as running.

A run writes a line every 30 s while its tasks report, and one for each commit. It writes nothing while it hashes files
for a seal, or waits for a query of the source's to begin, which takes hours at most.
"""


def why_to_wait(context: dg.ScheduleEvaluationContext | dg.SensorEvaluationContext, job: str) -> str | None:
    """Return why a tick requests no run: another run of the job has not ended; None if there is no such run.

    Dagster shows a run as started for ever if its machine, container or command was killed. Such a run has no new
    events: it is ignored with a warning, because runs of one plan do not disturb each other.
    """
    active = dg.RunsFilter(job_name=job, statuses=list(_ACTIVE))
    for record in context.instance.get_run_records(active):
        run = record.dagster_run
        events = context.instance.get_records_for_run(run.run_id, limit=1, ascending=False).records
        last = datetime.fromtimestamp(events[0].timestamp, UTC) if events else record.create_timestamp
        age = datetime.now(UTC) - last
        found = f"Run {run.run_id} of {job} has not ended; its last event was {human_seconds(age.total_seconds())} ago."
        if age < SILENT or run.status is dg.DagsterRunStatus.QUEUED:
            return f"{found} {_TO_END}"
        context.log.warning(f"{found} Nothing waits for it any longer. {_TO_END}")
    return None


def start_of_run(context: dg.InitResourceContext) -> datetime:
    """Return when the run of a resource started, also in the process of one of its steps; the present without a run."""
    record = context.instance.get_run_record_by_id(context.run.run_id) if context.instance and context.run else None
    return datetime.fromtimestamp(record.start_time, UTC) if record and record.start_time else datetime.now(UTC)


def failed_before(instance: dg.DagsterInstance, job: str, age: timedelta) -> bool:
    """Return whether the newest run of a job failed at least so long ago."""
    records = instance.get_run_records(dg.RunsFilter(job_name=job), limit=1)
    if not records or records[0].dagster_run.status is not dg.DagsterRunStatus.FAILURE:
        return False
    ended = datetime.fromtimestamp(records[0].end_time or 0, UTC)
    return datetime.now(UTC) - ended >= age
