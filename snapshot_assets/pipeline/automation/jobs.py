"""Dagster jobs that maintain a plan's location, each with a schedule that ships stopped. Importing connects to nothing.

They are ops, not assets, because they make no new data. The metadata of an op's outputs reports what it did.
"""

# Dagster reads the annotations of ops and schedules, so they must not be postponed here.
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, time
from typing import TYPE_CHECKING, Any, cast, get_args

import dagster as dg
from pydantic import Field

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.operations.expire import execute_expiry, plan_expiry
from snapshot_assets.catalog.operations.garbage import execute_collection, plan_collection
from snapshot_assets.catalog.operations.maintain_log import checkpoint_head
from snapshot_assets.catalog.pins.automatic import due, with_new_tag
from snapshot_assets.catalog.pins.objects import delete_pin
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.catalog.state.retained import EXPIRED, released_objects
from snapshot_assets.engine.compact.options import TARGET_BYTES, CompactionOptions, Dedupe
from snapshot_assets.errors import PlanError
from snapshot_assets.format import actions as act
from snapshot_assets.format.names import parse_table
from snapshot_assets.format.units import parse_file_size, size_text
from snapshot_assets.pipeline.assets.tags import show_tags
from snapshot_assets.pipeline.automation.comparison import compare_op
from snapshot_assets.pipeline.automation.locks import extend_locks_op
from snapshot_assets.pipeline.automation.restores import drill_op
from snapshot_assets.pipeline.automation.verification import verify_op
from snapshot_assets.pipeline.dagster.failures import as_failure, joined, showing_failures
from snapshot_assets.pipeline.dagster.metadata import (
    checkpoint_metadata,
    compaction_metadata,
    garbage_metadata,
    plan_metadata,
    with_sizes,
)
from snapshot_assets.pipeline.dagster.partitions import asset_key, schedule_status
from snapshot_assets.pipeline.dagster.resources import SNAPSHOTS, snapshots_of
from snapshot_assets.plan.plan import Plan

if TYPE_CHECKING:
    from snapshot_assets.engine.compact.plan import CompactionPlan
    from snapshot_assets.engine.compact.run import Compacted, CompactRun


class MaintenanceConfig(dg.Config):
    """Run config of `<plan>_maintenance`; by default it does all that the plan has, and compacts what needs it."""

    operations: list[str] = Field(
        default=[],
        description="What the run does, of retention, compact, savepoint, checkpoint and gc; always in this order.",
    )
    dry_run: bool = Field(default=False, description="Only report what would be done; change nothing.")
    target_size: str = Field(default=size_text(TARGET_BYTES), description="compact: size of a merged file.")
    tables: list[str] = Field(default=[], description="compact: tables to rewrite, whether they need it or not.")
    chunks: list[int] = Field(default=[], description="compact: chunks to rewrite, whether they need it or not.")
    dedupe: str = Field(
        default="", description="compact: `primary_key` keeps only the newest of rows with one primary key."
    )

    def options(self) -> CompactionOptions:
        """Return what to compact.

        Raises:
            PlanError: A field is invalid.
        """
        if self.dedupe not in get_args(Dedupe):
            raise PlanError(f"dedupe {self.dedupe!r} is invalid; write primary_key, or leave it out.")
        return CompactionOptions(
            parse_file_size(self.target_size),
            tuple(self.chunks),
            tuple(map(parse_table, self.tables)),
            cast(Dedupe, self.dedupe),
        )


@contextmanager
def _opened_catalog(context: dg.OpExecutionContext, plan: Plan, config: MaintenanceConfig) -> Iterator[Catalog]:
    """Open a plan's location, for writing unless the run is dry; an error becomes one that Dagster does not retry."""
    with showing_failures():
        store = snapshots_of(context).store(plan.name)
        if config.dry_run:
            yield Catalog.open(store)
        else:
            yield Catalog.open_for_writing(store, single_writer=plan.single_writer, signing=plan.signing)


def write_checkpoint(context: dg.OpExecutionContext, plan: Plan, config: MaintenanceConfig) -> dict[str, Any]:
    """Write the checkpoint of the newest revision, and return the metadata of that."""
    with _opened_catalog(context, plan, config) as catalog:
        if config.dry_run:
            return {"dry_run": True, "revision": str(catalog.require_snapshot().revision)}
        return checkpoint_metadata(checkpoint_head(catalog))


