"""Arithmetic on the bounds of windows that stays within the years that Python knows."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from snapshot_assets.errors import PlanError

WIDEST_OFFSET = timedelta(hours=48)
"""More than any zone is from UTC, plus a day."""

AFTER_ALL = "10000-01-01"
"""The first day after Python's last."""


def moved(moment: datetime, by: timedelta) -> datetime:
    """Return a moment moved, or the end of Python's years in that direction."""
    try:
        return moment + by
    except OverflowError:
        return (datetime.min if by < timedelta() else datetime.max).replace(tzinfo=UTC)


def first_date(bound: datetime, zone: ZoneInfo) -> str:
    """Return the first date whose midnight in `zone` is not before `bound`: a date is its midnight."""
    try:
        candidate = moved(bound, -WIDEST_OFFSET).date()
        while datetime.combine(candidate, time(), zone).astimezone(UTC) < bound:
            candidate += timedelta(days=1)
    except OverflowError:
        return AFTER_ALL
    return candidate.isoformat()


def known_zone(zone: str) -> ZoneInfo:
    """Return a time zone by its IANA name.

    Raises:
        PlanError: There is none.
    """
    try:
        return ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise PlanError(f"{zone!r} is not a time zone; write an IANA name such as Europe/Berlin.", zone=zone) from error
