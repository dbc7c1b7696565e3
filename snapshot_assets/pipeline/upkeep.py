"""Regular work on a plan's location as Dagster jobs, each with a schedule that ships stopped. Nothing here connects.

An op, not an asset: what it does makes no new data, and what it did is in the metadata of its output.
"""

# Dagster reads the annotations of ops, so they must not be postponed here.
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import dagster as dg
from pydantic import Field

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.checkpointing import checkpoint_head
from snapshot_assets.catalog.garbage import collect_garbage
from snapshot_assets.errors import SnapshotError
from snapshot_assets.pipeline.io_manager import as_failure
from snapshot_assets.pipeline.metadata import checkpoint_metadata, garbage_metadata
from snapshot_assets.pipeline.resources import SNAPSHOTS, snapshots_of
from snapshot_assets.plan import Plan

SCHEDULES = {"checkpoint": "15 2 * * *", "gc": "45 2 * * *"}
"""When the schedule of each job would run, UTC."""


class DryRunConfig(dg.Config):
    """Run config of a job that deletes or rewrites."""

    dry_run: bool = Field(default=False, description="Only tell what would be done; touch nothing.")


def upkeep_jobs(plan: Plan) -> list[dg.JobDefinition]:
    """Return a plan's jobs: `<plan>_checkpoint` and `<plan>_gc`."""
    return [
        _job(plan, "checkpoint", _checkpoint_op(plan), f"Writes the newest state of `{plan.to}` whole."),
        _job(plan, "gc", _gc_op(plan), f"Deletes the garbage of `{plan.to}`."),
    ]


def upkeep_schedules(plan: Plan, jobs: Iterable[dg.JobDefinition]) -> list[dg.ScheduleDefinition]:
    """Return a schedule for each of the jobs, stopped until somebody starts it in the UI."""
    return [
        dg.ScheduleDefinition(
            name=f"{job.name}_schedule",
            job=job,
            cron_schedule=SCHEDULES[job.name.removeprefix(f"{plan.name}_")],
            execution_timezone="UTC",
            default_status=dg.DefaultScheduleStatus.STOPPED,
        )
        for job in jobs
    ]


def _job(plan: Plan, name: str, op: dg.OpDefinition, description: str) -> dg.JobDefinition:
    @dg.job(name=f"{plan.name}_{name}", description=description, executor_def=dg.in_process_executor)
    def job() -> None:
        op()

    return job


def _checkpoint_op(plan: Plan) -> dg.OpDefinition:
    @dg.op(
        name=f"{plan.name}_write_checkpoint",
        required_resource_keys={SNAPSHOTS},
        description="Writes the checkpoint of the newest revision, so that opening reads no older log.",
    )
    def write_checkpoint(context: dg.OpExecutionContext) -> None:
        with _catalog(context, plan) as catalog:
            context.add_output_metadata(checkpoint_metadata(checkpoint_head(catalog)))

    return write_checkpoint


def _gc_op(plan: Plan) -> dg.OpDefinition:
    @dg.op(
        name=f"{plan.name}_collect_garbage",
        required_resource_keys={SNAPSHOTS},
        description="Deletes what no sealed revision, tag or writer needs, once that is older than the plan's grace.",
    )
    def collect(context: dg.OpExecutionContext, config: DryRunConfig) -> None:
        with _catalog(context, plan, dry_run=config.dry_run) as catalog:
            found = collect_garbage(catalog, dry_run=config.dry_run)
            context.add_output_metadata(garbage_metadata(found, dry_run=config.dry_run))

    return collect


@contextmanager
def _catalog(context: dg.OpExecutionContext, plan: Plan, *, dry_run: bool = False) -> Iterator[Catalog]:
    """Open a plan's location; an error becomes one that Dagster shows and does not retry.

    Raises:
        dagster.Failure: The work failed.
    """
    store = snapshots_of(context).store(plan.name)
    try:
        if dry_run:
            yield Catalog.open(store)
        else:
            yield Catalog.open_for_writing(store, single_writer=plan.single_writer)
    except SnapshotError as error:
        raise as_failure(error) from error
