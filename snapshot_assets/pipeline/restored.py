"""The asset `restored`: a plan's snapshot in the plan's target, window by window, and the checks of its row counts."""

# Dagster reads the annotations of assets and checks, so they must not be postponed here.
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import dagster as dg
from pydantic import Field

from snapshot_assets.engine.restore.check import RestoreSettings
from snapshot_assets.engine.restore.loader import ChunkOutcome
from snapshot_assets.engine.restore.prepared import Prepared
from snapshot_assets.engine.restore.run import RestoreRun
from snapshot_assets.errors import SnapshotError
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.relations import TableName
from snapshot_assets.pipeline.checks import Judge, partitioned_check
from snapshot_assets.pipeline.io_manager import as_failure
from snapshot_assets.pipeline.partitions import partitions_of, window_of
from snapshot_assets.pipeline.resources import SNAPSHOTS, SPARK, snapshots_of
from snapshot_assets.plan.plan import Plan

_MOST_ROWS = 50


class RestoreConfig(dg.Config):
    """Run config of `restored`."""

    replace: bool = Field(default=False, description="Delete these windows' rows from the target and load them again.")
    into_nonempty: bool = Field(
        default=False,
        description="Load into tables that hold rows of others: what both have is then there twice.",
    )
    version: str | None = Field(
        default=None, description="Version to restore, such as rev:12; the newest seal by default."
    )

    def over(self, settings: RestoreSettings) -> RestoreSettings:
        """Return settings with what is configured here."""
        return dataclasses.replace(
            settings,
            version=settings.version if self.version is None else self.version,
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
        run = snapshots_of(context).restore_run(plan.name)
        run.settings = config.over(run.settings)
        keys = {} if plan.schema_only else {window_of(plan, key).id: key for key in context.partition_keys}
        done: dict[str, dict[str, Any]] = {}
        try:
            prepared = run.begin([UNTIMED_CHUNK, *keys], list(keys) if config.replace else ())
            if not config.replace:
                run.check_rows(prepared, [UNTIMED_CHUNK, *keys])
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


def _outcomes(run: RestoreRun, chunks: Sequence[int], *, again: bool) -> Iterator[ChunkOutcome]:
    """Load chunk 0 too, whichever windows are wanted: no window holds the tables without a time index."""
    if not again:
        yield from run.restore([UNTIMED_CHUNK, *chunks])
        return
    yield from run.restore([UNTIMED_CHUNK])
    if chunks:
        yield from run.restore(chunks, again=True)


def _metadata(outcome: ChunkOutcome, prepared: Prepared) -> dict[str, Any]:
    return {
        "dagster/partition_row_count": prepared.rows_after(outcome),
        "rows_loaded": outcome.rows,
        "bytes": outcome.bytes,
        "status": outcome.status,
        "chunk": outcome.chunk,
        "revision": prepared.state.revision,
        "snapshot_id": prepared.state.snapshot_id,
        "import": prepared.record.id,
    }


def row_counts_checks(plan: Plan) -> list[dg.AssetChecksDefinition]:
    """Return the checks of `restored`: the target holds as many rows as the revision that was restored.

    `row_counts` looks at each window; `untimed_row_counts` at what no window holds.
    """
    asset = dg.AssetKey([plan.name, "restored"])
    description = "The target holds as many rows of the window as the manifest, table by table."
    return [
        partitioned_check(plan, asset, partitions_of(plan), "row_counts", description, _counting),
        _untimed_check(plan, asset),
    ]


def _untimed_check(plan: Plan, asset: dg.AssetKey) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=asset,
        name="untimed_row_counts",
        description="The target holds as many rows that lie in no window as the manifest, table by table.",
        required_resource_keys={SNAPSHOTS},
    )
    def untimed_row_counts(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        with _counting(context, plan) as judge:
            passed, metadata = judge(UNTIMED_CHUNK)
        return dg.AssetCheckResult(passed=passed, metadata=metadata)

    return untimed_row_counts


@contextmanager
def _counting(context: dg.AssetCheckExecutionContext, plan: Plan) -> Iterator[Judge]:
    """Open the target, and count its rows of a chunk.

    The revision is the one that the ledger says was restored: a newer one may be sealed by now.
    """
    run = snapshots_of(context).restore_run(plan.name)
    prepared = run.prepare(recorded=True)
    with run.target() as target:

        def judge(chunk: int) -> tuple[bool, Mapping[str, Any]]:
            if chunk not in {UNTIMED_CHUNK, *(each.chunk for each in prepared.chunks)}:
                return False, {"not_restored": f"Revision {prepared.state.revision}, which was restored, lacks it."}
            different = prepared.differences(target, chunk)
            return not different, _difference_metadata(different)

        yield judge


def _difference_metadata(different: dict[TableName, tuple[int, int]]) -> dict[str, Any]:
    metadata: dict[str, Any] = {"tables_that_differ": len(different)}
    if different:
        records = [
            dg.TableRecord({"table": str(name), "expected": expected, "found": found})
            for name, (expected, found) in sorted(different.items())
        ]
        metadata["differences"] = dg.MetadataValue.table(records=records[:_MOST_ROWS])
    return metadata
