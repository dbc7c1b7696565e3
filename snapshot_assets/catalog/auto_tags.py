"""Tags and savepoints by rule: what is to be made and what has outlived its time, decided without touching anything.

A rule has *ticks*: one every interval at a time of day, counted in whole days from 1970, in UTC. A tick that nobody was
there for is made up for once: only the newest tick counts, and what it would make is made late.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta

from snapshot_assets.catalog.pin_set import Pins, TagState
from snapshot_assets.catalog.state import SealState, State
from snapshot_assets.errors import PlanError
from snapshot_assets.format.names import check_tag_name
from snapshot_assets.format.units import duration_text

DAY = timedelta(days=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PARTS = {"{date}": "%Y-%m-%d", "{year}": "%Y", "{month}": "%m", "{day}": "%d", "{time}": "%H%M"}


@dataclass(frozen=True)
class Ticks:
    """When a rule acts.

    Attributes:
        interval: Whole days, at least one.
        at: Time of day, UTC.

    Raises:
        PlanError: The interval is none.
    """

    interval: timedelta = DAY
    at: time = time(0, 0)

    def __post_init__(self) -> None:
        if self.interval < DAY or self.interval % DAY:
            raise PlanError(
                f"{duration_text(self.interval)} is not a number of whole days; write 1d or more, such as 1d or 7d"
            )

    def newest(self, now: datetime) -> datetime:
        """Return the newest tick that is not later than the present."""
        first = _EPOCH + timedelta(hours=self.at.hour, minutes=self.at.minute)
        return first + (now - first) // self.interval * self.interval


@dataclass(frozen=True)
class TagRule:
    """The rule of automatic tags.

    Attributes:
        ticks: When there is one.
        name: Its name, in which `{date}`, `{year}`, `{month}`, `{day}` and `{time}` stand for those of its tick.
        num_retained_max: How many automatic tags there are at most; None for no limit.
        default_time_retained: How long one lives; None for ever.

    Raises:
        PlanError: The names of two ticks would be equal, or none of a tag, or the number is none.
    """

    ticks: Ticks = Ticks()
    name: str = "auto-{date}"
    num_retained_max: int | None = None
    default_time_retained: timedelta | None = None

    def __post_init__(self) -> None:
        check_pattern(self.name)
        if self.num_retained_max is not None and self.num_retained_max < 1:
            raise PlanError(f"num_retained_max is {self.num_retained_max}; write 1 or more, or leave it out")

    def name_of(self, tick: datetime) -> str:
        """Return the name of a tick's tag."""
        name = self.name
        for part, meaning in _PARTS.items():
            name = name.replace(part, tick.strftime(meaning))
        return name


@dataclass(frozen=True)
class NewTag:
    """A tag to create: of which revision, for which tick, how long it lives."""

    name: str
    revision: int
    tick: datetime
    ttl: timedelta | None


@dataclass(frozen=True)
class NewSavepoint:
    """A savepoint to create, for which tick."""

    tick: datetime


@dataclass(frozen=True)
class Due:
    """What rules want done: first create, then delete, so that there is never less than they keep.

    Attributes:
        tag: The tag to create; None if there is none to.
        savepoint: The savepoint to create; None likewise.
        tags_gone: Names of tags to delete: those that have outlived their time to live, whoever made them, and the
            oldest automatic ones beyond the most that there may be.
    """

    tag: NewTag | None = None
    savepoint: NewSavepoint | None = None
    tags_gone: tuple[str, ...] = ()


def check_pattern(name: str) -> str:
    """Return a pattern of names if each day has its own, and each is a tag's.

    Raises:
        PlanError: It is none.
    """
    if "{date}" not in name and not all(part in name for part in ("{year}", "{month}", "{day}")):
        raise PlanError(f"{name!r} gives several days one name; write one with {{date}}, such as auto-{{date}}")
    filled = name
    for part, meaning in _PARTS.items():
        filled = filled.replace(part, _EPOCH.strftime(meaning))
    if "{" in filled or "}" in filled:
        raise PlanError(f"{name!r} has a part that is none of {', '.join(_PARTS)}")
    check_tag_name(filled)
    return name


def due(state: State, now: datetime, *, tag: TagRule | None = None, savepoint: Ticks | None = None) -> Due:
    """Return what the rules of a plan want done.

    Args:
        state: The head.
        now: The present.
        tag: The rule of tags; None for no such rule. Tags outlive their time to live without one, too.
        savepoint: When there is a savepoint; None for no such rule.
    """
    new = tag_due(tag, state, now) if tag is not None else None
    outlived = outlived_tags(state.pins.tags.values(), now)
    surplus = surplus_tags(tag, state.pins.tags.values(), new, outlived) if tag is not None else ()
    wanted = savepoint_due(savepoint, state.pins, now) if savepoint is not None and state.newest_seal else None
    return Due(new, wanted, (*outlived, *surplus))


def tag_due(rule: TagRule, state: State, now: datetime) -> NewTag | None:
    """Return the tag of the newest tick, if it has none yet.

    It pins the newest readable revision that was sealed by then. An earlier tick that was missed gets none; nor does
    one whose tag, made in time, would have outlived its time to live by now.
    """
    tick = rule.ticks.newest(now)
    name = rule.name_of(tick)
    revision = _sealed_by(state.readable(), tick)
    made = max((known.tag.created_at for known in _automatic(state.pins.tags.values())), default=_EPOCH)
    ttl = rule.default_time_retained
    dead = ttl is not None and tick + ttl <= now
    if revision is None or dead or name in state.pins.tags or made >= tick:
        return None
    return NewTag(name, revision, tick, ttl)


def savepoint_due(ticks: Ticks, pins: Pins, now: datetime) -> NewSavepoint | None:
    """Return the savepoint of the newest tick, if none was made automatically since.

    A savepoint compacts first, so it is of the head, however late it is.
    """
    tick = ticks.newest(now)
    automatic = (known.savepoint.created_at for known in pins.savepoints.values() if known.savepoint.automatic)
    return None if any(made >= tick for made in automatic) else NewSavepoint(tick)


def outlived_tags(tags: Iterable[TagState], now: datetime) -> tuple[str, ...]:
    """Return the names of tags, whoever made them, that have outlived their time to live, oldest first."""
    gone = [known for known in tags if known.tag.ttl is not None and known.tag.created_at + known.tag.ttl <= now]
    return tuple(known.tag.name for known in _oldest_first(gone))


def surplus_tags(
    rule: TagRule, tags: Iterable[TagState], new: NewTag | None, gone: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the names of the oldest automatic tags beyond the most that there may be.

    Args:
        rule: Says how many.
        tags: All tags.
        new: One more that is created first.
        gone: Those that go anyhow.
    """
    if rule.num_retained_max is None:
        return ()
    rest = [known for known in _oldest_first(_automatic(tags)) if known.tag.name not in gone]
    surplus = len(rest) + (new is not None) - rule.num_retained_max
    return tuple(known.tag.name for known in rest[: max(surplus, 0)])


def _automatic(tags: Iterable[TagState]) -> list[TagState]:
    return [known for known in tags if known.tag.automatic]


def _oldest_first(tags: Iterable[TagState]) -> list[TagState]:
    return sorted(tags, key=lambda known: (known.tag.created_at, known.committed))


def _sealed_by(seals: Iterable[SealState], moment: datetime) -> int | None:
    return max((seal.revision for seal in seals if seal.committed_at <= moment), default=None)
