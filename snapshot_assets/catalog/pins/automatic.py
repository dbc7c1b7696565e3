"""Decides which automatic tags and savepoints are due, and which pins are deleted. Changes nothing.

A rule has *ticks*: one every interval at a time of day, counted in whole days from Thursday, 1970-01-01, in UTC. The
first pin that is created after a tick belongs to that tick, and pins the newest revision then, as Paimon's tags by
process time do. So only the newest of several missed ticks gets a pin.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import TypeVar

from snapshot_assets.catalog.rules.retention import NO_CALENDAR, Calendar
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.pins import PinState, SavepointState, TagState
from snapshot_assets.errors import PlanError
from snapshot_assets.format import actions as act
from snapshot_assets.format.layout import new_attempt, tag_path
from snapshot_assets.format.names import check_tag_name
from snapshot_assets.format.units import duration_text, time_text

DAY = timedelta(days=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_Pin = TypeVar("_Pin", TagState, SavepointState)
_PARTS = {"{date}": "%Y-%m-%d", "{year}": "%Y", "{month}": "%m", "{day}": "%d", "{time}": "%H%M"}


@dataclass(frozen=True)
class Ticks:
    """When a rule acts.

    Attributes:
        interval: Whole days, at least one.
        at: Time of day, UTC.

    Raises:
        PlanError: The interval is not a number of whole days.
    """

    interval: timedelta = DAY
    at: time = time(0, 0)

    def __post_init__(self) -> None:
        if self.interval < DAY or self.interval % DAY:
            raise PlanError(
                f"{duration_text(self.interval)} is not a number of whole days; write 1d or more, such as 1d or 7d"
            )

    def newest(self, now: datetime) -> datetime:
        """Return the newest tick up to now."""
        first = _EPOCH + timedelta(hours=self.at.hour, minutes=self.at.minute)
        return first + (now - first) // self.interval * self.interval


@dataclass(frozen=True)
class TagRule:
    """The rule of automatic tags.

    Attributes:
        name: Its name; `{date}`, `{year}`, `{month}`, `{day}` and `{time}` are replaced by those of its tick.
        num_retained_max: Number of the newest automatic tags that stay.
        default_time_retained: Time to live; None for no limit.
        calendar: Which automatic tags stay besides. All stay if it is empty and `num_retained_max` is None.
    """

    ticks: Ticks = Ticks()
    name: str = "auto-{date}"
    num_retained_max: int | None = None
    default_time_retained: timedelta | None = None
    calendar: Calendar = NO_CALENDAR

    def name_of(self, tick: datetime) -> str:
        """Return the name of a tick's tag."""
        name = self.name
        for part, meaning in _PARTS.items():
            name = name.replace(part, tick.strftime(meaning))
        return name


@dataclass(frozen=True)
class SavepointRule:
    """The rule of automatic savepoints.

    Attributes:
        num_retained_max: Number of the newest automatic savepoints that stay.
        calendar: Which automatic savepoints stay besides. All stay if it is empty and `num_retained_max` is None.
    """

    ticks: Ticks = Ticks()
    num_retained_max: int | None = None
    calendar: Calendar = NO_CALENDAR


@dataclass(frozen=True)
class NewTag:
    """A tag to create for the newest tick."""

    name: str
    revision: int
    ttl: timedelta | None


@dataclass(frozen=True)
class Due:
    """What the rules require. Create the savepoint first, then delete: there are never fewer than the rule keeps.

    Attributes:
        savepoints_gone: The savepoints to delete: the automatic ones that no rule keeps.
    """

    tag: NewTag | None = None
    savepoint: bool = False
    savepoints_gone: tuple[SavepointState, ...] = ()


def check_pattern(name: str) -> str:
    """Return a pattern of tag names if it gives a valid name, and each day another one.

    Raises:
        PlanError: It does not.
    """
    if "{date}" not in name and not all(part in name for part in ("{year}", "{month}", "{day}")):
        raise PlanError(f"{name!r} gives several days one name; write one with {{date}}, such as auto-{{date}}")
    filled = TagRule(name=name).name_of(_EPOCH)
    if "{" in filled or "}" in filled:
        raise PlanError(f"{name!r} has a part that is not one of {', '.join(_PARTS)}")
    try:
        check_tag_name(filled)
    except PlanError as error:
        raise PlanError(f"{name!r} is not a pattern of tag names: {error}") from error
    return name


