"""What a plan keeps, as Dagster jobs: automatic tags and savepoints, and the expiry of what no rule keeps."""

# Dagster reads the annotations of ops, so they must not be postponed here.
from collections.abc import Iterable
from datetime import time
from typing import Any

import dagster as dg

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.operations.expire import expire
from snapshot_assets.catalog.pins.automatic import Due, due, with_tags
from snapshot_assets.catalog.pins.savepoints import delete_savepoint
from snapshot_assets.catalog.pins.tags import create_tag, delete_tag
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.unreferenced import EXPIRED, released_objects
from snapshot_assets.engine.compact.plan import CompactionPlan, Wanted
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
    """Return a daily schedule for each of the jobs, stopped; a tick that was missed is made up for by the next."""
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
            before = catalog.require_snapshot().after(())  # it stays as it is while the head goes on
            wanted = due(catalog.state, catalog.now(), tag=plan.retention.tag.rule if plan.retention.tag else None)
            if config.dry_run:
                gone = [known.tag.name for known in wanted.tags_gone]
                after = _foreseen(plan, catalog, wanted)
            else:
                gone = _change_tags(context, plan, catalog, wanted)
                after = _expired(plan, catalog)
        newly = after.expired - before.expired
        context.add_output_metadata(
            {
                "dry_run": config.dry_run,
                "tag_created": wanted.tag.name if wanted.tag else "none",
                "tags_deleted": gone,
                "revisions_expired": sorted(newly),
                "revisions_kept_by_pins": len(newly & after.pins.revisions()),
                "bytes_unneeded": sum(
                    each.bytes for each in released_objects(before, after, EXPIRED) if not each.at_once
                ),
            }
        )

    return retain


def _change_tags(context: dg.OpExecutionContext, plan: Plan, catalog: Catalog, wanted: Due) -> list[str]:
    """Create first, then delete, so that there is never less than the rules keep; returns the names that are gone."""
    if wanted.tag is not None:
        create_tag(catalog, wanted.tag.name, wanted.tag.revision, wanted.tag.ttl, automatic=True)
    gone = [each.tag.name for each in wanted.tags_gone if delete_tag(catalog, each.tag.name, each)]
    show_tags(context, plan, catalog.refresh(), catalog.store.uri)
    return gone


def _expired(plan: Plan, catalog: Catalog) -> State:
    """Expire what no rule keeps, and return the state that this leaves."""
    rule = plan.retention.rule
    if rule is not None:
        expire(catalog, keep_last=rule.keep_last, keep_for=rule.keep_for)
    return catalog.state


def _foreseen(plan: Plan, catalog: Catalog, wanted: Due) -> State:
    """Return the state that a run would leave."""
    state = with_tags(catalog.state, wanted, catalog.now())
    outlived = plan.retention.rule.expirable(state, catalog.now()) if plan.retention.rule else []
    return state.after([act.Expired(tuple(outlived))]) if outlived else state


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
            gone = [known.savepoint.id for known in wanted.savepoints_gone]
            metadata: dict[str, Any] = {"dry_run": config.dry_run, "due": wanted.savepoint is not None}
            if not config.dry_run:
                if wanted.savepoint is not None:
                    metadata |= _saved(context, plan, catalog)
                gone = [number for number in gone if delete_savepoint(catalog, number)]
            metadata["savepoints_deleted"] = gone
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
