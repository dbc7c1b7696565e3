"""Dagster jobs that apply a plan's retention: automatic tags and savepoints, and the expiry of revisions."""

# Dagster reads the annotations of ops, so they must not be postponed here.
from collections.abc import Iterable
from datetime import time
from typing import Any

import dagster as dg

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.operations.expire import execute_expiry, plan_expiry
from snapshot_assets.catalog.pins.automatic import Due, due, with_tags
from snapshot_assets.catalog.pins.objects import delete_pin
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.catalog.state.unreferenced import EXPIRED, released_objects
from snapshot_assets.engine.compact.plan import CompactionPlan
from snapshot_assets.engine.compact.savepoint import compact_and_pin
from snapshot_assets.format import actions as act
from snapshot_assets.pipeline.resources import SNAPSHOTS, SPARK, snapshots_of
from snapshot_assets.pipeline.tags import show_tags
from snapshot_assets.pipeline.upkeep import DryRunConfig, opened_catalog, plan_job, stopped_schedule
from snapshot_assets.plan.plan import Plan

_MIDNIGHT = time(0, 0)


def keeping_jobs(plan: Plan) -> list[dg.JobDefinition]:
    """Return a plan's jobs `<plan>_retention` and `<plan>_savepoint`."""
    return [
        plan_job(plan, "retention", _retention_op(plan), f"Keeps of `{plan.to}` what the plan's `retention` says."),
        plan_job(plan, "savepoint", _savepoint_op(plan), f"Makes the savepoint of `{plan.to}` that is due."),
    ]


def keeping_schedules(plan: Plan, jobs: Iterable[dg.JobDefinition]) -> list[dg.ScheduleDefinition]:
    """Return a daily schedule for each of the jobs, stopped; the next tick makes up for a missed one."""
    rules = {f"{plan.name}_retention": plan.retention.tag, f"{plan.name}_savepoint": plan.retention.savepoint}
    times = {name: rule.create_time if rule else _MIDNIGHT for name, rule in rules.items()}
    return [stopped_schedule(job, f"{times[job.name].minute} {times[job.name].hour} * * *") for job in jobs]


def _retention_op(plan: Plan) -> dg.OpDefinition:
    @dg.op(
        name=f"{plan.name}_retain",
        required_resource_keys={SNAPSHOTS},
        description="Makes the automatic tag that is due, deletes tags that outlived their time, expires revisions.",
    )
    def retain(context: dg.OpExecutionContext, config: DryRunConfig) -> None:
        with opened_catalog(context, plan, dry_run=config.dry_run) as catalog:
            before = catalog.require_snapshot().after(())  # a copy, which later commits do not change
            rule = plan.retention.tag.rule if plan.retention.tag else None
            wanted = due(before, catalog.now(), tag=rule)
            tagged = with_tags(before, wanted, catalog.now())
            expiry = plan_expiry(catalog, plan.retention.rule, state=tagged)
            if config.dry_run:
                gone = [each.tag.name for each in wanted.tags_gone]
                after = tagged.after([act.Expired(expiry.expired)] if expiry.expired else [])
            else:
                gone = _change_tags(context, plan, catalog, wanted)
                expiry = execute_expiry(catalog, expiry)
                after = catalog.state
        released = [each for each in released_objects(before, after, EXPIRED) if not each.at_once]
        context.add_output_metadata(
            {
                "dry_run": config.dry_run,
                "tag_created": wanted.tag.name if wanted.tag else "none",
                "tags_deleted": gone,
                "revisions_expired": list(expiry.expired),
                "revisions_kept_by_pins": len(expiry.pinned),
                "bytes_unneeded": sum(each.bytes for each in released),
            }
        )

    return retain


def _change_tags(context: dg.OpExecutionContext, plan: Plan, catalog: Catalog, wanted: Due) -> list[str]:
    """Create the tag that is due, then delete tags, and return the names of those deleted.

    In this order, there is never less than the rules keep.
    """
    if wanted.tag is not None:
        create_tag(catalog, wanted.tag.name, wanted.tag.revision, wanted.tag.ttl, automatic=True)
    gone = [each.tag.name for each in wanted.tags_gone if delete_pin(catalog, each)]
    show_tags(context, plan, catalog.refresh(), catalog.store.uri)
    return gone


def _savepoint_op(plan: Plan) -> dg.OpDefinition:
    @dg.op(
        name=f"{plan.name}_save",
        required_resource_keys={SNAPSHOTS, SPARK},
        description="Compacts everything and pins it under the next number, if the plan's rule has a savepoint due, "
        "and deletes those that it made before beyond the most that there may be.",
    )
    def save(context: dg.OpExecutionContext, config: DryRunConfig) -> None:
        rule = plan.retention.savepoint.rule if plan.retention.savepoint else None
        with opened_catalog(context, plan, dry_run=config.dry_run) as catalog:
            wanted = due(catalog.require_snapshot(), catalog.now(), savepoint=rule)
            gone = wanted.savepoints_gone
            metadata: dict[str, Any] = {"dry_run": config.dry_run, "due": wanted.savepoint is not None}
            if not config.dry_run:
                if wanted.savepoint is not None:
                    metadata |= _saved(context, plan, catalog)
                gone = tuple(each for each in gone if delete_pin(catalog, each))
            metadata["savepoints_deleted"] = [each.savepoint.id for each in gone]
        context.add_output_metadata(metadata)

    return save


def _saved(context: dg.OpExecutionContext, plan: Plan, catalog: Catalog) -> dict[str, Any]:
    """Make a savepoint, and return its metadata."""
    snapshots, chunks = snapshots_of(context), 0

    def compact(compaction: CompactionPlan) -> None:
        nonlocal chunks
        chunks += len(list(snapshots.compact_run(plan.name, catalog).execute(compaction)))

    savepoint = compact_and_pin(catalog, compact, automatic=True).savepoint
    return {"chunks_compacted": chunks, "savepoint": savepoint.id, "revision": savepoint.revision}
