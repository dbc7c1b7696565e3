"""Expiry: declares that sealed revisions need not stay readable, and deletes the tags that no rule keeps.

Expiring only records which revisions expired. Garbage collection deletes their data (FORMAT.md, section 6).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog, Prepare
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.log.truncation import refuse_faults, refuse_lost_end
from snapshot_assets.catalog.pins.automatic import TagRule, tags_to_delete
from snapshot_assets.catalog.rules import Retention, delete_tags
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.retained import EXPIRED, TAG_DELETED, ReleasedObject, released_objects
from snapshot_assets.format import actions as act
from snapshot_assets.storage.base import delete_unless_retained


@dataclass(frozen=True)
class ExpiryPlan:
    """What an expiry ends.

    Attributes:
        expired: The sealed revisions that no rule keeps, ascending.
        pinned: For each of them that a tag or savepoint keeps readable, these pins.
        kept: How many sealed revisions can be read afterwards.
        tags: Names of the tags that are deleted, before revisions expire.
        surplus: Those of them whose time to live is not over: automatic ones that no rule keeps.
        released: What nothing needs then. Garbage collection deletes it, except for the tags' own objects.
        revision: The revision that records what expired; None until then, and if nothing expires.
        decide: The rules that are committed: one on tags, one on revisions.
    """

    expired: tuple[int, ...]
    pinned: Mapping[int, tuple[str, ...]]
    kept: int
    tags: tuple[str, ...] = ()
    surplus: tuple[str, ...] = ()
    released: tuple[ReleasedObject, ...] = ()
    revision: int | None = None
    decide: tuple[Prepare, Prepare] | None = field(default=None, repr=False, compare=False)

    @property
    def bytes(self) -> int:
        """Size of what garbage collection can delete then."""
        return sum(each.bytes for each in self.released if not each.at_once)


def plan_expiry(
    catalog: Catalog, retention: Retention | None, *, tags: TagRule | None = None, state: State | None = None
) -> ExpiryPlan:
    """Return which tags outlived their time, and which tags and sealed revisions no rule keeps; changes nothing.

    The newest seal and the head always stay, and so do tags under legal hold. Without `retention` all sealed revisions
    stay, and without `tags` all automatic tags whose time to live is not over. `state` is what the head will be when
    the plan is executed; None for the head as it is.

    Raises:
        LostLogError: The log's end was lost.
        DamageError: The log has a fault.
    """
    catalog.refresh()
    refuse_lost_end(catalog.store)
    state = state or catalog.require_snapshot()
    now, version = catalog.now(), state.format_version

    def decide(names: Collection[str] | None = None, numbers: Collection[int] | None = None) -> tuple[Prepare, Prepare]:
        expire = (lambda _: None) if retention is None else rules.expire(retention, now, version, numbers)
        return delete_tags(
            lambda head: [known.pin.name for known in tags_to_delete(head, now, tags)], version, names
        ), expire

    to_delete, to_expire = decide()
    deleted = _Step.of(state, to_delete)
    revisions = _Step.of(deleted.after, to_expire)
    if deleted.actions or revisions.actions:
        refuse_faults(scan_log(catalog.store), "nothing expired")
    plan = _plan(deleted, revisions, now, None)
    return replace(plan, decide=decide(plan.tags, plan.expired))


def execute_expiry(catalog: Catalog, plan: ExpiryPlan) -> ExpiryPlan:
    """Delete the tags of a plan, then expire its revisions; nothing but what was planned and is still due.

    Raises:
        SupersededError: The location was upgraded since it was planned.
        LostLogError: The log's end was lost.
        DamageError: The log has a fault; nothing expired.
    """
    assert plan.decide is not None
    delete, expire = plan.decide
    catalog.refresh()
    refuse_lost_end(catalog.store)
    if plan.tags or plan.expired:
        refuse_faults(scan_log(catalog.store), "nothing expired")
    tags, _ = _commit(catalog, delete)
    for action in tags.actions:
        if isinstance(action, act.TagDeleted):
            delete_unless_retained(catalog.store, tags.before.tags[action.name].pin.object.path)
    revisions, revision = _commit(catalog, expire)
    return _plan(tags, revisions, catalog.now(), revision)


@dataclass(frozen=True)
class _Step:
    """Actions, and copies of the states before and after them."""

    before: State
    after: State
    actions: Sequence[act.Action]

    @classmethod
    def of(cls, state: State, decide: Prepare) -> _Step:
        actions = decide(state) or ()
        return cls(state.after(()), state.after(actions), actions)


def _commit(catalog: Catalog, decide: Prepare) -> tuple[_Step, int | None]:
    """Commit what is decided on the head, and return it with its revision."""
    steps: list[_Step] = []

    def prepare(state: State) -> Sequence[act.Action] | None:
        steps.append(_Step.of(state, decide))
        return steps[-1].actions or None

    revision = catalog.commit(prepare)
    return steps[-1], revision


def _plan(tags: _Step, revisions: _Step, now: datetime, revision: int | None) -> ExpiryPlan:
    """Return what both steps end, as of now."""
    expired = {each for action in revisions.actions if isinstance(action, act.Expired) for each in action.revisions}
    pinned = defaultdict(list)
    for known in revisions.after.pins:
        if known.pin.revision in expired:
            pinned[known.pin.revision].append(str(known.pin))
    deleted = tuple(action.name for action in tags.actions if isinstance(action, act.TagDeleted))
    return ExpiryPlan(
        expired=tuple(sorted(expired)),
        pinned={each: tuple(pins) for each, pins in sorted(pinned.items())},
        kept=len(revisions.after.readable()),
        tags=deleted,
        surplus=tuple(name for name in deleted if not tags.before.tags[name].outlived(now)),
        released=(
            *(released_objects(tags.before, tags.after, TAG_DELETED) if deleted else ()),
            *(released_objects(revisions.before, revisions.after, EXPIRED) if expired else ()),
        ),
        revision=revision,
    )
