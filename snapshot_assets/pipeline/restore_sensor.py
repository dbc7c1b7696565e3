"""The job `<plan>_restore`, and the sensor that starts it: on a new seal of a location, or on an asset's event."""

# Dagster reads the annotations of sensors, so they must not be postponed here.
from typing import Any

import dagster as dg

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.pipeline.exports import running
from snapshot_assets.pipeline.keys import asset_key, op_name, sensor_status
from snapshot_assets.pipeline.resources import SNAPSHOTS, snapshots_of
from snapshot_assets.pipeline.restored import RestoreConfig
from snapshot_assets.plan.plan import Plan

_SECONDS = 60
"""How often the sensor looks for a new seal."""


def restore_job(plan: Plan) -> Any:
    """Return the job `<plan>_restore`, which restores the newest seal into the plan's target."""
    return dg.define_asset_job(
        f"{plan.name}_restore",
        selection=dg.AssetSelection.assets(asset_key(plan, "restored")),
        description=f"Restores the newest seal of `{plan.to}` into {plan.target}: what is missing there, or changed.",
    )


def restore_sensor(plan: Plan, job: Any) -> dg.SensorDefinition:
    """Return the sensor of a plan with `restore_on`."""
    settings: dict[str, Any] = {
        "name": f"{plan.name}_restore_sensor",
        "job": job,
        "required_resource_keys": {SNAPSHOTS},
        "default_status": sensor_status(plan),
        "minimum_interval_seconds": _SECONDS,
    }
    on = plan.dagster.restore_on
    assert on is not None
    if on != "sealed":
        key = dg.AssetKey(on.split("/"))

        @dg.asset_sensor(
            asset_key=key, description=f"Restores the newest seal when `{on}` is materialized.", **settings
        )
        def when_materialized(
            context: dg.SensorEvaluationContext, asset_event: dg.EventLogEntry
        ) -> dg.RunRequest | dg.SkipReason:
            return _request(context, plan, f"{on} {asset_event.timestamp}")

        return when_materialized

    @dg.sensor(description=f"Restores each new seal of `{plan.to}`, by whichever deployment it was made.", **settings)
    def when_sealed(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        if running(context.instance, job.name):
            return dg.SkipReason(f"A run of {job.name} has not ended.")
        return _request(context, plan)

    return when_sealed


def _request(context: dg.SensorEvaluationContext, plan: Plan, event: str = "") -> dg.RunRequest | dg.SkipReason:
    """Request a run for an event, or for the newest seal; each one is requested once."""
    state = Catalog.open(snapshots_of(context).store(plan.name)).state
    if state.newest_seal is None:
        return dg.SkipReason(f"{plan.to} has no sealed snapshot.")
    run_config = dg.RunConfig(ops={op_name(plan, "restored"): RestoreConfig(replace=True)})
    return dg.RunRequest(run_key=event or f"{state.location_id} {state.newest_seal.revision}", run_config=run_config)
