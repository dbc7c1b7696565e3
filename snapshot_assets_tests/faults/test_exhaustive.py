"""Every order of the storage calls of two actors, without a fault and with each fault of one of them.

Orders that differ by independent calls are played once (`exhaustive.py`). Faults are a transient error before a call,
one after a change (its reply is lost), and a crash after a change. `docs/protocol.md` has the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Prepare
from snapshot_assets.catalog.log import store as log
from snapshot_assets.catalog.operations import garbage
from snapshot_assets.catalog.rules import chunks
from snapshot_assets.storage.base import delete_unless_retained
from snapshot_assets_tests.faults import actors
from snapshot_assets_tests.faults.actors import KINDS, old_world
from snapshot_assets_tests.faults.conftest import EVERY
from snapshot_assets_tests.faults.exhaustive import Play, Player, Search, SmallWorld, repeatable
from snapshot_assets_tests.faults.interleaving import Recorded
from snapshot_assets_tests.faults.pairs import PAIRS, Coverage, Pair, after_opening, cover, line, share, struck
from snapshot_assets_tests.faults.store import Fault

PAGE = Path(__file__).parents[2] / "docs/protocol.md"


@pytest.fixture(autouse=True)
def _repeatable() -> Iterator[None]:
    with repeatable():
        yield


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", PAIRS)
def test_in_no_order_and_with_no_fault_is_a_commit_or_a_file_lost(name: str, capsys) -> None:
    pair, world = PAIRS[name], PAIRS[name].world()
    covered = cover(pair, world)
    assert line(name, pair, covered) in PAGE.read_text()
    schedules = struck(pair, world, covered, EVERY**2)
    with capsys.disabled():
        print(line(name, pair, covered), f"one of {EVERY**2} faults: {schedules:,} schedules")  # noqa: T201


def _beginning(chunk: int) -> Callable[[Player], None]:
    return after_opening(lambda catalog: catalog.commit(rules.in_progress(catalog.token(), [chunk], "r")))


def _scan(catalog: Recorded) -> None:
    catalog.store.world.replica = dict.fromkeys(sorted(info.path for info in catalog.store.list()), b"")
    catalog.refresh()


SMALL = {
    "two commits": Pair(PAIRS["seal x replace"].world, _beginning(1), _beginning(2)),
    "a listing and a commit": Pair(PAIRS["seal x replace"].world, after_opening(_scan), _beginning(1)),
    "an export and a listing": Pair(
        PAIRS["seal x replace"].world,
        after_opening(lambda catalog: actors._write(catalog, 1)),
        after_opening(lambda catalog: [_scan(catalog), _scan(catalog)]),
    ),
}


def _ends(pair: Pair, world: SmallWorld, **options: object) -> tuple[Search, set[object]]:
    search = Search(lambda: pair.start(world), **options)
    return search, {(play.end(), _of_each(play)) for play in search}


def _of_each(play: Play) -> tuple[tuple[object, ...], ...]:
    return tuple(tuple(step for step in play.steps if step.actor == number) for number in (0, 1))


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_the_orders_that_are_played_end_as_all_orders_do(name: str) -> None:
    pair, world = SMALL[name], SMALL[name].world()
    every, ends = _ends(pair, world, dependent=lambda one, other: True)
    some, same = _ends(pair, world)
    assert same == ends
    assert some.played < every.played / 4


@pytest.mark.parametrize("kind", ["tagger", "collector", "pruner", "resumer"])
def test_the_store_in_memory_does_what_the_local_one_does(kind: str, tmp_path: Path) -> None:
    disk = old_world(tmp_path / "disk")
    small = SmallWorld(disk.clock, {info.path: disk.store.get(info.path) for info in disk.store.list()}).after(disk)
    found = []
    for world in (disk, small):
        player = Player(world, 0, KINDS[kind], Fault())
        player.start()
        player.step()
        assert player.ended
        assert (player.error, player.crash) == (None, None)
        operations = [call.split()[0] for call in player.store.trace]  # the local one draws ids for its temporary files
        found.append((operations, [info.size for info in world.store.list()]))
    assert found[0] == found[1]


def _loses_replies(patch: pytest.MonkeyPatch) -> None:
    """A commit whose reply was lost counts as lost to another writer."""
    patch.setattr(log, "_read_back", lambda *_: False)


def _forgets_ages(patch: pytest.MonkeyPatch) -> None:
    """An export commits files of any age."""
    patch.setattr(chunks, "check_age", lambda *_: None)


def _scans_once(patch: pytest.MonkeyPatch) -> None:
    """A collection deletes by what it saw first, and does not read the head again."""
    scans: dict[int, garbage.GarbageScan] = {}
    scan, plain = (
        garbage.scan_head,
        lambda store, paths: ({p for p in paths if not delete_unless_retained(store, p)}, set()),
    )
    patch.setattr(
        garbage, "scan_head", lambda store, before, pinned: scans.setdefault(id(store), scan(store, before, pinned))
    )
    patch.setattr(garbage, "_delete_schemas", plain)


def _never_writes_back(patch: pytest.MonkeyPatch) -> None:
    """A collection deletes schema documents, and does not look whether a writer has named them since."""
    patch.setattr(
        garbage,
        "_delete_schemas",
        lambda store, paths: ({p for p in paths if not delete_unless_retained(store, p)}, set()),
    )


def _decides_once(patch: pytest.MonkeyPatch) -> None:
    """A rule is not asked again after a lost race."""
    commit = Recorded.commit

    def commit_once(catalog: Recorded, prepare: Prepare) -> int | None:
        decide = cache(lambda: prepare(catalog.state))
        return commit(catalog, lambda _: decide())

    patch.setattr(Recorded, "commit", commit_once)


def _believes_what_it_won(patch: pytest.MonkeyPatch) -> None:
    """A writer that slept does not look whether the revision that it won follows a log."""
    patch.setattr(log, "_check_follows", lambda *_: None)


DEFECTS = {
    _believes_what_it_won: "commit after sleep x prune",
    _loses_replies: "seal x replace",
    _forgets_ages: "export that waited longer than the grace period x gc",
    _never_writes_back: "start of a snapshot x gc",
    _scans_once: "start of a snapshot x gc",
    _decides_once: "compact x tombstone",
}


@pytest.mark.slow
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.__name__.strip("_"))
def test_a_defect_is_found(defect: Callable[[pytest.MonkeyPatch], None], monkeypatch) -> None:
    pair = PAIRS[DEFECTS[defect]]
    world = pair.world()
    covered = cover(pair, world) if defect is _loses_replies else Coverage()
    defect(monkeypatch)
    replies = [fault for fault in share(pair, covered) if fault[1].kind == "fail-after"]
    with pytest.raises(AssertionError, match=r"(?s)missing|without a hole|checksum") as found:
        _ = [cover(pair, world, *fault) for fault in [(0, Fault()), *replies]]
    assert "in this schedule" in found.value.__notes__[0]