def collect_garbage(context: dg.OpExecutionContext, plan: Plan, config: MaintenanceConfig) -> dict[str, Any]:
    """Delete the garbage that is older than the plan's grace; return and record the metadata of that."""
    with _opened_catalog(context, plan, config) as catalog:
        garbage = plan_collection(catalog)
        if not config.dry_run:
            garbage = execute_collection(catalog, garbage)
        facts = garbage_metadata(garbage, dry_run=config.dry_run)
    if not config.dry_run:
        manifest = asset_key(plan, "manifest")
        context.log_event(dg.AssetObservation(manifest, description="Garbage collection", metadata=facts))
    return facts


def compact(context: dg.OpExecutionContext, plan: Plan, config: MaintenanceConfig) -> dict[str, Any]:
    """Merge small files and rewrite files with deleted rows, and return the metadata of that."""
    from snapshot_assets.engine.compact.plan import plan_compaction

    with _opened_catalog(context, plan, config) as catalog:
        run = snapshots_of(context).compact_run(plan.name, catalog)
        compaction = plan_compaction(catalog.store, catalog.require_snapshot(), config.options())
        if config.dry_run:
            return plan_metadata(compaction)
        return compaction_metadata(_execute(context, run, compaction))


def apply_retention(context: dg.OpExecutionContext, plan: Plan, config: MaintenanceConfig) -> dict[str, Any]:
    """Create the tag that is due, delete those past their time, expire revisions; return the metadata of that."""
    with _opened_catalog(context, plan, config) as catalog:
        before = catalog.require_snapshot().after(())  # a copy, which later commits do not change
        new = due(before, catalog.now(), tag=plan.retention.tag_rule).tag
        if config.dry_run:
            tagged = with_new_tag(before, new, catalog.now())
            expiry = plan_expiry(catalog, plan.retention.rule, tags=plan.retention.tag_rule, state=tagged)
            after = tagged.after([act.TagDeleted(name) for name in expiry.tags])
            after = after.after([act.Expired(expiry.expired)] if expiry.expired else [])
        else:
            if new is not None:  # first, so that there are never fewer than the rules keep
                create_tag(catalog, new.name, new.revision, new.ttl, automatic=True)
            try:
                expiry = execute_expiry(
                    catalog, plan_expiry(catalog, plan.retention.rule, tags=plan.retention.tag_rule)
                )
            finally:  # an expiry may refuse a damaged log: the new tag stays then, and is shown
                show_tags(context, plan, catalog.refresh(), catalog.store.uri)
            after = catalog.state
    released = [each for each in released_objects(before, after, EXPIRED) if not each.at_once]
    return with_sizes(
        {
            "dry_run": config.dry_run,
            "tag_created": new.name if new else "none",
            "tags_deleted": list(expiry.tags),
            "revisions_expired": list(expiry.expired),
            "revisions_kept_by_pins": len(expiry.pinned),
            "bytes_unneeded": sum(each.bytes for each in released),
        }
    )


def make_savepoint(context: dg.OpExecutionContext, plan: Plan, config: MaintenanceConfig) -> dict[str, Any]:
    """Compact and pin everything if a savepoint is due, delete the oldest; return the metadata of that."""
    from snapshot_assets.engine.compact.plan import compact_and_pin

    rule = plan.retention.savepoint.rule if plan.retention.savepoint else None
    with _opened_catalog(context, plan, config) as catalog:
        wanted = due(catalog.require_snapshot(), catalog.now(), savepoint=rule)
        gone = wanted.savepoints_gone
        done: list[Compacted] = []

        def compact_all(compaction: "CompactionPlan") -> None:
            done.extend(_execute(context, snapshots_of(context).compact_run(plan.name, catalog), compaction))

        metadata: dict[str, Any] = {"dry_run": config.dry_run, "due": wanted.savepoint}
        if wanted.savepoint and not config.dry_run:
            pin = compact_and_pin(catalog, compact_all, automatic=True).pin
            metadata |= {"chunks_compacted": len(done), "savepoint": str(pin.id), "revision": str(pin.revision)}
        if not config.dry_run:
            gone = tuple(each for each in gone if delete_pin(catalog, each))
        metadata["savepoints_deleted"] = [each.pin.id for each in gone]
    return with_sizes(metadata)


