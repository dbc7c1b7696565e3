"""Errors as Dagster shows them, and runs that a schedule or sensor waits for.

Errors have a remedy. Dagster never retries them, because the run has retried already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg

from snapshot_assets.engine.jobs import by_cause
from snapshot_assets.errors import (
    BrokenLinkError,
    CompactionFailedError,
    DamageError,
    ExportFailedError,
    ForeignLocationError,
    ForkError,
    GapError,
    IncompleteError,
    LostLogError,
    MisnamedError,
    PartlyRestoredError,
    RestoreFailedError,
    SchemaIncompleteError,
    SnapshotError,
    TornObjectError,
    UsageError,
)
from snapshot_assets.format.units import human_seconds
from snapshot_assets.pipeline.dagster.metadata import failed_steps

_OF_CHUNKS = (ExportFailedError, RestoreFailedError, CompactionFailedError)
_OF_LOGS = (BrokenLinkError, ForeignLocationError, ForkError, GapError, LostLogError, MisnamedError, TornObjectError)
_REMEDIES: tuple[tuple[tuple[type[SnapshotError], ...], str], ...] = (
    (
        _OF_CHUNKS,
        "Correct what the errors in `failed_chunks` name, then run again: chunks that are complete stay as they are.",
    ),
    (
        _OF_LOGS,
        "The message says what repairs the log: mostly `snapshots catalog rebuild`. `snapshots export verify` names all"
        " faults.",
    ),
    (
        (PartlyRestoredError,),
        "Bring the damaged files, which `snapshots export verify` names, back from a copy or a replica; then run again:"
        " only what was left out is loaded.",
    ),
    (
        (DamageError,),
        "Launch the plan's job `verify` with `depth: full`: it shows every damaged partition as a failed check."
        " Materialise those partitions again, then `manifest`. `snapshots export verify` names what is damaged, too.",
    ),
    (
        (SchemaIncompleteError,),
        "Once the causes in `failed_steps` are gone, run again, which tries only these steps, or run"
        " their statements by hand. With `expressions: false` those that are SQL text of the snapshot are left out.",
    ),
    (
        (IncompleteError,),
        "Materialise the missing partitions, then `manifest`. The job `export` of a database's plan does both.",
    ),
    (
        (UsageError,),
        "Correct what the message names, in the plan or in the run config. After a change of the plan, reload the code"
        " location. Then run again.",
    ),
)
_MAY_PASS = "Every cause may pass by itself: run again. Chunks that are complete stay as they are."
_RUN_AGAIN = "Once the cause is gone, run again: what was committed stays, and is not done a second time."


@contextmanager
def showing_failures() -> Iterator[None]:
    """Raise errors of this package as failures that Dagster shows; see `as_failure`.

    Raises:
        dagster.Failure: What runs in the context failed.
    """
    try:
        yield
    except SnapshotError as error:
        raise as_failure(error) from error


@contextmanager
def showing_failed_ticks() -> Iterator[None]:
    """Raise errors of this package with their remedies as the tick of a schedule or sensor shows them: as its message.

    Raises:
        dagster.Failure: What runs in the context failed; the next tick tries again.
    """
    try:
        yield
    except SnapshotError as error:
        remedy = _remedy_of(error, "Once the cause is gone, the next tick goes on.")
        raise dg.Failure(f"{error} {remedy}", allow_retries=False) from error


def as_failure(error: Exception, remedy: str = "") -> dg.Failure:
    """Return an error as a Dagster failure with a remedy, which no retry policy repeats.

    Args:
        error: The error.
        remedy: How to go on, as Markdown; by default what the kind of error asks for.
    """
    remedy = remedy or _remedy_of(error, _RUN_AGAIN)
    metadata: dict[str, Any] = {"remedy": dg.MetadataValue.md(remedy), "error": type(error).__name__}
    if isinstance(error, SchemaIncompleteError):
        metadata["failed_steps"] = failed_steps(error.attributes["steps"])
    if isinstance(error, _OF_CHUNKS):
        groups = by_cause(error.attributes["chunks"])
        metadata["failed_chunks"] = dg.MetadataValue.json([{"chunks": each, "error": text} for each, text in groups])
        metadata["causes"] = dg.MetadataValue.json(error.attributes.get("causes", []))
    description = str(error) if isinstance(error, SnapshotError) else f"{type(error).__name__}: {error}"
    return dg.Failure(description=description, metadata=metadata, allow_retries=False)


def joined(failures: Sequence[dg.Failure]) -> dg.Failure:
    """Return one failure for all; of metadata with one name, the first counts."""
    metadata = {name: value for each in reversed(failures) for name, value in each.metadata.items()}
    text = "\n".join(filter(None, (each.description for each in failures)))
    return dg.Failure(description=text, metadata=metadata, allow_retries=False)


def _remedy_of(error: Exception, otherwise: str) -> str:
    if isinstance(error, _OF_CHUNKS) and error.attributes.get("transient"):
        return _MAY_PASS
    return next((text for kinds, text in _REMEDIES if isinstance(error, kinds)), otherwise)


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

    Args:
        context: The tick.
        job: The job's name.
    """
    active = dg.RunsFilter(job_name=job, statuses=list(_ACTIVE))
    for record in context.instance.get_run_records(active):
        run = record.dagster_run
        age = datetime.now(UTC) - _last_event(context.instance, record)
        found = f"Run {run.run_id} of {job} has not ended; its last event was {human_seconds(age.total_seconds())} ago."
        if age < SILENT or run.status is dg.DagsterRunStatus.QUEUED:
            return f"{found} {_TO_END}"
        context.log.warning(f"{found} Nothing waits for it any longer. {_TO_END}")
    return None


def _last_event(instance: dg.DagsterInstance, record: dg.RunRecord) -> datetime:
    """Return when a run wrote its last event; when it was created if it has none."""
    events = instance.get_records_for_run(record.dagster_run.run_id, limit=1, ascending=False).records
    return datetime.fromtimestamp(events[0].timestamp, UTC) if events else record.create_timestamp


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
