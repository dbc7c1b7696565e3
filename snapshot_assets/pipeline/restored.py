"""The asset `restored`: a plan's snapshot in the plan's target, window by window, and the check of its row counts."""

# Dagster reads the annotations of assets and checks, so they must not be postponed here.
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg
from pydantic import Field

from snapshot_assets.databases.base import WindowRows
from snapshot_assets.databases.target import ImportTarget
from snapshot_assets.engine.restore import ImportRun, ImportSettings, Prepared
from snapshot_assets.engine.restore_load import ChunkOutcome
from snapshot_assets.errors import SnapshotError
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.relations import TableName
from snapshot_assets.pipeline.dagster_internals import target_materialization
from snapshot_assets.pipeline.io_manager import as_failure
from snapshot_assets.pipeline.partitions import partitions_of, window_of
from snapshot_assets.pipeline.resources import SNAPSHOTS, SPARK, snapshots_of
from snapshot_assets.plan import Plan

_MOST_ROWS = 50


class RestoreConfig(dg.Config):
    """Run config of `restored`."""

    replace: bool = Field(default=False, description="Delete these windows' rows from the target and load them again.")
    into_nonempty: bool = Field(
        default=False,
        description="Load into tables that hold rows of others: what both have is then there twice.",
    )
    version: str = Field(default="", description="Version to restore, such as rev:12; the newest seal by default.")

    def over(self, settings: ImportSettings) -> ImportSettings:
        """Return settings with what is configured here."""
        return dataclasses.replace(
            settings,
            version=self.version or settings.version,
            into_nonempty=self.into_nonempty or settings.into_nonempty,
            replace=self.replace or settings.replace,
        )


def restored_asset(plan: Plan, pool: str) -> dg.AssetsDefinition:
    """Return the asset `restored` of a plan that has a target.

    Args:
        plan: The plan.
        pool: Concurrency pool of the plan's assets.
    """

    @dg.asset(
        key=dg.AssetKey([plan.name, "restored"]),
        group_name=plan.name,
        kinds={"pyspark"},
        required_resource_keys={SNAPSHOTS, SPARK},
        deps=[dg.AssetKey([plan.name, "manifest"])],
        partitions_def=None if plan.schema_only else partitions_of(plan),
        backfill_policy=dg.BackfillPolicy.single_run(),
        pool=pool,
        metadata={"location": plan.to},
        description=f"The newest sealed snapshot of `{plan.to}` in the plan's target, each row exactly once.",
    )
    def restored(context: dg.AssetExecutionContext, config: RestoreConfig) -> dg.MaterializeResult[None]:
        run = snapshots_of(context).import_run(plan.name)
        run.settings = config.over(run.settings)
        keys = {} if plan.schema_only else {window_of(plan, key).id: key for key in context.partition_keys}
        done: dict[str, dict[str, Any]] = {}
        try:
            prepared = run.begin()
            for outcome in _outcomes(run, sorted(keys), again=config.replace):
                snapshots_of(context).on_loaded(outcome)
                if outcome.chunk in keys and outcome.error is None:
                    done[keys[outcome.chunk]] = _metadata(outcome, prepared)
            finished = run.finish()
        except SnapshotError as error:
            for key, metadata in done.items():  # Dagster records none of a run that fails
                context.log_event(dg.AssetMaterialization(context.asset_key, metadata=metadata, partition=key))
            raise as_failure(error) from error
        for key, metadata in done.items():
            context.add_asset_metadata(metadata, partition_key=key)
        context.log.info(
            f"Revision {prepared.state.revision}: {'finished' if finished else 'other windows are still to be loaded'}."
        )
        return dg.MaterializeResult()

    return restored


def _outcomes(run: ImportRun, chunks: Sequence[int], *, again: bool) -> Iterator[ChunkOutcome]:
    """Load chunk 0 too, whichever windows are wanted: no window holds the tables without a time index."""
    if not again:
        yield from run.restore([UNTIMED_CHUNK, *chunks])
        return
    yield from run.restore([UNTIMED_CHUNK])
    if chunks:
        yield from run.restore(chunks, again=True)


def _metadata(outcome: ChunkOutcome, prepared: Prepared) -> dict[str, Any]:
    rows = sum(known.file.rows for known in prepared.state.live_files(outcome.chunk))
    return {
        "dagster/partition_row_count": rows,
        "rows_loaded": outcome.rows,
        "bytes": outcome.bytes,
        "status": outcome.status,
        "chunk": outcome.chunk,
        "revision": prepared.state.revision,
        "snapshot_id": prepared.state.snapshot_id,
        "import": prepared.record.id,
    }


def row_counts_check(plan: Plan) -> dg.AssetChecksDefinition:
    """Return the partitioned check `row_counts`: the target holds as many rows of each window as the manifest."""
    asset = dg.AssetKey([plan.name, "restored"])

    @dg.asset_check(  # type: ignore[arg-type]  # Dagster accepts generators of evaluations; its stub does not say so
        asset=asset,
        name="row_counts",
        description="The target holds as many rows of the window as the manifest, table by table.",
        partitions_def=partitions_of(plan),
        required_resource_keys={SNAPSHOTS},
    )
    def row_counts(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckEvaluation | dg.Output[None]]:
        run = snapshots_of(context).import_run(plan.name)
        prepared = run.prepare()
        with run.target() as target:
            for key in context.partition_keys:
                different = _differences(prepared, target, window_of(plan, key).id)
                yield dg.AssetCheckEvaluation(
                    asset_key=asset,
                    check_name="row_counts",
                    partition=key,
                    passed=not different,
                    metadata=_difference_metadata(different),
                    target_materialization_data=target_materialization(context.instance, asset, key),
                )
        yield dg.Output(None)

    return row_counts


def _differences(prepared: Prepared, target: ImportTarget, chunk: int) -> dict[TableName, tuple[int, int]]:
    """Return the rows expected and found of the tables that differ in a window."""
    window, header = prepared.state.window(chunk), prepared.state.header
    zone = header.time_zone if header else "UTC"
    expected = _rows_by_table(prepared, chunk)
    different = {}
    for table in prepared.definition.tables:
        if table.time_index is not None:
            wanted = expected.get(table.table_name, 0)
            found = target.count(table, WindowRows(window.start, window.end, zone))
            if found != wanted:
                different[table.table_name] = (wanted, found)
    return different


def _rows_by_table(prepared: Prepared, chunk: int) -> dict[TableName, int]:
    """Return the rows of a chunk's files by table; the ledger knows how many of a file tombstones left in."""
    rows: dict[TableName, int] = {}
    for known in prepared.state.live_files(chunk):
        name = TableName(known.file.schema, known.file.table)
        loaded = prepared.done.get((name, known.file.path)) if prepared.state.deleting(known.file) else None
        rows[name] = rows.get(name, 0) + (loaded or known.file).rows
    return rows


def _difference_metadata(different: dict[TableName, tuple[int, int]]) -> dict[str, Any]:
    metadata: dict[str, Any] = {"tables_that_differ": len(different)}
    if different:
        records = [
            dg.TableRecord({"table": str(name), "expected": expected, "found": found})
            for name, (expected, found) in sorted(different.items())
        ]
        metadata["differences"] = dg.MetadataValue.table(records=records[:_MOST_ROWS])
    return metadata
