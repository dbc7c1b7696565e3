"""What a plan's maintenance does to keep its location short and clean: checkpoint, garbage collection, compaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, cast, get_args

import dagster as dg
from pydantic import Field

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.operations.expire import ExpiryPlan, execute_expiry, plan_expiry
from snapshot_assets.catalog.operations.garbage import execute_collection, plan_collection
from snapshot_assets.catalog.operations.maintain_log import checkpoint_head
from snapshot_assets.catalog.pins.automatic import NewTag, due, with_new_tag
from snapshot_assets.catalog.pins.objects import delete_pin
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.catalog.state.retained import EXPIRED, released_objects
from snapshot_assets.engine.compact.options import TARGET_BYTES, CompactionOptions, Dedupe
from snapshot_assets.errors import PlanError
from snapshot_assets.format import actions as act
from snapshot_assets.format.names import parse_table
from snapshot_assets.format.units import parse_file_size, size_text
from snapshot_assets.pipeline.assets.tags import show_tags
from snapshot_assets.pipeline.dagster.failures import showing_failures
from snapshot_assets.pipeline.dagster.metadata import (
    checkpoint_metadata,
    compaction_metadata,
    garbage_metadata,
    plan_metadata,
    with_sizes,
)
from snapshot_assets.pipeline.dagster.partitions import asset_key
from snapshot_assets.pipeline.dagster.resources import snapshots_of
from snapshot_assets.plan.plan import Plan

if TYPE_CHECKING:
    from snapshot_assets.engine.compact.plan import CompactionPlan
    from snapshot_assets.engine.compact.run import Compacted


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
def opened_catalog(context: dg.OpExecutionContext, plan: Plan, *, dry_run: bool = False) -> Iterator[Catalog]:
    """Open a plan's location; an error becomes one that Dagster shows and does not retry.

    Raises:
        dagster.Failure: The work failed.
    """
    with showing_failures():
        store = snapshots_of(context).store(plan.name)
        if dry_run:
            yield Catalog.open(store)
        else:
            yield Catalog.open_for_writing(store, single_writer=plan.single_writer)


def write_checkpoint(context: dg.OpExecutionContext, plan: Plan, config: MaintenanceConfig) -> dict[str, Any]:
    """Write the checkpoint of the newest revision, and return the metadata of that."""
    with opened_catalog(context, plan, dry_run=config.dry_run) as catalog:
        if config.dry_run:
            return {"dry_run": True, "revision": str(catalog.require_snapshot().revision)}
        return checkpoint_metadata(checkpoint_head(catalog))


def collect_garbage(context: dg.OpExecutionContext, plan: Plan, config: MaintenanceConfig) -> dict[str, Any]:
    """Delete the garbage that is older than the plan's grace; return and record the metadata of that."""
    with opened_catalog(context, plan, dry_run=config.dry_run) as catalog:
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

    snapshots = snapshots_of(context)
    done: list[Compacted] = []
    with opened_catalog(context, plan, dry_run=config.dry_run) as catalog:
        run = snapshots.compact_run(plan.name, catalog)
        compaction = plan_compaction(catalog.store, catalog.require_snapshot(), config.options())
        if config.dry_run:
            return plan_metadata(compaction)
        counting = snapshots.counting("compacting", len(compaction.chunks), context.log.info)
        with counting as progress, closing(run.execute(compaction)) as outcomes:
            for outcome in outcomes:
                done.append(outcome)
                progress.outcome(outcome)
    return compaction_metadata(done)


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
    from snapshot_assets.engine.compact.plan import compact_and_pin

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
