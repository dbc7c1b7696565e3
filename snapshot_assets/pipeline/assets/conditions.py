"""Declarative automation and freshness of a plan's assets, where the plan asks for them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import dagster as dg

from snapshot_assets.pipeline.dagster.partitions import (
    HOURLY,
    asset_key,
    chunk_assets,
    closing_cron,
    exported_assets,
    sensor_status,
)
from snapshot_assets.plan.plan import Plan

EQUAL, IN_TIME = "equals_source", "compared_in_time"


def equality_check(plan: Plan, asset: str) -> dg.AssetCheckKey:
    """Return the key of the check `equals_source` of one of a plan's `chunk_assets`."""
    return dg.AssetCheckKey(asset_key(plan, asset), EQUAL)


def when_missing(plan: Plan) -> dict[str, Any]:
    """Return the settings of an asset that Dagster materializes where it is missing; what failed, again each hour."""
    condition = dg.AutomationCondition
    return _automatic(plan, condition.missing() & (~condition.execution_failed() | _again()), "missing")


def when_closed(plan: Plan) -> dict[str, Any]:
    """Return the settings of the asset of windows: like `when_missing`, once a window's `lag` is over.

    Dagster's partitions wait for whole windows of the lag. The rest of it is over when the export schedule's cron
    ticks, after the partition has appeared.
    """
    condition = dg.AutomationCondition
    if not plan.lag % plan.chunk_time_window:
        return when_missing(plan)
    over = condition.cron_tick_passed(closing_cron(plan)).since(condition.newly_missing())
    due = (~condition.execution_failed() & over) | (condition.execution_failed() & _again())
    return _automatic(plan, condition.missing() & due, "missing")


def when_windows_are(plan: Plan) -> dict[str, Any]:
    """Return the settings of the asset of chunk 0: like `when_missing`, and again with new windows.

    Its rows are of no window, so a seal of new windows needs them as they are then.
    """
    condition = dg.AutomationCondition
    if plan.kind != "continuous":
        return when_missing(plan)
    exported: Any = condition.asset_matches(asset_key(plan, "chunks"), condition.newly_requested())
    due = condition.missing() | exported.since_last_handled() | condition.execution_failed()
    return _automatic(plan, due & (~condition.execution_failed() | _again()), "missing, or older than windows")


def when_updated(plan: Plan) -> dict[str, Any]:
    """Return the settings of an asset that Dagster materializes once all upstream partitions are there and newer.

    It waits while the newest result of any check of an upstream partition is that it failed:
    `all_deps_blocking_checks_passed` would be content with one partition whose checks passed. Comparisons
    with the source do not count: a seal is of the rows as they were exported. What failed is requested again each hour.
    """
    condition = dg.AutomationCondition
    comparing = [dg.AssetCheckKey(asset_key(plan, "manifest"), IN_TIME)]
    comparing += [equality_check(plan, asset) for asset in chunk_assets(plan)]
    failed = condition.any_checks_match(condition.check_failed()).ignore(dg.AssetSelection.checks(*comparing))
    damaged = condition.any_deps_match(failed)
    updated: Any = condition.newly_missing() | condition.any_deps_updated()
    due = updated.since_last_handled() | (condition.execution_failed() & _again())
    ready = ~condition.any_deps_missing() & ~condition.any_deps_in_progress() & ~damaged
    return _automatic(plan, due & ready, "complete and whole")


def _again() -> dg.AutomationCondition[Any]:
    """Return the condition that an hour has begun since an asset was last requested or materialized."""
    hour: Any = dg.AutomationCondition.cron_tick_passed(HOURLY)
    again: dg.AutomationCondition[Any] = hour.since_last_handled()
    return again


def _automatic(plan: Plan, condition: dg.AutomationCondition[Any], label: str) -> dict[str, Any]:
    wanted = condition & ~dg.AutomationCondition.in_progress()
    return {"automation_condition": wanted.with_label(label)} if plan.dagster.automation else {}


def automation_sensor(plan: Plan) -> dg.AutomationConditionSensorDefinition:
    """Return the sensor that evaluates the conditions of a plan's assets, for a plan with `automation`.

    Without it they would belong to Dagster's own sensor, which always ships stopped.
    """
    if plan.schema_only:
        does = f"Exports the schema of {plan.name} if it is missing, and seals it."
    elif plan.source_asset:
        does = (
            f"Seals the snapshot of {plan.name} once all partitions of {'/'.join(plan.source_asset)} are there, unless"
            " a check of these failed when it last ran."
        )
    else:
        does = (
            f"Exports windows of {plan.name} that are missing. Seals the snapshot once all are there, unless a check of"
            " chunks or untimed_tables failed when it last ran; comparisons with the source do not count."
        )
    copies = " Replicates each seal, unless a check of manifest failed when it last ran." if plan.replicate_to else ""
    return dg.AutomationConditionSensorDefinition(
        f"{plan.name}_automation_sensor",
        target=dg.AssetSelection.assets(*exported_assets(plan)),
        default_status=sensor_status(plan),
        description=f"{does}{copies} What failed runs again each hour.",
    )


def is_automated(instance: dg.DagsterInstance, plan: Plan) -> bool:
    """Return whether the automation sensor of a plan is on: what is due is its to request, and no schedule's."""
    if not plan.dagster.automation:
        return False
    sensor = f"{plan.name}_automation_sensor"
    states = [each for each in instance.all_instigator_state() if each.name == sensor]
    return any(each.is_running for each in states) if states else plan.dagster.default_status == "running"


def fresh(plan: Plan, interval: timedelta = timedelta()) -> dict[str, Any]:
    """Return the freshness policy of what a plan's seals make, if the plan has one.

    Args:
        plan: The plan.
        interval: How far apart it is made if all goes well, where that is not with each seal.
    """
    limit = plan.dagster.fresh_for
    return {"freshness_policy": dg.FreshnessPolicy.time_window(fail_window=limit + interval)} if limit else {}