def _execute(context: dg.OpExecutionContext, run: "CompactRun", compaction: "CompactionPlan") -> "list[Compacted]":
    done = []
    counting = snapshots_of(context).counting("compacting", len(compaction.chunks), context.log.info)
    with counting as progress, closing(run.execute(compaction)) as outcomes:
        for outcome in outcomes:
            done.append(outcome)
            progress.outcome(outcome)
    return done


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


def plan_jobs(plan: Plan, spark_key: str, *, comparable: bool, locked: Sequence[str] = ()) -> list[dg.JobDefinition]:
    """Return the jobs of a plan's location: maintenance, verify, compare if it can be, and, with `scratch`, a drill.

    `locked` are the location and the replica, if their storage has the option `lock`: a job extends the locks of both.
    """
    jobs = {
        "maintenance": (_maintenance_op(plan, spark_key), f"Maintains `{plan.to}`: {', '.join(_times(plan))}."),
        "verify": (verify_op(plan), f"Verifies `{plan.to}`; damage fails the run, and the checks of what has it."),
    }
    if comparable:
        compare = f"Compares all rows of `{plan.to}` with `{plan.source}`; damage fails the run and its check."
        jobs["compare"] = (compare_op(plan, spark_key), compare)
    if locked:
        jobs["extend_locks"] = (extend_locks_op(plan, locked), f"Extends the locks of `{'` and `'.join(locked)}`.")
    if plan.scratch:
        drill = f"Restores the newest tag of `{plan.to}` into a scratch database, compares all rows, and drops it."
        jobs["restore_drill"] = (drill_op(plan, spark_key), drill)
    return [
        dg.GraphDefinition(name=f"{plan.name}_{name}", description=description, node_defs=[op]).to_job()
        for name, (op, description) in jobs.items()
    ]


def _maintenance_op(plan: Plan, spark_key: str) -> dg.OpDefinition:
    """Return the op of `<plan>_maintenance`, with an output for each operation, whose metadata reports what it did."""

    @dg.op(
        name=f"{plan.name}_maintain",
        required_resource_keys={SNAPSHOTS, spark_key},
        out={name: dg.Out(dg.Nothing, is_required=False, description=_OPERATIONS[name][1]) for name in _times(plan)},
        description="Runs one operation after the other; one that fails does not keep the next from running.",
    )
    def maintain(context: dg.OpExecutionContext, config: MaintenanceConfig) -> Iterator[dg.Output[None]]:
        operations, failures = list(_times(plan)), []
        with showing_failures():
            for name in set(config.operations).difference(operations):
                known = ", ".join(operations)
                raise PlanError(f"Plan {plan.name!r} has no operation {name!r}; write some of {known}.")
        chosen = [name for name in operations if name in config.operations or not config.operations]
        for name in chosen:
            try:
                facts = _OPERATIONS[name][0](context, plan, config)
            except Exception as error:
                if len(chosen) == 1:
                    raise
                failure = error if isinstance(error, dg.Failure) else as_failure(error)
                text = f"{name}: {failure.description}"
                failures.append(dg.Failure(text, dict(failure.metadata), allow_retries=False))
                context.log.error(text)
            else:
                yield dg.Output(None, name, metadata=facts)
        if failures:
            raise joined(failures)

    return maintain


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
        f"{plan.name}_compare": plan.dagster.compare_cron,
        f"{plan.name}_extend_locks": plan.dagster.extend_locks_cron,
        f"{plan.name}_restore_drill": plan.dagster.drill_cron or _MONTHLY,
    }
    schedules = [
        dg.ScheduleDefinition(
            name=f"{job.name}_schedule",
            job=job,
            cron_schedule=cron,
            execution_timezone="UTC",
            default_status=schedule_status(plan),
            description=job.description,
        )
        for job in jobs
        if (cron := crons.get(job.name))
    ]
    return [_maintenance_schedule(plan), *schedules]


def _maintenance_schedule(plan: Plan) -> dg.ScheduleDefinition:
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
        tick = context.scheduled_execution_time.astimezone(UTC)
        wanted = [name for name, at in times.items() if at == tick.time()]
        if "compact" in wanted and tick.weekday() != _SUNDAY:
            wanted.remove("compact")
        config = MaintenanceConfig(operations=wanted)
        return dg.RunRequest(run_config=dg.RunConfig(ops={f"{plan.name}_maintain": config}))

    return schedule
