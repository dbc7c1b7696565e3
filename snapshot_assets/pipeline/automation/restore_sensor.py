"""The job `<plan>_restore`, and the sensor that starts it: on a new seal of a location, or on an asset's event."""

# Dagster reads the annotations of sensors, so they must not be postponed here.
from datetime import timedelta
from typing import Any

import dagster as dg

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.pipeline.assets.restored import RestoreConfig
from snapshot_assets.pipeline.dagster.failures import showing_failed_ticks
from snapshot_assets.pipeline.dagster.keys import asset_key, op_name, sensor_status
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
    sealed = on == "sealed"

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
            return dg.SkipReason(f"{plan.to} has no sealed snapshot.")
        new = _seal(state) if sealed else _event(context.instance, dg.AssetKey(on.split("/")))
        if waiting := why_to_wait(context, job.name):
            return dg.SkipReason(waiting)
        if not new or (new == context.cursor and not failed_before(context.instance, job.name, _AGAIN)):
            return dg.SkipReason(f"Nothing new: {context.cursor or f'{on} was never materialised'}.")
        context.update_cursor(new)
        return dg.RunRequest(run_config=dg.RunConfig(ops={op_name(plan, "restored"): RestoreConfig(replace=True)}))

    return restore


def _seal(state: State) -> str:
    assert state.newest_seal is not None
    return f"{state.location_id} {state.newest_seal.revision}"


def _event(instance: dg.DagsterInstance, key: dg.AssetKey) -> str:
    """Return the newest materialization of an asset; "" without one."""
    records = instance.fetch_materializations(key, limit=1).records
    return f"{key.to_user_string()} {records[0].storage_id}" if records else ""
