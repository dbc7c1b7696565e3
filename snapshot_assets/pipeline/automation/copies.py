"""The asset of a plan of kind `query`: a copy of its rows, sealed as a snapshot of its own."""

# Dagster reads the annotations of assets, so they must not be postponed here.
from collections.abc import Sequence
from typing import Any

import dagster as dg

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.engine.export.copy import Copied, copy
from snapshot_assets.engine.export.tasks import Outcome
from snapshot_assets.pipeline.assets.conditions import fresh
from snapshot_assets.pipeline.assets.io_manager import ChunkScans
from snapshot_assets.pipeline.automation.exports import ExportConfig, chosen_chunks, export_schedules
from snapshot_assets.pipeline.dagster.dagster_internals import NO_EVENTS_AT_THE_END, accepting_unstable_parts
from snapshot_assets.pipeline.dagster.failures import showing_failures
from snapshot_assets.pipeline.dagster.keys import plan_asset
from snapshot_assets.pipeline.dagster.materializations import made_from_versions, report_chunks
from snapshot_assets.pipeline.dagster.metadata import first_rows, seal_metadata, with_sizes
from snapshot_assets.pipeline.dagster.partitions import partitions_of
from snapshot_assets.pipeline.dagster.resources import SNAPSHOTS, snapshots_of
from snapshot_assets.plan.plan import Plan


def copy_definitions(plan: Plan, spark_key: str) -> dg.Definitions:
    """Return the definitions of a plan of kind `query`: its asset `copy`, the job `<plan>_copy`, and its schedule."""
    with accepting_unstable_parts():
        asset = copy_asset(plan, spark_key)
    windows = " Without partitions, it copies every closed window that is missing." if plan.windowed else ""
    job = dg.define_asset_job(
        f"{plan.name}_copy",
        selection=dg.AssetSelection.assets(asset.key),
        description=f"Copies the query of {plan.name}; for schedules.{windows}",
    )
    schedules = export_schedules(plan, job) if plan.scheduled else []
    return dg.Definitions(assets=[asset], jobs=[job], schedules=schedules)


def copy_asset(plan: Plan, spark_key: str) -> dg.AssetsDefinition:
    """Return the asset `<plan>/copy`; it is partitioned if the query has windows."""
    decorator = plan_asset(
        plan,
        "copy",
        **fresh(plan),
        kinds={"pyspark", plan.format},
        required_resource_keys={SNAPSHOTS, spark_key},
        partitions_def=partitions_of(plan) if plan.windowed else None,
        backfill_policy=dg.BackfillPolicy(max_partitions_per_run=plan.chunks_per_run) if plan.windowed else None,
        metadata={"location": plan.to, "query": _query_text(plan)},
        description=f"Copies a query of `{plan.source}` to `{plan.to}`. The copy is complete once `manifest.json` says"
        " `sealed: true`.",
    )

    def windows(context: dg.AssetExecutionContext, config: ExportConfig) -> dg.MaterializeResult[None]:
        with showing_failures():
            metadata = _copy(context, plan, chosen_chunks(context, plan, config))
        context.log_event(dg.AssetObservation(context.asset_key, metadata=metadata))
        return dg.MaterializeResult(metadata=metadata | NO_EVENTS_AT_THE_END)

    def whole(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        with showing_failures():
            return dg.MaterializeResult(metadata=_copy(context, plan, ChunkScans(())))

    return decorator(windows if plan.windowed else whole)


def _copy(context: dg.AssetExecutionContext, plan: Plan, chosen: ChunkScans) -> dict[str, Any]:
    """Copy the chosen windows, or a query without windows; returns the metadata."""
    snapshots = snapshots_of(context)

    def report(outcomes: Sequence[Outcome], state: State) -> None:
        for outcome in outcomes:
            progress.outcome(outcome)
        if plan.windowed:
            report_chunks(context, context.asset_key, plan, outcomes, state, made_from_versions({}))
        if committed := [outcome for outcome in outcomes if outcome.status != "present"]:
            context.log.info(progress.committed(committed))

    run = snapshots.export_run(plan.name)
    chunks = len(chosen.chunks) + len(chosen.late) or 1
    with snapshots.counting("copying", chunks, context.log.info) as progress:
        copied = copy(run, chosen.chunks, replace=chosen.replace, late=chosen.late, on_commit=report)
    context.log.info(f"COPY {copied.rows}")
    return copy_metadata(plan, copied, run.store.uri)


def copy_metadata(plan: Plan, copied: Copied, uri: str) -> dict[str, Any]:
    """Return the metadata of a copy's materialization; that of each window is beside it."""
    files = [file for outcome in copied.outcomes for file in outcome.files]
    metadata: dict[str, Any] = {
        "dagster/row_count": copied.rows,
        "bytes": sum(file.bytes for file in files),
        "file_count": len(files),
        "location": dg.MetadataValue.text(uri),
        "format": plan.file_format.text(),
        "query": _query_text(plan),
        "sealed": copied.sealed is not None,
    }
    if not plan.windowed:
        metadata["files"] = first_rows(
            {"path": file.path, "rows": file.rows, "bytes": file.bytes, "sha256": file.sha256} for file in files
        )
    if copied.state.header is not None and copied.state.header.single_file:
        metadata["file"] = dg.MetadataValue.text(f"{uri}/{files[0].path}")
    seal = seal_metadata(copied.sealed, copied.state, uri) if copied.sealed else {}
    return with_sizes(metadata | seal | metadata)  # what the run did first, and not what the seal has of the same name


def _query_text(plan: Plan) -> dg.MarkdownMetadataValue:
    return dg.MetadataValue.md(f"```sql\n{plan.query}\n```")
