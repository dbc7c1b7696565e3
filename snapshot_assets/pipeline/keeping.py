"""The ops of a plan's jobs that keep versions by rule: retention and savepoints."""

# Dagster reads the annotations of ops, so they must not be postponed here.
from contextlib import closing
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
from snapshot_assets.pipeline.maintenance import DryRunConfig, opened_catalog
from snapshot_assets.pipeline.metadata import with_sizes
from snapshot_assets.pipeline.resources import SNAPSHOTS, snapshots_of
from snapshot_assets.pipeline.tags import show_tags
from snapshot_assets.plan.plan import Plan


def retention_op(plan: Plan) -> dg.OpDefinition:
    """Return the op of `<plan>_retention`."""

    @dg.op(
        name=f"{plan.name}_retain",
        required_resource_keys={SNAPSHOTS},
        description="Creates the automatic tag that is due, deletes tags that outlived their time, expires revisions.",
    )
    def retain(context: dg.OpExecutionContext, config: DryRunConfig) -> None:
        with opened_catalog(context, plan, dry_run=config.dry_run) as catalog:
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


def savepoint_op(plan: Plan, spark_key: str) -> dg.OpDefinition:
    """Return the op of `<plan>_savepoint`."""

    @dg.op(
        name=f"{plan.name}_save",
        required_resource_keys={SNAPSHOTS, spark_key},
        description="Compacts everything and pins it under the next number, if the plan's rule has a savepoint due, "
        "and deletes the oldest automatic ones above the maximum.",
    )
    def save(context: dg.OpExecutionContext, config: DryRunConfig) -> None:
        rule = plan.retention.savepoint.rule if plan.retention.savepoint else None
        with opened_catalog(context, plan, dry_run=config.dry_run) as catalog:
            wanted = due(catalog.require_snapshot(), catalog.now(), savepoint=rule)
            gone = wanted.savepoints_gone
            metadata: dict[str, Any] = {"dry_run": config.dry_run, "due": wanted.savepoint}
            if not config.dry_run:
                if wanted.savepoint:
                    metadata |= _saved(context, plan, catalog)
                gone = tuple(each for each in gone if delete_pin(catalog, each))
            metadata["savepoints_deleted"] = [each.pin.id for each in gone]
        context.add_output_metadata(with_sizes(metadata))

    return save


def _saved(context: dg.OpExecutionContext, plan: Plan, catalog: Catalog) -> dict[str, Any]:
    """Make a savepoint, and return its metadata."""
    snapshots, chunks = snapshots_of(context), 0

    def compact(compaction: CompactionPlan) -> None:
        nonlocal chunks
        executed = snapshots.compact_run(plan.name, catalog).execute(compaction)
        counting = snapshots.counting("compacting", len(compaction.chunks), context.log.info)
        with counting as progress, closing(executed) as outcomes:
            for outcome in outcomes:
                progress.outcome(outcome)
                chunks += 1

    savepoint = compact_and_pin(catalog, compact, automatic=True).pin
    return {"chunks_compacted": chunks, "savepoint": str(savepoint.id), "revision": str(savepoint.revision)}
