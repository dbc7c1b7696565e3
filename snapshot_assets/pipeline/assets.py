"""Builds a plan's assets, checks, jobs and schedules, named after the plan. Nothing here connects."""

# Dagster reads the annotations of assets and checks, so they must not be postponed here.
from collections.abc import Callable
from typing import Any

import dagster as dg

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.state.totals import outside_text
from snapshot_assets.engine.export.start_snapshot import skipped_text
from snapshot_assets.errors import SnapshotError
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.pipeline.checks import chunk_checks, manifest_checks
from snapshot_assets.pipeline.dagster_internals import accepting_unstable_parts
from snapshot_assets.pipeline.io_manager import ChunkConfig, ChunkScans, as_failure, snapshot_io_manager
from snapshot_assets.pipeline.jobs import plan_jobs, plan_schedules
from snapshot_assets.pipeline.metadata import seal_metadata
from snapshot_assets.pipeline.partitions import partitions_of, window_of
from snapshot_assets.pipeline.resources import SNAPSHOTS, SPARK, snapshots_of
from snapshot_assets.pipeline.restored import restored_asset, row_counts_checks
from snapshot_assets.pipeline.tags import tag_asset, tag_job, tag_sensor
from snapshot_assets.plan.plan import Plan

CODE_VERSION = "1"
"""Raise it when an asset writes something else, so that Dagster marks its partitions as made by older code."""

POOL = "snapshots"
"""Concurrency pool of the assets that read the source."""


AssetDecorator = Callable[[Callable[..., Any]], dg.AssetsDefinition]


def io_manager_key(plan: Plan) -> str:
    """Return the resource key of a plan's IO manager."""
    return f"{plan.name}_io_manager"


def snapshot_assets(plan: Plan) -> list[dg.AssetsDefinition]:
    """Return a plan's assets: `schema`, `chunks`, `untimed_tables`, `manifest`, `tag`, and `restored` for a target.

    A plan without rows has neither `chunks` nor `untimed_tables`.

    Args:
        plan: A plan with a start time.

    Raises:
        PlanError: The plan's windows cannot be Dagster partitions; names the lengths that work.
    """
    plan.require_dagster()
    with accepting_unstable_parts():
        restored = [restored_asset(plan, POOL)] if plan.target else []
        data = [] if plan.schema_only else [_chunks(plan), _untimed_tables(plan)]
        return [_schema(plan), *data, _manifest(plan), tag_asset(plan, POOL), *restored]


def snapshot_checks(plan: Plan) -> list[dg.AssetChecksDefinition]:
    """Return the checks of a plan's assets."""
    with accepting_unstable_parts():
        on_chunks = [] if plan.schema_only else chunk_checks(plan, partitions_of(plan))
        on_restored = row_counts_checks(plan) if plan.target and not plan.schema_only else []
        return [*on_chunks, *manifest_checks(plan), *on_restored]


def snapshot_definitions(plan: Plan) -> dg.Definitions:
    """Return all definitions of a plan except the resources `snapshots` and `pyspark`.

    Args:
        plan: A plan with a start time.
    """
    jobs, tagging = plan_jobs(plan), tag_job(plan)
    return dg.Definitions(
        assets=snapshot_assets(plan),
        asset_checks=snapshot_checks(plan),
        jobs=[*([] if plan.schema_only else [_chunks_job(plan)]), *jobs, tagging],
        schedules=plan_schedules(plan, jobs),
        sensors=[tag_sensor(plan, tagging)],
        resources={io_manager_key(plan): snapshot_io_manager(plan.name)},
    )


def _chunks_job(plan: Plan) -> Any:
    return dg.define_asset_job(
        f"{plan.name}_chunks",
        selection=dg.AssetSelection.assets(_key(plan, "chunks")),
        description=f"Exports windows of {plan.name}; used by schedules and backfills.",
    )


def _policy(plan: Plan) -> dg.BackfillPolicy:
    if plan.chunks_per_run is None:
        return dg.BackfillPolicy.single_run()
    return dg.BackfillPolicy.multi_run(plan.chunks_per_run)


def _key(plan: Plan, name: str) -> dg.AssetKey:
    return dg.AssetKey([plan.name, name])


