"""Rules for retention: which sealed revisions and tags stay, and which expire or are deleted; see `rules`.

Retention by the calendar is the rule of `restic forget --keep-daily`, `--keep-weekly`, `--keep-monthly` and
`--keep-yearly`, which backup tools call grandfather-father-son: of each of the newest N days that have a moment, the
newest stays. While a rule has kept fewer than N, the oldest moment stays too, so that history grows to its full length.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta

from snapshot_assets.catalog.catalog import Actions, rule
from snapshot_assets.catalog.rules.begin import refuse_deleted, refuse_upgraded
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.state import BaseState, SealState
from snapshot_assets.errors import PlanError
from snapshot_assets.format import actions as act
from snapshot_assets.format.checkpoint import Event

_PERIODS: dict[str, Callable[[datetime], tuple[int, ...]]] = {
    "daily": lambda time: (time.year, time.month, time.day),
    "weekly": lambda time: time.isocalendar()[:2],
    "monthly": lambda time: (time.year, time.month),
    "yearly": lambda time: (time.year,),
}


@dataclass(frozen=True)
class Calendar:
    """How many days, ISO weeks, months and years, in UTC, keep their newest moment; None for no such rule."""

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
        return bool(self._rules())

    def kept(self, times: Sequence[datetime]) -> set[int]:
        """Return the places, among moments with the newest first, of those that at least one rule keeps."""
        kept: set[int] = set()
        for name, count in self._rules():
            periods = [_PERIODS[name](time.astimezone(UTC)) for time in times]
            ends = (0, len(periods) - 1)
            newest = [place for place, each in enumerate(periods) if place in ends or each != periods[place - 1]]
            kept |= {*newest[:count]}
        return kept

    def _rules(self) -> list[tuple[str, int]]:
        named = ((each.name, getattr(self, each.name)) for each in fields(self))
        return [(name, count) for name, count in named if count is not None]


NO_CALENDAR = Calendar()


@dataclass(frozen=True)
class Backup:
    """An export, a deletion of rows or a rollback, with the compactions of it.

    Attributes:
        seals: Its sealed revisions that the log still records, ascending, expired ones too.
        made_at: When the first of them was sealed, though the log may no longer record it.
    """

    seals: tuple[SealState, ...]
    made_at: datetime


def backups(state: BaseState) -> list[Backup]:
    """Return what was backed up, oldest first."""
    changes = [event for event in state.events if event.changes_data]
    revisions, exports = [event.revision for event in changes], [_exporting_revision(event) for event in changes]
    groups: list[list[SealState]] = []
    for seal in state.seals:
        last = groups[-1][-1].revision if groups else 0
        between = exports[bisect_right(revisions, last) : bisect_right(revisions, seal.revision)]
        if groups and between and max(between) <= last:  # it only compacts the seal before
            groups[-1].append(seal)
        else:  # the change is more than a compaction, or unknown
            groups.append([seal])

    # A tombstone or a rollback makes another backup of an export. Checkpoints keep these actions for ever.
    kinds = act.Tombstone | act.Rollback
    remade = [event for event in state.events if any(isinstance(each, kinds) for each in event.actions)]
    remade_at = [event.revision for event in remade]

    def made_at(seal: SealState) -> datetime:
        place = bisect_right(remade_at, seal.revision)
        return max(seal.exported_at, remade[place - 1].committed_at) if place else seal.exported_at

    return [Backup(tuple(seals), min(map(made_at, seals))) for seals in groups]


def _exporting_revision(event: Event) -> int:
    """Return the revision that exported the rows which an event compacts; if it does anything else, its own."""
    chunks = [action for action in event.actions if isinstance(action, act.Chunk)]
    others = [action for action in event.actions if not isinstance(action, act.Chunk | act.Seal)]
    if others or not chunks:
        return event.revision
    return max(chunk.exported or event.revision for chunk in chunks)


RULES = ("keep_last", "keep_for", "keep_daily", "keep_weekly", "keep_monthly", "keep_yearly")
"""The names of the rules of `Retention`, in plans and, with other dashes, among options."""


@dataclass(frozen=True)
class Retention:
    """Which sealed revisions stay readable without a pin: those that at least one rule keeps.

    Attributes:
        keep_last: Number of newest revisions to keep; None for no such rule. A compaction counts as one with the
            revisions that it compacted, and the last of them is kept. Otherwise compactions would push out exports.
        keep_for: Keeps revisions that were sealed no longer ago than this; None for no such rule.
        calendar: Keeps the newest of days, weeks, months and years, counting compactions as `keep_last` does. The time
            of what was compacted counts: a compaction on the next day would take that day's place from its own export.

    Raises:
        PlanError: There is no rule, or a rule is invalid.
    """

    keep_last: int | None = None
    keep_for: timedelta | None = None
    calendar: Calendar = NO_CALENDAR

    def __post_init__(self) -> None:
        if self.keep_last is None and self.keep_for is None and not self.calendar:
            raise PlanError(f"No rule keeps any revision; give one or more of {', '.join(RULES)}.")
        if self.keep_last is not None and self.keep_last < 1:
            raise PlanError(f"keep_last is {self.keep_last}; give 1 or more: the newest seal always stays.")
        if self.keep_for is not None and self.keep_for < timedelta(0):
            raise PlanError(f"keep_for is {self.keep_for}; give a duration such as 30d.")

    def expirable(self, state: State, now: datetime) -> list[int]:
        """Return the sealed revisions that no rule keeps and that are not expired yet, ascending.

        The newest seal always stays (FORMAT.md, section 6).
        """
        seals = [seal for seal in state.seals if seal.revision not in state.expired]
        newest_first = [
            (left[-1], backup.made_at)
            for backup in reversed(backups(state))
            if (left := [seal.revision for seal in backup.seals if seal.revision not in state.expired])
        ]
        places = self.calendar.kept([made_at for _, made_at in newest_first]) | set(range(self.keep_last or 1))
        kept = {revision for place, (revision, _) in enumerate(newest_first) if place in places}
        since = None if self.keep_for is None else now - self.keep_for
        older = [seal for seal in seals if seal.revision not in kept]
        return [seal.revision for seal in older if since is None or seal.committed_at < since]


@rule
def expire(
    state: State, retention: Retention, now: datetime, version: int, planned: Collection[int] | None = None
) -> Actions:
    """Expire the sealed revisions of the head that retention does not keep, among `planned` ones if these are given.

    Pinned revisions may be among them; these stay readable until they lose their last pin. `version` is the location's
    format version at the time of planning.
    """
    refuse_deleted(state)
    refuse_upgraded(state, version)
    expired = tuple(each for each in retention.expirable(state, now) if planned is None or each in planned)
    return [act.Expired(expired)] if expired else None


@rule
def delete_tags(
    state: State, choose: Callable[[State], Collection[str]], version: int, planned: Collection[str] | None = None
) -> Actions:
    """Delete the tags that are chosen on the head; a tag that is held or was renewed meanwhile is no longer chosen.

    The caller deletes their objects after the commit. Arguments and errors are as those of `expire`; `planned` are the
    names of tags.
    """
    refuse_deleted(state)
    refuse_upgraded(state, version)
    return [act.TagDeleted(name) for name in choose(state) if planned is None or name in planned] or None
