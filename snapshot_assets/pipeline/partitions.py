"""Windows as Dagster partitions: one key is one window, whichever kind of definition holds the keys.

Where a cron schedule's ticks are exactly the windows' starts, the definition is one of time windows, which the UI
shows on a time line. Everywhere else it is a list of computed keys. A key is the window's start in UTC, so it is the
same for both kinds, and the history of a plan survives a change between them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import dagster as dg

from snapshot_assets.errors import PlanError
from snapshot_assets.format.units import duration_text, parse_time, time_text
from snapshot_assets.format.windows import Window, closed_windows, plan_windows, window_holding
from snapshot_assets.plan.plan import Plan

_KEY_FORMAT = "%Y-%m-%dT%H:%M"
_MINUTE, _HOUR, _DAY, _WEEK = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1), timedelta(days=7)
_MINUTES = tuple(minutes for minutes in range(1, 60) if 60 % minutes == 0)
_HOURS = tuple(hours for hours in range(1, 24) if 24 % hours == 0)
CRON_LENGTHS = (
    *(minutes * _MINUTE for minutes in _MINUTES),
    *(hours * _HOUR for hours in _HOURS),
    _DAY,
    _WEEK,
)
"""Window lengths that a cron schedule repeats exactly, from any start on a whole minute."""

# At the Unix epoch itself croniter takes the timestamp 0 for none and drops a window; earlier starts would cross it.
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def windows_of(plan: Plan, now: datetime | None = None) -> tuple[Window, ...]:
    """Return the plan's windows in order; of a continuous plan those that have closed.

    Args:
        plan: A plan that `require_dagster` accepts.
        now: The present, for a continuous plan; the clock's by default.

    Raises:
        PlanError: The plan's range is open.
    """
    plan.require_dagster()
    if plan.start_time is None:
        return ()
    if plan.end_time is None:
        return closed_windows(plan.start_time, plan.chunk_time_window, now or datetime.now(UTC), plan.lag)
    return plan_windows(plan.start_time, plan.end_time, plan.chunk_time_window)


def partitions_of(plan: Plan, now: datetime | None = None) -> dg.PartitionsDefinition[str]:
    """Return the plan's windows as partitions.

    Time-window partitions, if cron expresses the windows exactly and none of them lies in the future, where Dagster
    would hide it; else computed static keys. Those of a continuous plan appear as they close. Its lag is honoured in
    whole windows; the rest of it, and a window hidden too late, is the catalog's to refuse.

    Args:
        plan: A plan that `require_dagster` accepts and that exports rows.
        now: The present; the clock's by default.

    Raises:
        PlanError: The range is open, or is continuous and cannot be expressed by cron; lists the lengths that work.
    """
    start, end, length = _start_of(plan), plan.end_time, plan.chunk_time_window
    cron = cron_of(start, length)
    if end is None:
        return _unbounded(plan, start, cron)
    if cron is None or (end - start) % length or end > (now or datetime.now(UTC)):
        return dg.StaticPartitionsDefinition([key_of(window) for window in windows_of(plan)])
    return dg.TimeWindowPartitionsDefinition(
        start=start.strftime(_KEY_FORMAT), end=end.strftime(_KEY_FORMAT), cron_schedule=cron, fmt=_KEY_FORMAT
    )


def cron_of(start: datetime, length: timedelta) -> str | None:
    """Return the cron schedule, in UTC, whose ticks from `start` on are exactly `length` apart; None if none is.

    Args:
        start: First tick; UTC.
        length: Distance of ticks.
    """
    if start.second or start.microsecond or start <= _EPOCH or length not in CRON_LENGTHS:
        return None
    if length < _HOUR:
        return f"{_every(length // _MINUTE, start.minute, 60)} * * * *"
    if length < _DAY:
        return f"{start.minute} {_every(length // _HOUR, start.hour, 24)} * * *"
    return f"{start.minute} {start.hour} * * {start.isoweekday() % 7 if length == _WEEK else '*'}"


def key_of(window: Window) -> str:
    """Return a window's partition key: its start in UTC, as fine as it needs to be and no finer."""
    text = time_text(window.start).removesuffix("Z")
    return text if window.start.second or window.start.microsecond else text.removesuffix(":00")


def window_of(plan: Plan, key: str) -> Window:
    """Return the window of a partition key.

    Args:
        plan: The plan the key belongs to.
        key: As `key_of` writes it.

    Raises:
        PlanError: The plan has no such window.
    """
    start = _start_of(plan)
    try:
        instant = parse_time(f"{key}:00Z" if key.count(":") == 1 else f"{key}Z")
        window = window_holding(start, plan.chunk_time_window, instant, end=plan.end_time)
    except PlanError:
        window = None  # refused below, in words that fit a key
    if window is None or key_of(window) != key:
        first = key_of(window_holding(start, plan.chunk_time_window, start))
        raise PlanError(
            f"plan {plan.name!r} has no partition {key!r}; a key is the start of a window in UTC: the first is "
            f"{first!r}, and another follows every {duration_text(plan.chunk_time_window)}"
            + (f" before {time_text(plan.end_time)}" if plan.end_time else "")
        )
    return window


def _start_of(plan: Plan) -> datetime:
    """Return where the plan's windows begin."""
    plan.require_dagster()
    if plan.start_time is None:
        raise PlanError(f"plan {plan.name!r} is schema_only: it has no windows, and so no partitions")
    return plan.start_time


def _unbounded(plan: Plan, start: datetime, cron: str | None) -> dg.PartitionsDefinition[str]:
    if cron is None:
        lengths = ", ".join(map(duration_text, CRON_LENGTHS))
        raise PlanError(
            f"plan {plan.name!r} is continuous with chunk_time_window {duration_text(plan.chunk_time_window)} from "
            f"{time_text(start)}: cron cannot express these windows, and keys without end cannot be listed. Start on "
            f"a whole minute after {time_text(_EPOCH)}, and use one of {lengths}"
        )
    return dg.TimeWindowPartitionsDefinition(
        start=start.strftime(_KEY_FORMAT),
        cron_schedule=cron,
        fmt=_KEY_FORMAT,
        end_offset=-(plan.lag // plan.chunk_time_window),
    )


def _every(step: int, first: int, of: int) -> str:
    """Return a cron field that holds every `step`th value through `first`."""
    values = range(first % step, of, step)
    return "*" if step == 1 else ",".join(map(str, values))
