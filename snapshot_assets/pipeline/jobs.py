"""Dagster jobs that maintain a plan's location, each with a schedule that ships stopped. Importing connects to nothing.

They are ops, not assets, because they make no new data. The metadata of an op's output reports what it did.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import time

import dagster as dg

from snapshot_assets.pipeline.drill import drill_op
from snapshot_assets.pipeline.keeping import retention_op, savepoint_op
from snapshot_assets.pipeline.keys import schedule_status
from snapshot_assets.pipeline.maintenance import checkpoint_op, compact_op, gc_op
from snapshot_assets.pipeline.verification import verify_op
from snapshot_assets.plan.plan import Plan
from snapshot_assets.plan.retention import SavepointFields, TagFields

_MONTHLY = "0 4 1 * *"
SCHEDULES = {"checkpoint": "15 2 * * *", "gc": "45 2 * * *", "verify": "30 3 * * *", "compact": "15 3 * * 0"}
"""When the schedules of jobs run that no rule of the plan sets, UTC; `verify_cron` sets that of `verify`."""


def plan_jobs(plan: Plan, spark_key: str) -> list[dg.JobDefinition]:
    """Return the jobs that maintain a plan's location: checkpoint, gc, verify, compact, retention, savepoint, drill."""
    rules = plan.retention
    drill = f"Restores the newest tag of `{plan.to}` into a scratch database, compares all rows, and drops it."
    jobs = {
        "checkpoint": (checkpoint_op(plan), f"Writes a checkpoint of the newest state of `{plan.to}`."),
        "gc": (gc_op(plan), f"Deletes the garbage of `{plan.to}`."),
        "verify": (verify_op(plan), f"Verifies `{plan.to}`; damage fails the run, and the checks of what has it."),
        "compact": (compact_op(plan, spark_key), f"Merges small files of `{plan.to}`, leaves out deleted rows."),
    }
    if rules.tag or rules.rule:
        jobs["retention"] = (retention_op(plan), f"Applies the plan's `retention` to `{plan.to}`.")
    if rules.savepoint:
        jobs["savepoint"] = (savepoint_op(plan, spark_key), f"Creates the savepoint of `{plan.to}` that is due.")
    if plan.scratch:
        jobs["restore_drill"] = (drill_op(plan, spark_key), drill)
    return [_job(plan, name, op, description) for name, (op, description) in jobs.items()]


def plan_schedules(plan: Plan, jobs: Iterable[dg.JobDefinition]) -> list[dg.ScheduleDefinition]:
    """Return a schedule for each of the jobs that has something to do; see `DagsterFields.default_status`.

    Retention and savepoints have one if the plan has a rule of them, which gives the time. Their next tick makes up for
    a missed one.
    """
    rules = plan.retention
    schedules = SCHEDULES | ({"verify": plan.dagster.verify_cron} if plan.dagster.verify_cron else {})
    if rules.tag or rules.rule:
        schedules["retention"] = _daily(rules.tag)
    if rules.savepoint:
        schedules["savepoint"] = _daily(rules.savepoint)
    if plan.scratch:
        schedules["restore_drill"] = plan.dagster.drill_cron or _MONTHLY
    by_name = {job.name.removeprefix(f"{plan.name}_"): job for job in jobs}
    return [
        dg.ScheduleDefinition(
            name=f"{by_name[name].name}_schedule",
            job=by_name[name],
            cron_schedule=cron,
            execution_timezone="UTC",
            default_status=schedule_status(plan),
            description=by_name[name].description,
        )
        for name, cron in schedules.items()
    ]


def _daily(rule: TagFields | SavepointFields | None) -> str:
    at = rule.create_time if rule else time(0, 0)
    return f"{at.minute} {at.hour} * * *"


def _job(plan: Plan, name: str, op: dg.OpDefinition, description: str) -> dg.JobDefinition:
    """Return the job `<plan>_<name>` of one op."""
    return dg.GraphDefinition(name=f"{plan.name}_{name}", description=description, node_defs=[op]).to_job()
