"""What deciding costs, counted in calls: it grows with revisions and with tags, and not with their product."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import FrameType
from typing import Any

import pytest

from snapshot_assets.catalog.operations.expire import plan_expiry
from snapshot_assets.catalog.pins.automatic import TagRule, tags_to_delete
from snapshot_assets.catalog.rules import Retention
from snapshot_assets.catalog.state.fold import SealState, State
from snapshot_assets.catalog.state.pins import TagState
from snapshot_assets.format import actions as act
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.catalog.conftest import HEADER

START = datetime(2025, 1, 1, tzinfo=UTC)
NOW = START + timedelta(days=365)


class Revision(int):
    """A number that is compared and looked up by calls of Python, so that each counts."""

    def __eq__(self, other: object) -> bool:
        return int(self) == other

    def __hash__(self) -> int:
        return hash(int(self))

    def __lt__(self, other: int) -> bool:
        return int(self) < int(other)


class Head:
    """A catalog whose head is known and stays: automatic tags on some revisions, spread evenly.

    Args:
        ttl: The time to live of every other tag.
    """

    store = open_store(parse_location("file:///nowhere/at-all"))  # empty: nothing there is of a later revision

    def __init__(self, revisions: int, tags: int, ttl: timedelta | None = None) -> None:
        seals = [Revision(1 + number) for number in range(revisions)]
        self.state = State(snapshot_id="s", header=HEADER, revision=revisions + tags, format_version=1)
        self.state.seals = [
            SealState(act.Seal(number - 1, "", "run"), number, START + number * timedelta(seconds=1), "s", 1)
            for number in seals
        ]
        self.places = [number * revisions // tags for number in range(tags)]
        for number in range(tags):
            name, pinned = f"t{number}", seals[self.places[number]]
            made = act.TagCreated(name, pinned, act.ObjectRef("", "", 0), START, ttl if number % 2 else None, True)
            self.state.pins.tags[name] = TagState(made, "writer", revisions + number, 1)

    def refresh(self) -> State:
        return self.state

    require_snapshot = refresh

    def now(self) -> datetime:
        return NOW


def expiry_decided(revisions: int, tags: int) -> int:
    head: Any = Head(revisions, tags)
    count, found = calls(lambda: plan_expiry(head, Retention(keep_last=10)))
    assert (len(found.expired), len(found.pinned)) == (revisions - 10, sum(at < revisions - 10 for at in head.places))
    return count


def tags_decided(revisions: int, tags: int) -> int:
    """Half of them outlived their time, and all others but four are too many."""
    head = Head(revisions, tags, ttl=timedelta(days=1))
    count, found = calls(lambda: tags_to_delete(head.state, NOW, TagRule(num_retained_max=4)))
    assert len(found) == tags - 4
    return count


def calls(work: Callable[[], Any]) -> tuple[int, Any]:
    """Return how many calls some work makes, those of builtins too, and what it returns."""
    count = 0

    def count_call(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(count_call)
    try:
        found = work()
    finally:
        sys.setprofile(None)
    return count, found


@pytest.mark.parametrize("decided", [expiry_decided, tags_decided])
def test_four_times_the_revisions_and_tags_are_four_times_the_work(decided: Callable[[int, int], int]) -> None:
    decided(20, 8)  # what is done once in a process
    assert decided(1000, 360) < 5 * decided(250, 90)
