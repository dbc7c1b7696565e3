"""Restores that Dagster starts: the job `<plan>_restore` with its sensor, and the op of `<plan>_restore_drill`."""

# Dagster reads the annotations of ops and sensors, so they must not be postponed here.
import time
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import dagster as dg
from pydantic import Field

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.databases.open import scratch_database
from snapshot_assets.engine.restore.settings import RestoreSettings
from snapshot_assets.format.names import table_text
from snapshot_assets.format.units import human_seconds
from snapshot_assets.pipeline.assets.restored import RestoreConfig, not_compared
from snapshot_assets.pipeline.dagster.failures import as_failure, showing_failed_ticks
from snapshot_assets.pipeline.dagster.metadata import first_rows
from snapshot_assets.pipeline.dagster.partitions import asset_key, op_name, sensor_status
from snapshot_assets.pipeline.dagster.resources import SNAPSHOTS, snapshots_of
from snapshot_assets.pipeline.dagster.runs import failed_before, why_to_wait
from snapshot_assets.plan.plan import Plan

_SECONDS = 60
"""How often the sensor looks for something new."""

_AGAIN = timedelta(hours=1)
"""How long after a failed restore it is tried again."""


def restore_job(plan: Plan) -> Any:
    """Return the job `<plan>_restore`, which restores the newest seal into the plan's target."""
    return dg.define_asset_job(
        f"{plan.name}_restore",
        selection=dg.AssetSelection.assets(asset_key(plan, "restored")),
        description=f"Restores the newest seal of `{plan.to}` into {plan.target}: what is missing there, or changed.",
    )


def restore_sensor(plan: Plan, job: Any) -> dg.SensorDefinition:
    """Return the sensor of a plan with `restore_on`.

    It requests each seal or event once, and again each hour while its restore fails. While a run has not ended, it
    waits.
    """
    on = plan.dagster.restore_on
    assert on is not None
    sealed, key = on == "sealed", dg.AssetKey(on.split("/"))

    @dg.sensor(
        name=f"{plan.name}_restore_sensor",
        job=job,
        required_resource_keys={SNAPSHOTS},
        default_status=sensor_status(plan),
        minimum_interval_seconds=_SECONDS,
        description=f"Restores each new seal of `{plan.to}`, whoever made it."
        if sealed
        else f"Restores the newest seal of `{plan.to}` when `{on}` is materialised.",
    )
    @showing_failed_ticks()
    def restore(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        state = Catalog.open(snapshots_of(context).store(plan.name)).state
        if state.newest_seal is None:
            return dg.SkipReason(
                f"Waits for a seal: {plan.to} has no sealed snapshot. Export it: launch {plan.name}_export, or run"
                " `snapshots export create` where it is exported."
            )
        new = f"{state.location_id} {state.newest_seal.revision}"
        if not sealed:
            records = context.instance.fetch_materializations(key, limit=1).records
            new = f"{key.to_user_string()} {records[0].storage_id}" if records else ""
        if waiting := why_to_wait(context, job.name):
            return dg.SkipReason(waiting)
        if not new:
            return dg.SkipReason(
                f"Waits for asset {on}: it was never materialised. Materialise it, or launch {job.name}."
            )
        if new == context.cursor and not failed_before(context.instance, job.name, _AGAIN):
            what = f"seal of {plan.to}" if sealed else f"materialization of asset {on}"
            found = f"revision {state.newest_seal.revision}" if sealed else f"event {records[0].storage_id}"
            failed = failed_before(context.instance, job.name, timedelta(0))
            again = " The run failed: it is requested again an hour after its end." if failed else ""
            return dg.SkipReason(
                f"Waits for a new {what}: a run was requested for the newest, {found}.{again} To restore it again,"
                f" launch {job.name}."
            )
        context.update_cursor(new)
        return dg.RunRequest(run_config=dg.RunConfig(ops={op_name(plan, "restored"): RestoreConfig(replace=True)}))

    return restore


_REMEDY = (
    "The drill's database is dropped, and the location is as before. Once the cause is gone, launch the drill again: it"
    " starts over. In PostgreSQL its role needs the right to create databases: `ALTER ROLE … CREATEDB`. If"
    " files are damaged, launch the job `<plan>_verify` with `depth: full`: it shows every damaged partition."
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
    """Restore and compare; returns the metadata."""
    from snapshot_assets.engine.restore.drill import drill, newest_tag

    started, snapshots = time.monotonic(), snapshots_of(context)
    version = config.version or newest_tag(Catalog.open(snapshots.store(plan.name)).require_snapshot())
    settings = RestoreSettings.of(plan)
    code = config.with_code or (plan.with_code and config.expressions)
    filters = replace(settings.filters, expressions=config.expressions, code=code)
    settings = replace(settings, filters=filters, version=version)
    with scratch_database(snapshots.scratch(plan.name), f"snapshots_drill_{plan.name}") as address:
        run = snapshots.restore_into(plan, address, settings)
        restored, compared = drill(run, partial(snapshots.counting, log=context.log.info))
    seconds, rows = time.monotonic() - started, Counter[str]()
    for each in compared:
        rows[table_text(each.table)] += each.found
    facts: dict[str, Any] = {
        "version": version or "newest seal",
        "revision": str(restored.state.revision),
        "rows_compared": rows.total(),
        "compared": "values",
        "tables_compared": len(rows),
        **not_compared(compared),
    }
    if rows:
        facts["tables"] = first_rows({"table": name, "rows": count} for name, count in sorted(rows.items()))
    if restored.lost:
        facts["not_carried"] = first_rows({"what": what} for what in restored.lost)
    return facts | {"seconds": round(seconds, 1), "time": human_seconds(seconds)}
