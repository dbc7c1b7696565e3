"""The part of a plan about retention: how long revisions stay readable, and which get tags and savepoints.

    retention:
      keep_last: 10
      keep_for: 30d
      keep_monthly: 12
      tag: {create_time: 02:00, name: "auto-{date}", num_retained_max: 7, keep_weekly: 5, default_time_retained: 90d}
      savepoint: {create_interval: 7d, num_retained_max: 4}

Without these fields, nothing expires and no tag is created.
"""

from __future__ import annotations

import re
from datetime import time, timedelta
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, field_validator

from snapshot_assets.catalog.pins.automatic import SavepointRule, TagRule, Ticks, check_pattern
from snapshot_assets.catalog.rules import Retention
from snapshot_assets.catalog.rules.retention import Calendar
from snapshot_assets.errors import PlanError
from snapshot_assets.plan.fields import Duration, PositiveDuration, parsed
from snapshot_assets.plan.problems import raising_value_errors

_TIME_OF_DAY = re.compile(r"([01]\d|2[0-3]):([0-5]\d)", re.ASCII)
_LEAST = timedelta(days=1)


def _time_of_day(value: object) -> time:
    if isinstance(value, time):
        return value
    match = _TIME_OF_DAY.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise PlanError(f"{value!r} is not a time of day; write hh:mm in UTC, such as 02:00")
    return time(int(match[1]), int(match[2]))


TimeOfDay = Annotated[
    time,
    parsed(_time_of_day),
    PlainSerializer(lambda value: value.strftime("%H:%M"), when_used="json"),
]


_KEEP = "Number of newest {} of which the newest one stays, in UTC, as `restic forget --keep-{}` counts."


class _Calendar(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    keep_daily: int | None = Field(None, ge=1, description=_KEEP.format("days", "daily"))
    keep_weekly: int | None = Field(None, ge=1, description=_KEEP.format("ISO weeks", "weekly"))
    keep_monthly: int | None = Field(None, ge=1, description=_KEEP.format("months", "monthly"))
    keep_yearly: int | None = Field(None, ge=1, description=_KEEP.format("years", "yearly"))

    @property
    def calendar(self) -> Calendar:
        """Which days, weeks, months and years keep their newest."""
        return Calendar(self.keep_daily, self.keep_weekly, self.keep_monthly, self.keep_yearly)


class _Pins(_Calendar):
    create_time: TimeOfDay = Field(time(0, 0), description="Time of day in UTC, `hh:mm`.")
    create_interval: Duration = Field(_LEAST, description="Interval, in whole days, counted from Thursday, 1970-01-01.")
    num_retained_max: int | None = Field(None, ge=1, description="How many of the newest automatic ones stay.")

    @field_validator("create_interval")
    @classmethod
    def _is_whole_days(cls, interval: timedelta) -> timedelta:
        raising_value_errors(Ticks)(interval)
        return interval

    @property
    def _ticks(self) -> Ticks:
        return Ticks(self.create_interval, self.create_time)


class TagFields(_Pins):
    """Automatic tags, one per interval."""

    name: str = Field(
        "auto-{date}",
        description="Name, with `{date}`, or `{year}`, `{month}`, `{day}`; optionally `{time}`.",
    )
    default_time_retained: PositiveDuration | None = Field(None, description="How long a tag is kept; null for ever.")

    @field_validator("name")
    @classmethod
    def _names_each_day(cls, name: str) -> str:
        raising_value_errors(check_pattern)(name)
        return name

    @property
    def rule(self) -> TagRule:
        """The rule of these fields."""
        return TagRule(self._ticks, self.name, self.num_retained_max, self.default_time_retained, self.calendar)


class SavepointFields(_Pins):
    """Automatic savepoints, one per interval."""

    @property
    def rule(self) -> SavepointRule:
        """The rule of these fields."""
        return SavepointRule(self._ticks, self.num_retained_max, self.calendar)


class RetentionFields(_Calendar):
    """The retention of a plan."""

    keep_last: int | None = Field(None, ge=1, description="Number of newest sealed revisions that stay readable.")
    keep_for: PositiveDuration | None = Field(None, description="Age up to which sealed revisions stay readable.")
    tag: TagFields | None = Field(None, description="Automatic tags.")
    savepoint: SavepointFields | None = Field(None, description="Automatic savepoints.")

    @property
    def tag_rule(self) -> TagRule | None:
        """The rule of automatic tags; None if there are none."""
        return None if self.tag is None else self.tag.rule

    @property
    def rule(self) -> Retention | None:
        """Which sealed revisions stay readable without a pin; None if all do."""
        if self.keep_last is None and self.keep_for is None and not self.calendar:
            return None
        return Retention(self.keep_last, self.keep_for, self.calendar)
