"""What may be committed on a newer head: the expiry of sealed revisions, the end of tags that outlived their time.

See `rules`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from snapshot_assets.catalog.catalog import Prepare
from snapshot_assets.catalog.rules.preconditions import refuse_deleted, refuse_upgraded
from snapshot_assets.catalog.state.fold import SealState, State
from snapshot_assets.errors import PlanError
from snapshot_assets.format import actions as act
from snapshot_assets.format.checkpoint import Event


@dataclass(frozen=True)
class Retention:
    """Which sealed revisions stay readable without a pin; what either rule keeps is kept.

    Attributes:
        keep_last: So many of the newest; None for no such rule. What a compaction wrote anew counts as one with what it
            was made of, and the last of these is kept: else one compaction would push out all that was ever exported.
        keep_for: Those that were sealed no longer ago than this; None for no such rule.

    Raises:
        PlanError: There is no rule, or one that is none.
    """

    keep_last: int | None = None
    keep_for: timedelta | None = None

    def __post_init__(self) -> None:
        if self.keep_last is None and self.keep_for is None:
            raise PlanError("Nothing says which revisions are to be kept; give keep_last, keep_for, or both.")
        if self.keep_last is not None and self.keep_last < 1:
            raise PlanError(f"keep_last is {self.keep_last}; give 1 or more: the newest seal always stays.")
        if self.keep_for is not None and self.keep_for < timedelta(0):
            raise PlanError(f"keep_for is {self.keep_for}; give a duration such as 30d.")

    def expirable(self, state: State, now: datetime) -> list[int]:
        """Return the sealed revisions that no rule keeps and that are not expired yet, ascending.

        The newest seal always stays (FORMAT.md, section 6).
        """
        seals = [seal for seal in state.seals if seal.revision not in state.expired]
        kept = _newest_rows(seals, state.events, self.keep_last or 1)
        since = None if self.keep_for is None else now - self.keep_for
        older = [seal for seal in seals if seal.revision not in kept]
        return [seal.revision for seal in older if since is None or seal.committed_at < since]


def _newest_rows(seals: Sequence[SealState], events: Sequence[Event], count: int) -> set[int]:
    """Return the newest revisions that differ by more than a compaction of what the one before had."""
    changes = [(event.revision, _exported(event)) for event in events if event.changes_data]
    revisions, exports = [revision for revision, _ in changes], [exported for _, exported in changes]
    ends = []
    for this, after in pairwise(seal.revision for seal in seals):
        between = exports[bisect_right(revisions, this) : bisect_right(revisions, after)]
        if not between or max(between) > this:  # what changed is not known, or was more than that
            ends.append(this)
    return set([*ends, *(seal.revision for seal in seals[-1:])][-count:])


def _exported(event: Event) -> int:
    """Return when the rows were exported that an event only compacts; if it does anything else, itself."""
    chunks = [action for action in event.actions if isinstance(action, act.Chunk)]
    others = [action for action in event.actions if not isinstance(action, act.Chunk | act.Seal)]
    if others or not chunks:
        return event.revision
    return max(chunk.exported or event.revision for chunk in chunks)


def expire(retention: Retention, now: datetime, version: int, told: Collection[int] | None = None) -> Prepare:
    """Declare that sealed revisions need not stay readable; which ones is decided on the head that it is committed on.

    Pinned ones may be among them: they stay readable until the last of their pins goes. Prepares None where none is
    left to expire.

    Args:
        retention: Which revisions stay.
        now: The present.
        version: The location's format version when it was planned.
        told: Expire none but these.

    Raises (on commit):
        LocationDeletedError: The snapshot was deleted.
        SupersededError: The location was upgraded meanwhile.
    """

    def prepare(state: State) -> Sequence[act.Action] | None:
        refuse_deleted(state)
        refuse_upgraded(state, version)
        expired = tuple(each for each in retention.expirable(state, now) if told is None or each in told)
        return [act.Expired(expired)] if expired else None

    return prepare


def is_outlived(tag: act.TagCreated, now: datetime) -> bool:
    """Tell whether a tag's time to live is over; it goes on pinning its revision until it is deleted."""
    return tag.ttl is not None and tag.created_at + tag.ttl <= now


def delete_outlived_tags(now: datetime, version: int, told: Collection[str] | None = None) -> Prepare:
    """Delete the tags, whoever made them, that have outlived their time on the head that it is committed on.

    One that was renewed meanwhile stays. Prepares None where there is none. Their objects go afterwards.

    Args:
        now: The present.
        version: The location's format version when it was planned.
        told: Delete none but these.

    Raises (on commit):
        LocationDeletedError: The snapshot was deleted.
        SupersededError: The location was upgraded meanwhile.
    """

    def prepare(state: State) -> Sequence[act.Action] | None:
        refuse_deleted(state)
        refuse_upgraded(state, version)
        gone = [known.tag.name for known in state.tags.values() if is_outlived(known.tag, now)]
        return [act.TagDeleted(name) for name in gone if told is None or name in told] or None

    return prepare
