"""Dagster jobs that maintain a plan's location, each with a schedule that ships stopped. Importing connects to nothing.

They are ops, not assets, because they make no new data. The metadata of an op's outputs reports what it did.
"""

# Dagster reads the annotations of ops and schedules, so they must not be postponed here.
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, time

import dagster as dg

from snapshot_assets.errors import PlanError
from snapshot_assets.pipeline.automation.maintenance import (
    MaintenanceConfig,
    apply_retention,
    collect_garbage,
    compact,
    make_savepoint,
    write_checkpoint,
)
from snapshot_assets.pipeline.automation.restores import drill_op
from snapshot_assets.pipeline.automation.verification import verify_op
from snapshot_assets.pipeline.dagster.failures import as_failure, joined, showing_failures
from snapshot_assets.pipeline.dagster.partitions import schedule_status
from snapshot_assets.pipeline.dagster.resources import SNAPSHOTS
from snapshot_assets.plan.plan import Plan

_OPERATIONS = {
    "retention": (apply_retention, "Creates the tag that is due, deletes expired ones, expires revisions."),
    "compact": (compact, "Merges small files of a table and chunk, and rewrites files with deleted rows."),
    "savepoint": (make_savepoint, "Compacts and pins everything if a savepoint is due, deletes the oldest ones."),
    "checkpoint": (write_checkpoint, "Writes the checkpoint of the newest revision."),
    "gc": (collect_garbage, "Deletes what no sealed revision, pin or writer needs, after the plan's grace."),
}
"""In the order in which they run: what releases objects, what rewrites them, then what deletes them."""

_DAILY, _VERIFY, _MONTHLY = time(2, 15), "30 3 * * *", "0 4 1 * *"
"""When schedules tick without a time of the plan's own, UTC."""
_SUNDAY = 6


def plan_jobs(plan: Plan, spark_key: str) -> list[dg.JobDefinition]:
    """Return the jobs of a plan's location: maintenance, verify and, with `scratch`, restore_drill."""
    jobs = {
        "maintenance": (maintenance_op(plan, spark_key), f"Maintains `{plan.to}`: {', '.join(_times(plan))}."),
        "verify": (verify_op(plan), f"Verifies `{plan.to}`; damage fails the run, and the checks of what has it."),
    }
    if plan.scratch:
        drill = f"Restores the newest tag of `{plan.to}` into a scratch database, compares all rows, and drops it."
        jobs["restore_drill"] = (drill_op(plan, spark_key), drill)
    return [
        dg.GraphDefinition(name=f"{plan.name}_{name}", description=description, node_defs=[op]).to_job()
        for name, (op, description) in jobs.items()
    ]


def maintenance_op(plan: Plan, spark_key: str) -> dg.OpDefinition:
    """Return the op of `<plan>_maintenance`, with an output for each operation, whose metadata reports what it did."""

    @dg.op(
        name=f"{plan.name}_maintain",
        required_resource_keys={SNAPSHOTS, spark_key},
        out={name: dg.Out(dg.Nothing, is_required=False, description=_OPERATIONS[name][1]) for name in _times(plan)},
        description="Runs one operation after the other; one that fails does not keep the next from running.",
    )
    def maintain(context: dg.OpExecutionContext, config: MaintenanceConfig) -> Iterator[dg.Output[None]]:
        with showing_failures():
            chosen = _chosen(plan, config)
        failures = []
        for name in chosen:
            try:
                facts = _OPERATIONS[name][0](context, plan, config)
            except Exception as error:
                if len(chosen) == 1:
                    raise
                failures.append(_failure_of(name, error))
                context.log.error(failures[-1].description or name)
            else:
                yield dg.Output(None, name, metadata=facts)
        if failures:
            raise joined(failures)

    return maintain


def _chosen(plan: Plan, config: MaintenanceConfig) -> list[str]:
    """Return the operations of a run, in their order.

    Raises:
        PlanError: The plan has no such operation.
    """
    operations = list(_times(plan))
    for name in set(config.operations).difference(operations):
        raise PlanError(f"Plan {plan.name!r} has no operation {name!r}; write some of {', '.join(operations)}.")
    return [name for name in operations if name in config.operations or not config.operations]


def _failure_of(name: str, error: Exception) -> dg.Failure:
    """Return an operation's error as a failure that names it."""
    failure = error if isinstance(error, dg.Failure) else as_failure(error)
    return dg.Failure(f"{name}: {failure.description}", dict(failure.metadata), allow_retries=False)


def _times(plan: Plan) -> dict[str, time]:
    """Return when each operation of a plan is due, UTC, in their order; compaction is on Sundays only."""
    rules = plan.retention
    times = dict.fromkeys(_OPERATIONS, _DAILY)
    if rules.tag:
        times["retention"] = rules.tag.create_time
    elif not rules.rule:
        del times["retention"]
    if rules.savepoint:
        times["savepoint"] = rules.savepoint.create_time
    else:
        del times["savepoint"]
    return times


def plan_schedules(plan: Plan, jobs: Iterable[dg.JobDefinition]) -> list[dg.ScheduleDefinition]:
    """Return a schedule for each of the jobs of a plan's location; see `DagsterFields.default_status`."""
    crons = {
        f"{plan.name}_verify": plan.dagster.verify_cron or _VERIFY,
        f"{plan.name}_restore_drill": plan.dagster.drill_cron or _MONTHLY,
    }
    schedules = [
        dg.ScheduleDefinition(
            name=f"{job.name}_schedule",
            job=job,
            cron_schedule=crons[job.name],
            execution_timezone="UTC",
            default_status=schedule_status(plan),
            description=job.description,
        )
        for job in jobs
        if job.name in crons
    ]
    return [maintenance_schedule(plan), *schedules]


def maintenance_schedule(plan: Plan) -> dg.ScheduleDefinition:
    """Return the schedule of `<plan>_maintenance`, which ticks at each time at which an operation is due.

    Retention and savepoints make up for a missed tick at the next one.
    """
    times = _times(plan)

    @dg.schedule(
        name=f"{plan.name}_maintenance_schedule",
        job_name=f"{plan.name}_maintenance",
        cron_schedule=[f"{at.minute} {at.hour} * * *" for at in sorted(set(times.values()))],
        execution_timezone="UTC",
        default_status=schedule_status(plan),
        description="; ".join(
            f"{name} at {at:%H:%M}{' on Sundays' * (name == 'compact')}" for name, at in times.items()
        ),
    )
    def schedule(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
        config = MaintenanceConfig(operations=_due(plan, context.scheduled_execution_time.astimezone(UTC)))
        return dg.RunRequest(run_config=dg.RunConfig(ops={f"{plan.name}_maintain": config}))

    return schedule


def _due(plan: Plan, tick: datetime) -> list[str]:
    """Return the operations that are due at a tick."""
    return [
        name
        for name, at in _times(plan).items()
        if at == tick.time() and (name != "compact" or tick.weekday() == _SUNDAY)
    ]
