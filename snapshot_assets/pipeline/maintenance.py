"""What a plan's maintenance does to keep its location short and clean: checkpoint, garbage collection, compaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, cast, get_args

import dagster as dg
from pydantic import Field

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.operations.collect_garbage import execute_collection, plan_collection
from snapshot_assets.catalog.operations.maintain_log import checkpoint_head
from snapshot_assets.engine.compact.options import TARGET_BYTES, CompactionOptions, Dedupe
from snapshot_assets.errors import PlanError
from snapshot_assets.format.names import parse_table
from snapshot_assets.format.units import parse_file_size, size_text
from snapshot_assets.pipeline.failures import showing_failures
from snapshot_assets.pipeline.keys import asset_key
from snapshot_assets.pipeline.metadata import checkpoint_metadata, compaction_metadata, garbage_metadata, plan_metadata
from snapshot_assets.pipeline.resources import snapshots_of
from snapshot_assets.plan.plan import Plan

if TYPE_CHECKING:
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