def _asset(plan: Plan, name: str, **settings: Any) -> AssetDecorator:
    """Return the decorator of an asset that reads the source."""
    decorator: AssetDecorator = dg.asset(
        key=_key(plan, name), group_name=plan.name, code_version=CODE_VERSION, pool=POOL, **settings
    )
    return decorator


def _chunk_asset(plan: Plan, name: str, **settings: Any) -> AssetDecorator:
    """Return the decorator of an asset whose output the IO manager writes as chunks."""
    return _asset(
        plan,
        name,
        kinds={"pyspark", plan.format},
        required_resource_keys={SNAPSHOTS, SPARK},
        deps=[_key(plan, "schema")],
        io_manager_key=io_manager_key(plan),
        metadata={"location": plan.to},
        **settings,
    )


def _schema(plan: Plan) -> dg.AssetsDefinition:
    @_asset(
        plan,
        "schema",
        kinds={"json"},
        required_resource_keys={SNAPSHOTS},
        backfill_policy=dg.BackfillPolicy.single_run(),
        description=f"Tables and views of `{plan.source}` as JSON documents. Materialising it starts the snapshot.",
    )
    def schema(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        snapshots = snapshots_of(context)
        try:
            export = snapshots.open_export(plan.name)
        except SnapshotError as error:
            raise as_failure(error) from error
        state = export.catalog.state
        if export.skipped:
            snapshots.on_skipped(export.skipped)
            context.log.info(skipped_text(export.skipped))
        return dg.MaterializeResult(
            metadata={
                "tables_skipped": [str(name) for name in export.skipped],
                "snapshot_id": state.snapshot_id,
                "schema_id": state.schema_id,
                "folder": state.schemas[state.schema_id].folder,
                "table_count": len(export.schema.tables),
                "view_count": len(export.schema.views),
                "tables": dg.MetadataValue.md("\n".join(f"- `{table.table_name}`" for table in export.schema.tables)),
            }
        )

    return schema


def _chunks(plan: Plan) -> dg.AssetsDefinition:
    @_chunk_asset(
        plan,
        "chunks",
        partitions_def=partitions_of(plan),
        backfill_policy=_policy(plan),
        description=f"One chunk of `{plan.to}` per window: all timed tables' rows of `{plan.source}` in it.",
    )
    def chunks(context: dg.AssetExecutionContext, config: ChunkConfig) -> ChunkScans:
        windows = sorted(window_of(plan, key) for key in context.partition_keys)
        return ChunkScans(tuple(window.id for window in windows), config.replace)

    return chunks


def _untimed_tables(plan: Plan) -> dg.AssetsDefinition:
    @_chunk_asset(
        plan,
        "untimed_tables",
        backfill_policy=dg.BackfillPolicy.single_run(),
        description="Chunk 0: tables without a time index, and rows whose time is NULL or infinite.",
    )
    def untimed_tables(config: ChunkConfig) -> ChunkScans:
        return ChunkScans((UNTIMED_CHUNK,), config.replace or plan.kind == "continuous")

    return untimed_tables


def _upstream_of_manifest(plan: Plan) -> list[dg.AssetDep]:
    if plan.schema_only:
        return [dg.AssetDep(_key(plan, "schema"))]
    every_chunk = dg.AssetDep(_key(plan, "chunks"), partition_mapping=dg.AllPartitionMapping())
    return [every_chunk, dg.AssetDep(_key(plan, "untimed_tables"))]


def _manifest(plan: Plan) -> dg.AssetsDefinition:
    @_asset(
        plan,
        "manifest",
        kinds={"json"},
        required_resource_keys={SNAPSHOTS},
        deps=_upstream_of_manifest(plan),
        backfill_policy=dg.BackfillPolicy.single_run(),
        description="Checks that every file exists with its size. Hashes the files that no seal has verified, or if "
        "there are none, up to 1 GB of the others, another part each day. Then seals the snapshot and writes "
        "`manifest.json` and `SHA256SUMS`.",
    )
    def manifest(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        snapshots = snapshots_of(context)
        try:
            sealed = snapshots.seal(plan.name)
            state = Catalog.open(snapshots.store(plan.name)).state
        except SnapshotError as error:
            raise as_failure(error) from error
        if outside := outside_text(state):
            context.log.info(outside)
        return dg.MaterializeResult(metadata=seal_metadata(sealed, state, plan.to))

    return manifest
