"""Keys of a plan's assets, and its windows as Dagster partitions: one partition key is one window.

Windows without an end, and those of long finished ranges, are Dagster's time windows, where a cron schedule's ticks are
exactly their starts. Others are a list of keys. A key is the window's start in UTC in both cases, so the history of a
plan survives a change between them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg

from snapshot_assets.errors import PlanError
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.units import duration_text, parse_time, time_text
from snapshot_assets.format.windows import Window, partition_key, window_at, window_holding
from snapshot_assets.plan.plan import Plan
from snapshot_assets.plan.windows import require_range, windows_of

AssetDecorator = Callable[[Callable[..., Any]], dg.AssetsDefinition]

CODE_VERSION = "1"
"""Raise it when an asset writes something else, so that Dagster marks its partitions as made by older code."""


def asset_key(plan: Plan, name: str) -> dg.AssetKey:
    """Return the key of a plan's asset: the plan's prefix, its name, and the asset's name.

    `chunks` is the asset that is the plan's source, if one is.
    """
    if name == "chunks" and plan.source_asset:
        return dg.AssetKey(plan.source_asset)
    return dg.AssetKey([*plan.dagster.key_prefix, plan.name, name])


def asset_keys(name: str, plan: Plan | None) -> Callable[[str], dg.AssetKey]:
    """Return a function that returns the keys of a plan's assets, or of those of a location that no plan names."""
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


_KEY_FORMAT = "%Y-%m-%dT%H:%M"
_MINUTE, _HOUR, _DAY, _WEEK = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1), timedelta(days=7)
_MINUTES = tuple(minutes for minutes in range(1, 60) if 60 % minutes == 0)
_HOURS = tuple(hours for hours in range(1, 24) if 24 % hours == 0)
CRON_LENGTHS = (*(n * _MINUTE for n in _MINUTES), *(n * _HOUR for n in _HOURS), _DAY, _WEEK)
"""Window lengths that a cron schedule repeats exactly, from any start on a whole minute."""

HOURLY = "0 * * * *"

_MOST_LISTED = 1000
"""Windows of a finished range that are a list of keys: a code location sends each list to the UI."""

# croniter treats the timestamp 0 as missing and drops a window at the Unix epoch, also for earlier starts.
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def partitions_of(plan: Plan, now: datetime | None = None) -> dg.PartitionsDefinition[str]:
    """Return the plan's windows as partitions.

    A range is a list of keys: Dagster would hide time windows in the future, and after an end in the past its plots
    show empty time. Only a finished range of more than 1,000 windows that cron expresses exactly is time windows, as a
    continuous plan is. Windows of a continuous plan appear as they close. Dagster delays them by whole windows of the
    plan's lag; the catalog refuses windows that appear too early.

    Args:
        plan: A plan that `require_range` accepts and that exports rows.
        now: The current time; by default the clock's.

    Raises:
        PlanError: An end is missing, or cron cannot express a continuous plan; lists the lengths that work.
    """
    start, end, length = _start_of(plan), plan.end_time, plan.chunk_time_window
    cron = cron_of(start, length)
    if end is not None:
        finished = end <= (now or datetime.now(UTC))
        exact = cron is not None and not (end - start) % length
        if not (finished and exact and (end - start) // length > _MOST_LISTED):
            return dg.StaticPartitionsDefinition([key_of(window) for window in windows_of(plan)])
    if cron is None:
        lengths = ", ".join(map(duration_text, CRON_LENGTHS))
        raise PlanError(
            f"plan {plan.name!r} is continuous with chunk_time_window {duration_text(length)} from "
            f"{time_text(start)}: cron cannot express these windows, and keys without end cannot be listed. Start on "
            f"a whole minute after {time_text(_EPOCH)}, and use one of {lengths}"
        )
    return dg.TimeWindowPartitionsDefinition(
        start=start.strftime(_KEY_FORMAT),
        end=end.strftime(_KEY_FORMAT) if end else None,
        cron_schedule=cron,
        fmt=_KEY_FORMAT,
        end_offset=0 if end else -(plan.lag // length),
    )


def cron_of(start: datetime, length: timedelta) -> str | None:
    """Return the cron schedule in UTC with ticks exactly `length` apart from `start` on; None if there is none."""
    if start.second or start.microsecond or start <= _EPOCH or length not in CRON_LENGTHS:
        return None
    if length < _HOUR:
        return f"{_every(length // _MINUTE, start.minute, 60)} * * * *"
    if length < _DAY:
        return f"{start.minute} {_every(length // _HOUR, start.hour, 24)} * * *"
    return f"{start.minute} {start.hour} * * {start.isoweekday() % 7 if length == _WEEK else '*'}"


def closing_cron(plan: Plan) -> str:
    """Return when a plan's windows have closed and its lag is over, in UTC; hourly for a plan with an end."""
    if plan.range_kind != "continuous" or plan.start_time is None:
        return HOURLY
    closes = plan.start_time + plan.lag
    if closes.second or closes.microsecond:
        closes = closes.replace(second=0, microsecond=0) + _MINUTE
    return cron_of(closes, plan.chunk_time_window) or HOURLY


key_of = partition_key


def chunks_of_run(context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext, plan: Plan) -> list[int] | None:
    """Return the chunks of a run's partitions, in order; None for a run without partitions."""
    if not (context.has_partition_key or context.has_partition_key_range):
        return None
    return sorted(window_of(plan, key).id for key in context.partition_keys)


def key_of_chunk(plan: Plan, chunk: int) -> str | None:
    """Return the partition key of a chunk's window; None for chunk 0, which has none."""
    return key_of(window_at(_start_of(plan), plan.chunk_time_window, chunk)) if chunk != UNTIMED_CHUNK else None


def window_of(plan: Plan, key: str) -> Window:
    """Return the window of a partition key.

    Args:
        plan: The plan of the key.
        key: A key in the form of `key_of`.

    Raises:
        PlanError: The plan has no such window.
    """
    start = _start_of(plan)
    try:
        instant = parse_time(f"{key}:00Z" if key.count(":") == 1 else f"{key}Z")
        window = window_holding(start, plan.chunk_time_window, instant, end=plan.end_time)
    except PlanError:
        window = None  # refused below, with a message about keys
    if window is None or key_of(window) != key:
        first = key_of(window_at(start, plan.chunk_time_window, 1))
        raise PlanError(
            f"plan {plan.name!r} has no partition {key!r}; a key is the start of a window in UTC: the first is "
            f"{first!r}, and another follows every {duration_text(plan.chunk_time_window)}"
            + (f" before {time_text(plan.end_time)}" if plan.end_time else "")
        )
    return window


def _start_of(plan: Plan) -> datetime:
    """Return the start of the plan's first window."""
    require_range(plan)
    if plan.start_time is None:
        raise PlanError(f"plan {plan.name!r} is schema_only: it has no windows, and so no partitions")
    return plan.start_time


def _every(step: int, first: int, of: int) -> str:
    """Return a cron field with every `step`th value through `first`."""
    values = range(first % step, of, step)
    return "*" if step == 1 else ",".join(map(str, values))
