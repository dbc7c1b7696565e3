"""The op of `<plan>_restore_drill`: restores the newest tag into a scratch database, compares, and drops it."""

# Dagster reads the annotations of ops, so they must not be postponed here.
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.databases.open import scratch_database
from snapshot_assets.engine.restore.settings import RestoreSettings
from snapshot_assets.format.names import table_text
from snapshot_assets.format.units import human_seconds
from snapshot_assets.pipeline.dagster.failures import as_failure
from snapshot_assets.pipeline.dagster.keys import asset_key
from snapshot_assets.pipeline.dagster.metadata import first_rows
from snapshot_assets.pipeline.dagster.resources import SNAPSHOTS, snapshots_of
from snapshot_assets.plan.plan import Plan

if TYPE_CHECKING:
    from snapshot_assets.engine.restore.compare import ComparedRows
    from snapshot_assets.engine.restore.plan import RestorePlan

_REMEDY = (
    "The drill's database is dropped, and the location is as before. Once the cause is gone, launch the drill again: it"
    " starts over. In PostgreSQL its role needs the right to create databases: `ALTER ROLE … CREATEDB`. If"
    " files are damaged, launch the plan's job `verify` with `depth: full`: it shows every damaged partition."
)


class DrillConfig(dg.Config):
    """Run config of `<plan>_restore_drill`."""

    version: str | None = Field(
        default=None, description="Version to restore, such as rev:12; by default the newest tag, else the newest seal."
    )
    expressions: bool = Field(
        default=True,
        description="Whether SQL text of the snapshot is run: defaults, checks, generated columns, views.",
    )
    with_code: bool = Field(
        default=False, description="Whether code of the snapshot is restored too: functions, triggers, rules, policies."
    )


def drill_op(plan: Plan, spark_key: str) -> dg.OpDefinition:
    """Return the op of the job `<plan>_restore_drill`."""

    @dg.op(
        name=f"{plan.name}_drill",
        required_resource_keys={SNAPSHOTS, spark_key},
        description="Restores the newest tag into a scratch database, compares all rows, and drops the database.",
    )
    def restore_and_compare(context: dg.OpExecutionContext, config: DrillConfig) -> None:
        manifest = asset_key(plan, "manifest")
        try:
            facts = _drill(context, plan, config)
        except Exception as error:  # of any kind: the manifest would go on showing the last drill that passed
            failure = as_failure(error, _REMEDY)
            failed = {"error": failure.description or ""}
            context.log_event(dg.AssetObservation(manifest, description="Restore drill failed", metadata=failed))
            raise failure from error
        context.log_event(dg.AssetObservation(manifest, description="Restore drill passed", metadata=facts))
        context.add_output_metadata(facts)

    return restore_and_compare


def _drill(context: dg.OpExecutionContext, plan: Plan, config: DrillConfig) -> dict[str, Any]:
    """Have the drill, and return its metadata."""
    from snapshot_assets.engine.restore.compare import drill, newest_tag

    started, snapshots = time.monotonic(), snapshots_of(context)
    version = config.version or newest_tag(Catalog.open(snapshots.store(plan.name)).require_snapshot())
    settings = RestoreSettings.of(plan)
    code = config.with_code or (plan.with_code and config.expressions)
    filters = replace(settings.filters, expressions=config.expressions, code=code)
    settings = replace(settings, filters=filters, version=version)
    with scratch_database(snapshots.scratch(plan.name), f"snapshots_drill_{plan.name}") as address:
        run = snapshots.restore_into(plan, address, settings)
        restored, compared = drill(run, partial(snapshots.counting, log=context.log.info))
    seconds = time.monotonic() - started
    return {
        "version": version or "newest seal",
        **_facts(restored, compared),
        "seconds": round(seconds, 1),
        "time": human_seconds(seconds),
    }


def _facts(plan: "RestorePlan", compared: "list[ComparedRows]") -> dict[str, Any]:
    rows = Counter[str]()
    for each in compared:
        rows[table_text(each.table)] += each.found
    facts: dict[str, Any] = {
        "revision": str(plan.state.revision),
        "rows_compared": rows.total(),
        "compared": "values" if plan.same_kind else "numbers of rows: the scratch database is of another kind",
    }
    if rows:
        facts["tables"] = first_rows({"table": name, "rows": count} for name, count in sorted(rows.items()))
    if plan.lost:
        facts["not_carried"] = first_rows({"what": what} for what in plan.lost)
    return facts
