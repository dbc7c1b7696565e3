"""Dagster jobs that maintain a plan's location, each with a schedule that ships stopped. Importing connects to nothing.

They are ops, not assets, because they make no new data. The metadata of an op's output reports what it did.
"""

# Dagster reads the annotations of ops, so they must not be postponed here.
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import time
from typing import Any, cast, get_args

import dagster as dg
from pydantic import Field

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.operations.collect_garbage import execute_collection, plan_collection
from snapshot_assets.catalog.operations.expire import execute_expiry, plan_expiry
from snapshot_assets.catalog.operations.maintain_log import checkpoint_head
from snapshot_assets.catalog.pins.automatic import Due, due, with_tags
from snapshot_assets.catalog.pins.objects import delete_pin
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.catalog.state.unreferenced import EXPIRED, released_objects
from snapshot_assets.engine.compact.plan import TARGET_BYTES, CompactionPlan, Dedupe, Wanted, plan_compaction
from snapshot_assets.engine.compact.run import Compacted
from snapshot_assets.engine.compact.savepoint import compact_and_pin
from snapshot_assets.errors import PlanError, SnapshotError
from snapshot_assets.format import actions as act
from snapshot_assets.format.names import parse_table, table_text
from snapshot_assets.format.units import parse_file_size, size_text
from snapshot_assets.pipeline.drill import drill_op
from snapshot_assets.pipeline.failures import as_failure
from snapshot_assets.pipeline.keys import asset_key, schedule_status
from snapshot_assets.pipeline.metadata import (
    checkpoint_metadata,
    compaction_metadata,
    garbage_metadata,
    plan_metadata,
    with_sizes,
)
from snapshot_assets.pipeline.resources import SNAPSHOTS, snapshots_of
from snapshot_assets.pipeline.tags import show_tags
from snapshot_assets.pipeline.verification import verify_op
from snapshot_assets.plan.plan import Plan
from snapshot_assets.plan.retention import SavepointFields, TagFields

SCHEDULES = {"checkpoint": "15 2 * * *", "gc": "45 2 * * *", "verify": "30 3 * * *", "compact": "15 3 * * 0"}
"""When the schedules of jobs run that no rule of the plan sets, UTC."""


class DryRunConfig(dg.Config):
    """Run config of a job that deletes or rewrites."""

    dry_run: bool = Field(default=False, description="Only report what would be done; change nothing.")


class CompactConfig(DryRunConfig):
    """Run config of a compaction; by default it compacts what needs it."""

    target_size: str = Field(default=size_text(TARGET_BYTES), description="Size of a merged file.")
    tables: list[str] = Field(default=[], description="Tables to rewrite, whether they need it or not.")
    chunks: list[int] = Field(default=[], description="Chunks to rewrite, whether they need it or not.")
    dedupe: str = Field(default="", description="`primary_key` keeps only the newest of rows with one primary key.")

    def wanted(self) -> Wanted:
        """Return what to compact.

        Raises:
            PlanError: A field is invalid.
        """
        if self.dedupe not in get_args(Dedupe):
            raise PlanError(f"dedupe {self.dedupe!r} is invalid; write primary_key, or leave it out.")
        return Wanted(
            parse_file_size(self.target_size),
            tuple(self.chunks),
            tuple(map(parse_table, self.tables)),
            cast(Dedupe, self.dedupe),
        )


def compact_config(wanted: Wanted) -> dict[str, Any]:
    """Return the run config that asks for a compaction."""
    return {
        "target_size": size_text(wanted.target_size),
        "tables": [table_text(name) for name in wanted.tables],
        "chunks": list(wanted.chunks),
        "dedupe": wanted.dedupe,
    }


