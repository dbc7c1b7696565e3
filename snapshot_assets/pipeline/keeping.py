"""What a plan keeps, as Dagster jobs: automatic tags and savepoints, and the expiry of what no rule keeps."""

# Dagster reads the annotations of ops, so they must not be postponed here.
from collections.abc import Iterable
from datetime import time
from typing import Any

import dagster as dg

from snapshot_assets.catalog.auto_tags import Due, due
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.pins import create_tag, delete_tag
from snapshot_assets.catalog.retention import Expiry, expire
from snapshot_assets.engine.compact_plan import CompactionPlan, Wanted
from snapshot_assets.engine.savepoint import compact_and_pin
from snapshot_assets.pipeline.resources import SNAPSHOTS, SPARK, snapshots_of
from snapshot_assets.pipeline.tags import show_tags
from snapshot_assets.pipeline.upkeep import DryRunConfig, opened_catalog, plan_job, stopped_schedule
from snapshot_assets.plan import Plan

_MIDNIGHT = time(0, 0)


def keeping_jobs(plan: Plan) -> list[dg.JobDefinition]:
    """Return a plan's jobs `<plan>_retention` and `<plan>_savepoint`."""
    return [
        plan_job(plan, "retention", _retention_op(plan), f"Keeps of `{plan.to}` what the plan's `retention` says."),
        plan_job(plan, "savepoint", _savepoint_op(plan), f"Makes the savepoint of `{plan.to}` that is due."),
    ]


def keeping_schedules(plan: Plan, jobs: Iterable[dg.JobDefinition]) -> list[dg.ScheduleDefinition]:
    """Return a daily schedule for each of the jobs, stopped; a tick that was missed is made up for by the next."""
    at = plan.retention.tag.create_time if plan.retention.tag else _MIDNIGHT
    return [stopped_schedule(job, f"{at.minute} {at.hour} * * *") for job in jobs]


def _retention_op(plan: Plan) -> dg.OpDefinition:
    @dg.op(
        name=f"{plan.name}_retain",
        required_resource_keys={SNAPSHOTS},
        description="Makes the automatic tag that is due, deletes tags that outlived their time, expires revisions.",
    )
    def retain(context: dg.OpExecutionContext, config: DryRunConfig) -> None:
        with opened_catalog(context, plan, dry_run=config.dry_run) as catalog:
            wanted = due(catalog.begun(), catalog.now(), tag=plan.retention.tag.rule if plan.retention.tag else None)
            if not config.dry_run:
                _change_tags(context, plan, catalog, wanted)
            expired = _expired(plan, catalog, dry_run=config.dry_run)
        context.add_output_metadata(_retention_metadata(wanted, expired, dry_run=config.dry_run))

    return retain


def _change_tags(context: dg.OpExecutionContext, plan: Plan, catalog: Catalog, wanted: Due) -> None:
    """Create first, then delete, so that there is never less than the rules keep."""
    if wanted.tag is not None:
        create_tag(catalog, wanted.tag.name, wanted.tag.revision, wanted.tag.ttl, automatic=True)
    for name in wanted.tags_gone:
        delete_tag(catalog, name)
    show_tags(context, plan, catalog.refresh(), catalog.store.uri)


def _expired(plan: Plan, catalog: Catalog, *, dry_run: bool) -> Expiry | None:
    rule = plan.retention.rule
    if rule is None:
        return None
    return expire(catalog, keep_last=rule.keep_last, keep_for=rule.keep_for, dry_run=dry_run)


def _retention_metadata(wanted: Due, expired: Expiry | None, *, dry_run: bool) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "tag_created": wanted.tag.name if wanted.tag else "none",
        "tags_deleted": list(wanted.tags_gone),
        "revisions_expired": list(expired.expired) if expired else [],
        "revisions_kept_by_pins": len(expired.pinned) if expired else 0,
        "bytes_unneeded": expired.bytes if expired else 0,
    }


def _savepoint_op(plan: Plan) -> dg.OpDefinition:
    @dg.op(
        name=f"{plan.name}_save",
        required_resource_keys={SNAPSHOTS, SPARK},
        description="Compacts everything and pins it under the next number, if the plan's rule has a savepoint due.",
    )
    def save(context: dg.OpExecutionContext, config: DryRunConfig) -> None:
        ticks = plan.retention.savepoint.ticks if plan.retention.savepoint else None
        with opened_catalog(context, plan, dry_run=config.dry_run) as catalog:
            wanted = due(catalog.begun(), catalog.now(), savepoint=ticks).savepoint
            metadata: dict[str, Any] = {"dry_run": config.dry_run, "due": wanted is not None}
            if wanted is not None and not config.dry_run:
                metadata |= _saved(context, plan, catalog)
        context.add_output_metadata(metadata)

    return save


def _saved(context: dg.OpExecutionContext, plan: Plan, catalog: Catalog) -> dict[str, Any]:
    """Make a savepoint; returns what is told of it."""
    snapshots, chunks = snapshots_of(context), 0

    def compact(wanted: Wanted, _: CompactionPlan) -> None:
        nonlocal chunks
        chunks += len(list(snapshots.compact_run(plan.name, wanted).run()))

    savepoint = compact_and_pin(catalog, compact, automatic=True).savepoint
    return {"chunks_compacted": chunks, "savepoint": savepoint.id, "revision": savepoint.revision}
