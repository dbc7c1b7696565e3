"""What a plan's maintenance does to keep versions by rule: retention and savepoints."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import dagster as dg

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.operations.expire import ExpiryPlan, execute_expiry, plan_expiry
from snapshot_assets.catalog.pins.automatic import NewTag, due, with_new_tag
from snapshot_assets.catalog.pins.objects import delete_pin
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.catalog.state.unreferenced import EXPIRED, released_objects
from snapshot_assets.format import actions as act
from snapshot_assets.pipeline.maintenance import MaintenanceConfig, opened_catalog
from snapshot_assets.pipeline.metadata import with_sizes
from snapshot_assets.pipeline.resources import snapshots_of
from snapshot_assets.pipeline.tags import show_tags
from snapshot_assets.plan.plan import Plan

if TYPE_CHECKING:
    from snapshot_assets.engine.compact.plan import CompactionPlan


def apply_retention(context: dg.OpExecutionContext, plan: Plan, config: MaintenanceConfig) -> dict[str, Any]:
    """Create the tag that is due, delete those past their time, expire revisions; return the metadata of that."""
    with opened_catalog(context, plan, dry_run=config.dry_run) as catalog:
        before = catalog.require_snapshot().after(())  # a copy, which later commits do not change
        new = due(before, catalog.now(), tag=plan.retention.tag_rule).tag
        if config.dry_run:
            tagged = with_new_tag(before, new, catalog.now())
            expiry = plan_expiry(catalog, plan.retention.rule, tags=plan.retention.tag_rule, state=tagged)
            after = tagged.after([act.TagDeleted(name) for name in expiry.tags])
            after = after.after([act.Expired(expiry.expired)] if expiry.expired else [])
        else:
            expiry, after = _retain(context, plan, catalog, new), catalog.state
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


def _retain(context: dg.OpExecutionContext, plan: Plan, catalog: Catalog, new: NewTag | None) -> ExpiryPlan:
    """Create the tag that is due, then delete tags and expire revisions: there are never fewer than the rules keep.

    An expiry may refuse a damaged log. The new tag stays then, and is shown.
    """
    if new is not None:
        create_tag(catalog, new.name, new.revision, new.ttl, automatic=True)
    try:
        return execute_expiry(catalog, plan_expiry(catalog, plan.retention.rule, tags=plan.retention.tag_rule))
    finally:
        show_tags(context, plan, catalog.refresh(), catalog.store.uri)


def make_savepoint(context: dg.OpExecutionContext, plan: Plan, config: MaintenanceConfig) -> dict[str, Any]:
    """Compact and pin everything if a savepoint is due, delete the oldest; return the metadata of that."""
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
    return with_sizes(metadata)


def _saved(context: dg.OpExecutionContext, plan: Plan, catalog: Catalog) -> dict[str, Any]:
    """Make a savepoint, and return its metadata."""
    from snapshot_assets.engine.compact.savepoint import compact_and_pin

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