def due(state: State, now: datetime, *, tag: TagRule | None = None, savepoint: SavepointRule | None = None) -> Due:
    """Return what a plan's rules require.

    The tag of the newest tick is due if no automatic tag was created since. It pins the newest sealed revision that can
    be read. Earlier ticks that were missed get no tag.
    """
    new = None
    if tag is not None and not why_no_tag(tag, state, now):
        name = tag.name_of(tag.ticks.newest(now))
        new = NewTag(name, state.readable()[-1].revision, tag.default_time_retained)
    savepoints = state.pins.savepoints.values()
    if savepoint is None:
        return Due(new)
    tick = savepoint.ticks.newest(now)
    made = any(known.pin.created_at >= tick for known in _automatic(savepoints))
    wanted = state.newest_seal is not None and not made
    return Due(new, wanted, _surplus(savepoints, savepoint, now if wanted else None))


def tags_to_delete(state: State, now: datetime, rule: TagRule | None = None) -> tuple[TagState, ...]:
    """Return the tags to delete: all whose time to live is over, then the automatic ones that the rule does not keep.

    A tag that is due counts only once it exists: create it first, so that there are never fewer than the rule keeps.
    Without a rule, only tags whose time to live is over are deleted.
    """
    outlived = sorted((known for known in state.tags.values() if known.outlived(now)), key=_age)
    rest = [known for known in state.tags.values() if not known.outlived(now)]
    return (*outlived, *(_surplus(rest, rule, None) if rule is not None else ()))


def with_new_tag(state: State, new: NewTag | None, now: datetime) -> State:
    """Return a copy of a state in which the tag that is due now is created; the state itself if none is."""
    if new is None:
        return state
    unwritten = act.ObjectRef(tag_path(new.name, new_attempt()), "", 0)
    return state.after([act.TagCreated(new.name, new.revision, unwritten, now, new.ttl, automatic=True)])


def why_no_tag(rule: TagRule, state: State, now: datetime) -> str:
    """Return why no tag is due, as text; "" if one is.

    A tag is not due if its time to live, counted from its tick, is over: an earlier run created and deleted it.
    """
    tick, ttl = rule.ticks.newest(now), rule.default_time_retained
    name, since = rule.name_of(tick), time_text(tick)
    made = max(_automatic(state.tags.values()), key=_age, default=None)
    if not state.readable():
        return "nothing is sealed"
    if name in state.tags:
        return f"there is a tag {name!r}"
    if made is not None and made.pin.created_at >= tick:
        return f"tag {made.pin.name!r} was made since {since}"
    if ttl is not None and tick + ttl <= now:
        return f"{duration_text(ttl)}, for which a tag lives, have gone by since {since}"
    return ""


def _surplus(known: Collection[_Pin], rule: TagRule | SavepointRule, new: datetime | None) -> tuple[_Pin, ...]:
    """Return the automatic pins that neither a rule nor a hold keeps, oldest first. Held tags count for rules.

    `new` is when one more is about to be created, which counts as the newest.
    """
    if rule.num_retained_max is None and not rule.calendar:
        return ()
    newest_first: list[_Pin] = sorted(_automatic(known), key=_age, reverse=True)
    ahead: list[datetime] = [] if new is None else [new]
    times = [*ahead, *(each.pin.created_at for each in newest_first)]
    kept = rule.calendar.kept(times) | set(range(rule.num_retained_max or 0))
    gone = (each for place, each in enumerate(newest_first, len(ahead)) if place not in kept)
    return tuple(each for each in gone if each.hold is None)[::-1]


def _automatic(pins: Iterable[_Pin]) -> list[_Pin]:
    return [known for known in pins if known.pin.automatic]


def _age(known: PinState) -> tuple[datetime, int]:
    return known.pin.created_at, known.committed
