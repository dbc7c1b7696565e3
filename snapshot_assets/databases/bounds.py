"""Arithmetic on the bounds of windows that stays within the years that Python knows."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from snapshot_assets.errors import PlanError
from snapshot_assets.format.relations import Table

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


def time_index_type(table: Table, known: Iterable[str], zone: str) -> str:
    """Return the type of a timed table's time index.

    Args:
        table: The table; it has a time index.
        known: Types that a time index may have.
        zone: Zone in which a time without one is read.

    Raises:
        PlanError: There is no such zone, or the column's type holds no time.
    """
    assert table.time_index is not None
    kind = table.column(table.time_index).type
    if kind not in known:
        raise PlanError(
            f"Column {table.time_index!r} of {table.table_name} is of type {kind}, which cannot be a time index."
            f" Name a column of one of: {', '.join(known)}.",
            table=str(table.table_name),
        )
    known_zone(zone)
    return kind


def known_zone(zone: str) -> ZoneInfo:
    """Return a time zone by its IANA name.

    Raises:
        PlanError: There is none.
    """
    try:
        return ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise PlanError(f"{zone!r} is not a time zone; write an IANA name such as Europe/Berlin.", zone=zone) from error