def plan_jobs(plan: Plan, spark_key: str) -> list[dg.JobDefinition]:
    """Return the jobs that maintain a plan's location: checkpoint, gc, verify, compact, retention, savepoint, drill."""
    drill = f"Restores the newest tag of `{plan.to}` into a scratch database, compares all rows, and drops it."
    verified = f"Verifies `{plan.to}`; damage fails the run, and the checks of the partitions that have it."
    return [
        _job(plan, "checkpoint", _checkpoint_op(plan), f"Writes a checkpoint of the newest state of `{plan.to}`."),
        _job(plan, "gc", _gc_op(plan), f"Deletes the garbage of `{plan.to}`."),
        _job(plan, "verify", verify_op(plan), verified),
        _job(
            plan,
            "compact",
            _compact_op(plan, spark_key),
            f"Merges small files of `{plan.to}`, leaves out deleted rows.",
        ),
        _job(plan, "retention", _retention_op(plan), f"Applies the plan's `retention` to `{plan.to}`."),
        _job(plan, "savepoint", _savepoint_op(plan, spark_key), f"Creates the savepoint of `{plan.to}` that is due."),
        *([_job(plan, "restore_drill", drill_op(plan, spark_key), drill)] if plan.scratch else []),
    ]


def plan_schedules(plan: Plan, jobs: Iterable[dg.JobDefinition]) -> list[dg.ScheduleDefinition]:
    """Return a schedule for each of the jobs that has something to do; see `DagsterFields.default_status`.

    Retention and savepoints have one if the plan has a rule of them, which gives the time. Their next tick makes up for
    a missed one.
    """
    rules = plan.retention
    schedules = dict(SCHEDULES)
    if rules.tag or rules.rule:
        schedules["retention"] = _daily(rules.tag)
    if rules.savepoint:
        schedules["savepoint"] = _daily(rules.savepoint)
    if plan.scratch:
        schedules["restore_drill"] = plan.dagster.drill_cron
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


def _checkpoint_op(plan: Plan) -> dg.OpDefinition:
    @dg.op(
        name=f"{plan.name}_write_checkpoint",
        required_resource_keys={SNAPSHOTS},
        description="Writes the checkpoint of the newest revision, so that opening reads no older log.",
    )
    def write_checkpoint(context: dg.OpExecutionContext) -> None:
        with _opened_catalog(context, plan) as catalog:
            context.add_output_metadata(checkpoint_metadata(checkpoint_head(catalog)))

    return write_checkpoint


def _gc_op(plan: Plan) -> dg.OpDefinition:
    @dg.op(
        name=f"{plan.name}_collect_garbage",
        required_resource_keys={SNAPSHOTS},
        description="Deletes what no sealed revision, tag or writer needs, once that is older than the plan's grace.",
    )
    def collect(context: dg.OpExecutionContext, config: DryRunConfig) -> None:
        with _opened_catalog(context, plan, dry_run=config.dry_run) as catalog:
            garbage = plan_collection(catalog)
            if not config.dry_run:
                garbage = execute_collection(catalog, garbage)
            facts = garbage_metadata(garbage, dry_run=config.dry_run)
        context.add_output_metadata(facts)
        manifest = asset_key(plan, "manifest")
        context.log_event(dg.AssetObservation(manifest, description="Garbage collection", metadata=facts))

    return collect


def _compact_op(plan: Plan, spark_key: str) -> dg.OpDefinition:
    @dg.op(
        name=f"{plan.name}_compact_files",
        required_resource_keys={SNAPSHOTS, spark_key},
        description="Merges small files of a table and chunk, and files with deleted rows; older versions keep theirs.",
    )
    def compact(context: dg.OpExecutionContext, config: CompactConfig) -> None:
        snapshots = snapshots_of(context)
        outcomes: list[Compacted] = []
        with _opened_catalog(context, plan, dry_run=config.dry_run) as catalog:
            run = snapshots.compact_run(plan.name, catalog)
            compaction = snapshots.compactions.get(plan.name)
            if compaction is None:
                compaction = plan_compaction(catalog.store, catalog.require_snapshot(), config.wanted())
            if config.dry_run:
                context.add_output_metadata(plan_metadata(compaction))
                return
            with snapshots.counting("compacting", len(compaction.chunks), context.log.info) as progress:
                for outcome in run.execute(compaction):
                    outcomes.append(outcome)
                    progress.outcome(outcome)
        context.add_output_metadata(compaction_metadata(outcomes))

    return compact


