"""The op of `<plan>_restore_drill`: restores the newest tag into a scratch database, compares, and drops it."""

# Dagster reads the annotations of ops, so they must not be postponed here.
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import dagster as dg
from pydantic import Field

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.databases.open import scratch_database
from snapshot_assets.engine.restore.compare import ComparedRows
from snapshot_assets.engine.restore.plan import RestorePlan
from snapshot_assets.engine.restore.run import RestoreRun
from snapshot_assets.engine.restore.settings import RestoreSettings
from snapshot_assets.errors import RestoreError, SnapshotError
from snapshot_assets.format.units import human_seconds
from snapshot_assets.pipeline.failures import as_failure
from snapshot_assets.pipeline.keys import asset_key
from snapshot_assets.pipeline.metadata import first_rows
from snapshot_assets.pipeline.resources import SNAPSHOTS, snapshots_of
from snapshot_assets.plan.plan import Plan


class DrillConfig(dg.Config):
    """Run config of `<plan>_restore_drill`."""

    version: str | None = Field(
        default=None, description="Version to restore, such as rev:12; by default the newest tag, else the newest seal."
    )


def drill_op(plan: Plan, spark_key: str) -> dg.OpDefinition:
    """Return the op of the job `<plan>_restore_drill`."""

    @dg.op(
        name=f"{plan.name}_drill",
        required_resource_keys={SNAPSHOTS, spark_key},
        description="Restores the newest tag into a scratch database, compares all rows, and drops the database.",
    )
    def drill(context: dg.OpExecutionContext, config: DrillConfig) -> None:
        started = time.monotonic()
        snapshots = snapshots_of(context)
        try:
            version = config.version or _newest(Catalog.open(snapshots.store(plan.name)).require_snapshot())
            with scratch_database(snapshots.scratch(plan.name), f"snapshots_drill_{plan.name}") as address:
                run = snapshots.restore_into(plan, address, RestoreSettings(version=version))
                facts = _restore_and_compare(context, run)
        except SnapshotError as error:
            raise as_failure(error) from error
        seconds = time.monotonic() - started
        facts |= {"version": version or "newest seal", "seconds": round(seconds, 1), "time": human_seconds(seconds)}
        manifest = asset_key(plan, "manifest")
        context.log_event(dg.AssetObservation(manifest, description="Restore drill passed", metadata=facts))
        context.add_output_metadata(facts)

    return drill


def _newest(state: State) -> str | None:
    """Return the newest tag as a version, apart from tags of imports; None without one."""
    tags = [known.pin for name, known in state.tags.items() if not name.startswith("import-")]
    return f"tag:{max(tags, key=lambda tag: tag.created_at).name}" if tags else None


def _restore_and_compare(context: dg.OpExecutionContext, run: RestoreRun) -> dict[str, Any]:
    """Restore everything, and return what was compared.

    Raises:
        SnapshotError: The restore failed.
        RestoreError: The restored rows differ; names the tables.
    """
    plan = run.begin()
    with snapshots_of(context).counting("restoring", len(plan.chunks), context.log.info) as progress:
        for outcome in run.restore():
            progress.outcome(outcome)
    run.finish()
    context.log.info(f"Restored revision {plan.state.revision}; comparing its rows with the snapshot's.")
    compared = list(run.compare())
    _check(compared)
    return _facts(plan, compared, by_value=run.compares_values)


def _facts(plan: RestorePlan, compared: Sequence[ComparedRows], *, by_value: bool) -> dict[str, Any]:
    rows = Counter[str]()
    for each in compared:
        rows[str(each.table)] += each.found
    facts: dict[str, Any] = {
        "revision": str(plan.state.revision),
        "rows_compared": rows.total(),
        "compared": "values" if by_value else "numbers of rows: the scratch database is of another kind",
    }
    if rows:
        facts["tables"] = first_rows({"table": name, "rows": found} for name, found in sorted(rows.items()))
    if plan.lost:
        facts["not_carried"] = first_rows({"what": what} for what in plan.lost)
    return facts


def _check(compared: Sequence[ComparedRows]) -> None:
    for each in compared:
        if each.error is not None:
            raise each.error
    different = [each for each in compared if not each.equal]
    if different:
        named = "; ".join(
            f"{each.table} in chunk {each.chunk}: {each.expected} rows in the snapshot, {each.found} restored"
            for each in different[:5]
        )
        raise RestoreError(
            f"The restored rows differ from the snapshot's in {len(different)} places: {named}. The location is"
            " unchanged; keep it, and report this with the versions of the program and of the database.",
            tables=sorted({str(each.table) for each in different}),
        )
