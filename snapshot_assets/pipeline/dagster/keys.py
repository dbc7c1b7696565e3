"""Keys of a plan's assets, and the settings that all of them share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dagster as dg

from snapshot_assets.pipeline.dagster.materializations import CODE_VERSION
from snapshot_assets.plan.plan import Plan

AssetDecorator = Callable[[Callable[..., Any]], dg.AssetsDefinition]


def asset_key(plan: Plan, name: str) -> dg.AssetKey:
    """Return the key of a plan's asset: the plan's prefix, its name, and the asset's name.

    `chunks` is the asset that is the plan's source, if one is.
    """
    if name == "chunks" and plan.source_asset:
        return dg.AssetKey(plan.source_asset)
    return dg.AssetKey([*plan.dagster.key_prefix, plan.name, name])


def asset_keys(name: str, plan: Plan | None) -> Callable[[str], dg.AssetKey]:
    """Return a function that returns the keys of a plan's assets, or of those of a location that no plan names.

    Args:
        name: Name of the plan or location.
        plan: The plan.
    """
    return lambda asset: dg.AssetKey([name, asset]) if plan is None else asset_key(plan, asset)


def exported_assets(plan: Plan) -> list[dg.AssetKey]:
    """Return the keys of the assets that an export makes, from the schema to the seal and its replica."""
    names = ["manifest"] if plan.source_asset else ["schema", *chunk_assets(plan), "manifest"]
    names += ["replica"] * (plan.replicate_to is not None)
    return [asset_key(plan, name) for name in names]


def chunk_assets(plan: Plan) -> list[str]:
    """Return the names of the assets whose files are chunks: windows, and chunk 0 if a database is the source."""
    if plan.schema_only:
        return []
    return ["chunks"] if plan.source_asset else ["chunks", "untimed_tables"]


def op_name(plan: Plan, name: str) -> str:
    """Return the name of an asset's op, under which run config configures it."""
    return "__".join(asset_key(plan, name).path)


def plan_asset(plan: Plan, name: str, **settings: Any) -> AssetDecorator:
    """Return Dagster's decorator `asset` with the key, group, owners, tags and pool that the plan gives."""
    decorator: AssetDecorator = dg.asset(
        key=asset_key(plan, name),
        code_version=CODE_VERSION,
        pool=plan.dagster.pool,
        **shared_settings(plan),
        **settings,
    )
    return decorator


def shared_settings(plan: Plan) -> dict[str, Any]:
    """Return the group, owners and tags of all assets of a plan."""
    return {
        "group_name": plan.dagster.group or plan.name,
        "owners": plan.dagster.owners,
        "tags": plan.dagster.tags,
    }


def schedule_status(plan: Plan) -> dg.DefaultScheduleStatus:
    """Return whether a plan's schedules run without being turned on."""
    return dg.DefaultScheduleStatus(plan.dagster.default_status.upper())


def sensor_status(plan: Plan) -> dg.DefaultSensorStatus:
    """Return whether a plan's sensors run without being turned on."""
    return dg.DefaultSensorStatus(plan.dagster.default_status.upper())
