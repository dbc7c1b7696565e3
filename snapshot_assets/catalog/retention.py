"""Expiry: which sealed revisions need not stay readable, and what nothing needs any more then.

Expiring commits a word on revisions and deletes nothing; garbage collection alone deletes (STORAGE, section 7).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.pin_set import PinState
from snapshot_assets.catalog.rules_retention import Retention
from snapshot_assets.catalog.state import State
from snapshot_assets.format import actions as act


@dataclass(frozen=True)
class Expiry:
    """What an expiry gave up, or would give up.

    Attributes:
        expired: The sealed revisions that no rule keeps, ascending.
        pinned: The pins, in words, of those among them that stay readable for that reason.
        kept: How many sealed revisions can be read afterwards.
        unneeded: Bytes by path of the data files that nothing needs then; garbage collection deletes them.
        revision: The revision that says so; None for a dry run, and where nothing was left to expire.
    """

    expired: tuple[int, ...]
    pinned: Mapping[int, tuple[str, ...]]
    kept: int
    unneeded: Mapping[str, int] = field(default_factory=dict)
    revision: int | None = None

    @property
    def bytes(self) -> int:
        """Size of the files that nothing needs then."""
        return sum(self.unneeded.values())


def expire(
    catalog: Catalog,
    *,
    keep_last: int | None = None,
    keep_for: timedelta | None = None,
    dry_run: bool = False,
    only: Expiry | None = None,
) -> Expiry:
    """Give up sealed revisions that no rule keeps; the newest seal and the head always stay.

    Args:
        catalog: The location, opened for writing; a dry run needs no more than to read it.
        keep_last: Keep so many of the newest sealed revisions.
        keep_for: Keep those sealed no longer ago than this.
        dry_run: Only tell.
        only: Expire none but what was told of here, and is still to expire.

    Raises:
        PlanError: Neither rule is given, or one is none.
        NoSnapshotError: There is no snapshot.
        LocationDeletedError: The snapshot was deleted.
        SupersededError: The location was upgraded meanwhile.
    """
    retention = Retention(keep_last, keep_for)
    catalog.refresh()
    state = catalog.begun()
    decide = rules.expire(retention, catalog.now(), state.format_version, None if only is None else only.expired)
    found, before, after = _decided(state, decide(state))
    revision = None
    if not dry_run:

        def prepare(state: State) -> Sequence[act.Action] | None:
            nonlocal found, before, after
            actions = decide(state)
            found, before, after = _decided(state, actions)
            return actions

        revision = catalog.commit(prepare)
    # Expiring changes no file, so those of now are those of then.
    return replace(found, unneeded=catalog.state.files.freed(before, after), revision=revision)


def retained_without(state: State, *, expired: Iterable[int] = (), pins: Collection[PinState] = ()) -> list[int]:
    """Return the revisions whose files must stay once some are expired and some pins are gone, ascending.

    What nothing needs then is `state.files.freed(state.retained(), retained_without(…))`.

    Args:
        state: The head.
        expired: The revisions, beside those that are expired already.
        pins: The pins.
    """
    pinned = {known.pin.revision for known in state.pins if known not in pins}
    gone = state.expired.union(expired) - pinned
    return sorted({*(seal.revision for seal in state.seals if seal.revision not in gone), state.revision})


def _decided(state: State, actions: Sequence[act.Action] | None) -> tuple[Expiry, list[int], list[int]]:
    """Return what is given up, and the retained revisions before and after it."""
    expired = {each for action in actions or () if isinstance(action, act.Expired) for each in action.revisions}
    pinned = defaultdict(list)
    for known in state.pins:
        if known.pin.revision in expired:
            pinned[known.pin.revision].append(str(known.pin))
    pins = {revision: tuple(names) for revision, names in sorted(pinned.items())}
    kept = len(state.readable()) - len(expired) + len(pins)
    found = Expiry(tuple(sorted(expired)), pins, kept)
    return found, state.retained(), retained_without(state, expired=expired)