def _retention_op(plan: Plan) -> dg.OpDefinition:
    @dg.op(
        name=f"{plan.name}_retain",
        required_resource_keys={SNAPSHOTS},
        description="Creates the automatic tag that is due, deletes tags that outlived their time, expires revisions.",
    )
    def retain(context: dg.OpExecutionContext, config: DryRunConfig) -> None:
        with _opened_catalog(context, plan, dry_run=config.dry_run) as catalog:
            before = catalog.require_snapshot().after(())  # a copy, which later commits do not change
            wanted = due(before, catalog.now(), tag=plan.retention.tag.rule if plan.retention.tag else None)
            rule, expiry = plan.retention.rule, None
            if config.dry_run:
                gone = [each.pin.name for each in wanted.tags_gone]
                tagged = with_tags(before, wanted, catalog.now())
                expiry = plan_expiry(catalog, rule, state=tagged) if rule else None
                after = tagged.after([act.Expired(expiry.expired)] if expiry and expiry.expired else [])
            else:
                gone = _change_tags(context, plan, catalog, wanted)  # first: the expiry may refuse a damaged log
                expiry = execute_expiry(catalog, plan_expiry(catalog, rule)) if rule else None
                after = catalog.state
        released = [each for each in released_objects(before, after, EXPIRED) if not each.at_once]
        context.add_output_metadata(
            with_sizes(
                {
                    "dry_run": config.dry_run,
                    "tag_created": wanted.tag.name if wanted.tag else "none",
                    "tags_deleted": gone,
                    "revisions_expired": list(expiry.expired) if expiry else [],
                    "revisions_kept_by_pins": len(expiry.pinned) if expiry else 0,
                    "bytes_unneeded": sum(each.bytes for each in released),
                }
            )
        )

    return retain


def _change_tags(context: dg.OpExecutionContext, plan: Plan, catalog: Catalog, wanted: Due) -> list[str]:
    """Create the tag that is due, then delete tags, and return the names of those deleted.

    In this order, there is never less than the rules keep.
    """
    if wanted.tag is not None:
        create_tag(catalog, wanted.tag.name, wanted.tag.revision, wanted.tag.ttl, automatic=True)
    gone = [each.pin.name for each in wanted.tags_gone if delete_pin(catalog, each)]
    show_tags(context, plan, catalog.refresh(), catalog.store.uri)
    return gone


def _savepoint_op(plan: Plan, spark_key: str) -> dg.OpDefinition:
    @dg.op(
        name=f"{plan.name}_save",
        required_resource_keys={SNAPSHOTS, spark_key},
        description="Compacts everything and pins it under the next number, if the plan's rule has a savepoint due, "
        "and deletes the oldest automatic ones above the maximum.",
    )
    def save(context: dg.OpExecutionContext, config: DryRunConfig) -> None:
        rule = plan.retention.savepoint.rule if plan.retention.savepoint else None
        with _opened_catalog(context, plan, dry_run=config.dry_run) as catalog:
            wanted = due(catalog.require_snapshot(), catalog.now(), savepoint=rule)
            gone = wanted.savepoints_gone
            metadata: dict[str, Any] = {"dry_run": config.dry_run, "due": wanted.savepoint}
            if not config.dry_run:
                if wanted.savepoint:
                    metadata |= _saved(context, plan, catalog)
                gone = tuple(each for each in gone if delete_pin(catalog, each))
            metadata["savepoints_deleted"] = [each.pin.id for each in gone]
        context.add_output_metadata(metadata)

    return save


def _saved(context: dg.OpExecutionContext, plan: Plan, catalog: Catalog) -> dict[str, Any]:
    """Make a savepoint, and return its metadata."""
    snapshots, chunks = snapshots_of(context), 0

    def compact(compaction: CompactionPlan) -> None:
        nonlocal chunks
        with snapshots.counting("compacting", len(compaction.chunks), context.log.info) as progress:
            for outcome in snapshots.compact_run(plan.name, catalog).execute(compaction):
                progress.outcome(outcome)
                chunks += 1

    savepoint = compact_and_pin(catalog, compact, automatic=True).pin
    return {"chunks_compacted": chunks, "savepoint": str(savepoint.id), "revision": str(savepoint.revision)}


@contextmanager
def _opened_catalog(context: dg.OpExecutionContext, plan: Plan, *, dry_run: bool = False) -> Iterator[Catalog]:
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
