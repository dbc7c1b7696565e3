"""Retention by the calendar: of the moments at which something was made, which ones stay.

This is the rule of `restic forget --keep-daily`, `--keep-weekly`, `--keep-monthly` and `--keep-yearly`, which backup
tools call grandfather-father-son: of each of the newest N days that have a moment, the newest stays. While a rule has
kept fewer than N, the oldest moment stays too, so that history grows to its full length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime

from snapshot_assets.errors import PlanError

_PERIODS: dict[str, Callable[[datetime], tuple[int, ...]]] = {
    "daily": lambda time: (time.year, time.month, time.day),
    "weekly": lambda time: time.isocalendar()[:2],
    "monthly": lambda time: (time.year, time.month),
    "yearly": lambda time: (time.year,),
}


@dataclass(frozen=True)
class Calendar:
    """How many days, ISO weeks, months and years, in UTC, keep their newest moment; None for no such rule.

    Raises:
        PlanError: A number is below 1.
    """

    daily: int | None = None
    weekly: int | None = None
    monthly: int | None = None
    yearly: int | None = None

    def __post_init__(self) -> None:
        for period, count in self._rules():
            if count < 1:
                raise PlanError(f"keep_{period} is {count}; give 1 or more, or leave it out.")

    def __bool__(self) -> bool:
        """Return whether there is a rule."""
        return any(True for _ in self._rules())

    def kept(self, times: Sequence[datetime]) -> set[int]:
        """Return the places of the moments that at least one rule keeps.

        Args:
            times: The moments, newest first.
        """
        kept: set[int] = set()
        for period, count in self._rules():
            kept |= _newest_of(times, _PERIODS[period], count)
        return kept

    def _rules(self) -> list[tuple[str, int]]:
        named = ((each.name, getattr(self, each.name)) for each in fields(self))
        return [(name, count) for name, count in named if count is not None]


NO_CALENDAR = Calendar()


def _newest_of(times: Sequence[datetime], period: Callable[[datetime], tuple[int, ...]], count: int) -> set[int]:
    kept: list[int] = []
    last = None
    for place, time in enumerate(times):
        if len(kept) == count:
            break
        if (this := period(time.astimezone(UTC))) != last or place == len(times) - 1:
            kept.append(place)
            last = this
    return set(kept)
