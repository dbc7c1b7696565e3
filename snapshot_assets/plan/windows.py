"""The windows of a plan, as Dagster's partitions and the commands count them."""

from __future__ import annotations

from datetime import UTC, datetime

from snapshot_assets.errors import PlanError
from snapshot_assets.format.windows import Window, closed_count, plan_windows, window_at
from snapshot_assets.plan.plan import Plan


def require_range(plan: Plan) -> None:
    """Refuse a plan whose windows are unknown when Dagster loads its definitions.

    Raises:
        PlanError: `start_time` is missing, or `end_time` of a plan that is not continuous.
    """
    if plan.schema_only or not plan.windowed:
        return
    missing = [name for name in ("start_time", "end_time") if getattr(plan, name) is None]
    if plan.range_kind == "continuous":
        missing.remove("end_time")
    if missing:
        known = "" if plan.source_asset else ". Only the command line resolves an open range"
        raise PlanError(
            f"plan {plan.name!r} has no {' and no '.join(missing)}, which its Dagster partitions need; give the range, "
            f"or kind: continuous with a start_time{known}"
        )


def windows_of(plan: Plan, now: datetime | None = None) -> tuple[Window, ...]:
    """Return the plan's windows in order; for a continuous plan, the closed ones.

    Args:
        plan: A plan that `require_range` accepts.
        now: The current time, for a continuous plan; by default the clock's.

    Raises:
        PlanError: The plan omits an end of its range.
    """
    require_range(plan)
    if plan.start_time is None:
        return ()
    if plan.end_time is None:
        closed = closed_count(plan.start_time, plan.chunk_time_window, now or datetime.now(UTC), plan.lag)
        return tuple(window_at(plan.start_time, plan.chunk_time_window, index) for index in range(1, closed + 1))
    return plan_windows(plan.start_time, plan.end_time, plan.chunk_time_window)
