"""Concurrent writers, compactors, deleters of rows, taggers, savers, expirers, collectors, pruners and others.

Their storage calls are interleaved by hypothesis.

Every schedule uses the plan's own grace period, and no process waits before one storage call for longer than half of
it. The tests then prove:

- no commit is lost or doubled, and a refused actor leaves no trace in the log;
- the state equals that of a simple model after the same commits;
- every deletion of rows filters every file that was not written with it;
- no file that a live or retained state needs is deleted, while collectors and pruners work at the same time;
- a reader of a retained state finds its files for a grace period, even if the state expires or loses its tag meanwhile.

The prepared location is days older than the grace period, so collectors delete from their first call on.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from snapshot_assets.catalog import catalog as catalog_module
from snapshot_assets_tests.catalog.next_version import next_version
from snapshot_assets_tests.faults.actors import GRACE, HOUR, KINDS, old_world
from snapshot_assets_tests.faults.conftest import CHANGES, EVERY, by_kind, spread
from snapshot_assets_tests.faults.interleaving import Actor, Turn, World, play
from snapshot_assets_tests.faults.model import check

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def world(scratch) -> World:
    return old_world(scratch / "interleaved")


@pytest.fixture(scope="module", autouse=True)
def _often():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalog_module, "CHECKPOINT_INTERVAL", 4)
        yield


TURNS = st.builds(
    Turn,
    st.integers(0, 7),
    st.integers(1, 25),
    st.sampled_from([0 * HOUR, 0 * HOUR, HOUR, 6 * HOUR, 11 * HOUR]),
)
PLAYS = {
    "names": st.lists(st.sampled_from(sorted(KINDS)), min_size=2, max_size=8),
    "schedule": st.lists(TURNS, max_size=40),
}


def _play(world: World, folder: Path, names: list[str], schedule: list[Turn]) -> None:
    copy = world.copy(folder)
    actors = [Actor(copy, f"{number} {name}", KINDS[name]) for number, name in enumerate(names)]
    with next_version():
        play(copy, actors, schedule, GRACE / 2)
        check(copy, actors)


RACES = [
    ("tagger of an older one", "expirer"),
    ("saver", "expirer"),
    ("retagger", "expirer"),
    ("untagger", "collector"),
    ("unsaver", "collector"),
    ("retagger", "collector"),
    ("rollbacker to the oldest", "writer of (1,)"),
    ("rollbacker to the oldest", "compactor of (1,)"),
    ("rollbacker to the oldest", "untagger"),
    ("rollbacker to the oldest", "collector"),
    ("discarder", "tagger of an older one"),
    ("reader of the oldest", "untagger that collects"),
]


@pytest.mark.parametrize(("one", "other"), [*RACES, *(race[::-1] for race in RACES)])
def test_whatever_another_does_between_two_calls_no_pin_misses_a_file(world, scratch, one, other):
    """Nor does it miss one after garbage collection has deleted everything unreferenced."""
    stops = _stops(world.copy(scratch / "raced"), one)
    for waits, calls in [*((0 * HOUR, at) for at in stops[::4]), *((11 * HOUR, at) for at in spread(stops, 1))]:
        copy = world.copy(scratch / "raced")
        actors = [Actor(copy, name, KINDS[name]) for name in (one, other)]
        play(copy, actors, [Turn(0, calls, 0 * HOUR), Turn(1, 1000, 0 * HOUR), Turn(0, 1, waits)], GRACE / 2)
        copy.clock.now += 3 * GRACE
        after = [Actor(copy, name, KINDS[name]) for name in ("collector", "pruner")]
        play(copy, after, [], GRACE / 2)
        check(copy, [*actors, *after])


def _stops(world: World, name: str) -> list[int]:
    """Return after how many calls an actor may stand still: before and after the first and last one of each kind."""
    actor = Actor(world, name, KINDS[name])
    play(world, [actor], [], GRACE / 2)
    ends = {number for numbers in by_kind(actor.calls).values() for number in (numbers[0], numbers[-1])}
    return sorted({0} | ends | {number + 1 for number in ends if actor.calls[number - 1].startswith(CHANGES)})


_SETTINGS = {"suppress_health_check": list(HealthCheck), "print_blob": True}


@given(**PLAYS)
@settings(max_examples=300 // EVERY, **_SETTINGS)
def test_however_actors_interleave_no_commit_and_no_file_is_lost(world, scratch, names, schedule):
    _play(world, scratch / "played", names, schedule)
