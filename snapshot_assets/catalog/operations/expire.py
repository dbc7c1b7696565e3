"""Expiry: which sealed revisions need not stay readable, and which tags have outlived their time.

Expiring commits a word on revisions and deletes no data; garbage collection alone does (FORMAT.md, section 6).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog, Prepare
from snapshot_assets.catalog.log.truncation import refuse_faults, refuse_lost_end
from snapshot_assets.catalog.rules import Retention, delete_outlived_tags
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.unreferenced import EXPIRED, TAG_DELETED, ReleasedObject, released_objects
from snapshot_assets.format import actions as act


@dataclass(frozen=True)
class Expiry:
    """What an expiry gave up, or would give up.

    Attributes:
        expired: The sealed revisions that no rule keeps, ascending.
        pinned: The pins, in words, of those among them that stay readable for that reason.
        kept: How many sealed revisions can be read afterwards.
        tags: Names of the tags that had outlived their time, and are deleted first.
        released: What nothing needs then; garbage collection deletes it, but for the tags' own objects.
        revision: The revision that says what expired; None for a dry run, and where nothing was left to expire.
    """

    expired: tuple[int, ...]
    pinned: Mapping[int, tuple[str, ...]]
    kept: int
    tags: tuple[str, ...] = ()
    released: tuple[ReleasedObject, ...] = ()
    revision: int | None = None

    @property
    def bytes(self) -> int:
        """Size of what garbage collection can delete then."""
        return sum(each.bytes for each in self.released if not each.at_once)


def expire(
    catalog: Catalog,
    *,
    keep_last: int | None = None,
    keep_for: timedelta | None = None,
    dry_run: bool = False,
    only: Expiry | None = None,
) -> Expiry:
    """Delete the tags that outlived their time, then give up sealed revisions that no rule keeps.

    The newest seal and the head always stay. Without a rule no revision expires.

    Args:
        catalog: The location, opened for writing; a dry run needs no more than to read it.
        keep_last: Keep so many of the newest sealed revisions.
        keep_for: Keep those sealed no longer ago than this.
        dry_run: Only tell.
        only: Delete and expire none but what was told of here, and is still to go.

    Raises:
        PlanError: A rule is none.
        NoSnapshotError: There is no snapshot.
        LocationDeletedError: The snapshot was deleted.
        SupersededError: The location was upgraded meanwhile.
        LostLogError: The log's end was lost.
        DamageError: The log has a fault; nothing expired.
    """
    retention = None if keep_last is None and keep_for is None else Retention(keep_last, keep_for)
    catalog.refresh()
    refuse_lost_end(catalog.store)
    state, now = catalog.require_snapshot(), catalog.now()
    tags = delete_outlived_tags(now, state.format_version, None if only is None else only.tags)
    told = None if only is None else only.expired
    revisions = _nothing if retention is None else rules.expire(retention, now, state.format_version, told)
    first = _Step.of(state, tags)
    second = _Step.of(first.after, revisions)
    if first.actions or second.actions:
        refuse_faults(catalog.store, "nothing expired")
    if dry_run:
        return _found(first, second, None)
    first, _ = _commit(catalog, tags)
    for name in _deleted(first):
        catalog.store.delete(first.before.tags[name].tag.object.path)
    return _found(first, *_commit(catalog, revisions))


@dataclass(frozen=True)
class _Step:
    """Actions, and the states before and after them; these stay as they are while the head goes on."""

    before: State
    after: State
    actions: Sequence[act.Action]

    @classmethod
    def of(cls, state: State, decide: Prepare) -> _Step:
        actions = decide(state) or ()
        return cls(state.after(()), state.after(actions), actions)


def _nothing(_: State) -> None:
    """Decide that nothing expires."""


def _commit(catalog: Catalog, decide: Prepare) -> tuple[_Step, int | None]:
    """Commit what is decided on the head, and return it with its revision."""
    steps: list[_Step] = []

    def prepare(state: State) -> Sequence[act.Action] | None:
        steps.append(_Step.of(state, decide))
        return steps[-1].actions or None

    revision = catalog.commit(prepare)
    return steps[-1], revision


def _deleted(step: _Step) -> tuple[str, ...]:
    return tuple(action.name for action in step.actions if isinstance(action, act.TagDeleted))


def _found(tags: _Step, revisions: _Step, revision: int | None) -> Expiry:
    """Return what both steps give up."""
    expired = {each for action in revisions.actions if isinstance(action, act.Expired) for each in action.revisions}
    gone = _deleted(tags)
    return Expiry(
        expired=tuple(sorted(expired)),
        pinned=_pins_of(revisions.after, expired),
        kept=len(revisions.after.readable()),
        tags=gone,
        released=(
            *(released_objects(tags.before, tags.after, TAG_DELETED) if gone else ()),
            *(released_objects(revisions.before, revisions.after, EXPIRED) if expired else ()),
        ),
        revision=revision,
    )


def _pins_of(state: State, revisions: Collection[int]) -> dict[int, tuple[str, ...]]:
    """Return by revision, of those among some that have pins, these in words."""
    found = defaultdict(list)
    for known in state.pins:
        if known.pin.revision in revisions:
            found[known.pin.revision].append(str(known.pin))
    return {revision: tuple(names) for revision, names in sorted(found.items())}
