"""A promotion while a replication is at work, and one that is killed: the promoted location stays whole and its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.catalog.replica import read_marker
from snapshot_assets.catalog.replication.objects import is_evidence
from snapshot_assets.catalog.replication.promote import execute_promotion, plan_promotion
from snapshot_assets.catalog.replication.replicate import replicate
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import ConflictError, DamageError, ReplicaConflictError, ReplicaError, SnapshotError
from snapshot_assets.format.layout import is_probe
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.catalog.replication.test_replicate import replace_chunk
from snapshot_assets_tests.faults.operations import store_at
from snapshot_assets_tests.faults.store import Dropped, Fault, FaultyStore
from snapshot_assets_tests.faults.test_replication import grow, new, shrink

pytestmark = pytest.mark.slow


def promote(store: ObjectStore) -> None:
    catalog = Catalog.open(store)
    execute_promotion(catalog, plan_promotion(catalog))


def use(store: ObjectStore) -> int:
    """Write to a promoted location: a tag, and a seal of new rows. Returns the new head."""
    writer = Writer(store)
    create_tag(writer.catalog, "own", writer.catalog.state.seals[-1].revision)
    replace_chunk(writer, b"own rows")
    seal(writer.catalog)
    return writer.catalog.state.revision


def _following(source: Path, replica: Path) -> dict[str, object]:
    """The source has lost nothing since it was replicated."""
    writer = new(source)
    replicate(writer.store, store_at(replica))
    for number in range(8):
        grow(writer, number)
    return {}


def _jumping(source: Path, replica: Path) -> dict[str, object]:
    """The source has collected garbage, so the checkpoint of its head comes first."""
    writer = new(source)
    replicate(writer.store, store_at(replica))
    for number in range(8):
        grow(writer, number)
    shrink(writer)
    return {"delete": True}


def _choosing(source: Path, replica: Path) -> dict[str, object]:
    """Versions are chosen, and the marker is written again."""
    writer = new(source)
    grow(writer, 0)
    grow(writer, 1)
    replicate(writer.store, store_at(replica), only=["tag:first"])
    grow(writer, 2)
    return {"only": ["tag:tag1"]}


SCENARIOS: dict[str, Callable[[Path, Path], dict[str, object]]] = {
    "following": _following,
    "jumping": _jumping,
    "choosing": _choosing,
}


@dataclass
class World:
    """A source and its replica as they are before a replication, which takes `options`."""

    folder: Path
    options: dict[str, object]

    def fresh(self) -> tuple[ObjectStore, ObjectStore]:
        for name in ("source", "replica"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
            shutil.copytree(self.folder / "before" / name, self.folder / name)
        return store_at(self.folder / "source"), store_at(self.folder / "replica")

    def calls(self) -> list[str]:
        source, replica = self.fresh()
        counted = FaultyStore(replica)
        replicate(source, counted, **self.options)
        return counted.trace


@pytest.fixture(params=SCENARIOS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(tmp_path, SCENARIOS[request.param](tmp_path / "before/source", tmp_path / "before/replica"))


@dataclass
class Meanwhile(FaultyStore):
    """A store before one of whose calls something else happens once."""

    happens: Callable[[], None] = field(default=lambda: None)

    @contextmanager
    def _call(self, operation: str, path: str) -> Iterator[None]:
        if len(self.trace) + 1 == self.fault.at:
            happens, self.happens = self.happens, lambda: None
            happens()
        with super()._call(operation, path):
            yield


def contents(store: ObjectStore) -> dict[str, bytes]:
    """Return all objects but probes, which a writer deletes after its test of the store."""
    return {info.path: store.get(info.path) for info in store.list() if not is_probe(info.path)}


def strike(world: World, at: int, call: str) -> bool:
    """Promote and use the replica before a call of the replication; return whether that was possible."""
    source, replica = world.fresh()
    heads, after = list[int](), dict[str, bytes]()

    def happens() -> None:
        try:
            promote(replica)
        except DamageError:  # the checkpoint of the head came first, and the log has a gap
            assert read_marker(replica) is not None
        else:
            heads.append(use(replica))
            after.update(contents(replica))

    struck = Meanwhile(replica, Fault("none", at), happens=happens)
    if not heads_of(struck, source, world, heads):
        assert not verify(replica).damaged
        return False
    if call == "put replica.json":  # the marker that was being written arrived late
        promote(replica)
    assert read_marker(replica) is None
    state = read_state(replica)
    assert state.revision == heads[0] + (call == "put replica.json")
    assert "own" in state.tags
    assert not verify(replica).damaged, verify(replica).faults
    if call.startswith(("get", "list", "head", "folders")):
        now = contents(replica)
        assert now.items() <= after.items(), "nothing was written after the promotion"
        assert all(map(is_evidence, after.keys() - now.keys())), "what had just arrived was taken back"
    with pytest.raises(ReplicaError, match="is not a replica"):
        replicate(source, replica, **world.options)
    Writer(replica)
    return True


def heads_of(struck: Meanwhile, source: ObjectStore, world: World, heads: list[int]) -> list[int]:
    """Replicate; if the replica was promoted meanwhile, that is refused unless all was written."""
    try:
        replicate(source, struck, **world.options)
    except (ReplicaError, ReplicaConflictError):
        assert heads
    return heads


@pytest.mark.timeout(1800)
def test_a_promotion_before_each_call_of_a_replication_wins(world: World) -> None:
    calls = world.calls()
    promoted = [strike(world, at, call) for at, call in enumerate(calls, 1)]
    firsts = [calls.index(call) for call in dict.fromkeys(calls)]
    assert sum(promoted[first] for first in firsts) >= len(firsts) // 2


@pytest.mark.parametrize("kind", ["drop-before", "drop-after", "fail-before", "fail-after"])
def test_a_killed_promotion_is_finished_by_the_next_one(world: World, kind: str) -> None:
    source, replica = world.fresh()
    seen = read_state(replica)
    counted = FaultyStore(replica)
    promote(counted)
    writes = [at for at, call in enumerate(counted.trace, 1) if call.startswith(("create", "put", "delete"))]
    for at in writes if kind != "drop-after" else writes[-1:]:  # after another write is before the next one
        source, replica = world.fresh()
        with suppress(Dropped, SnapshotError):  # unless the call was not needed, or its reply
            promote(FaultyStore(replica, Fault(kind, at)))
        between = read_state(replica)
        assert (between.tags, between.readable()) == (seen.tags, seen.readable())
        if read_marker(replica) is not None:
            with pytest.raises(ReplicaError):
                Catalog.open_for_writing(replica)
            promote(replica)
        assert not verify(replica).faults
        assert read_state(replica).tags == seen.tags
        use(replica)
        assert not verify(replica).damaged
        with pytest.raises(ReplicaError, match="is not a replica"):
            replicate(source, replica)


def test_a_begun_promotion_refuses_replication_and_writers(world: World) -> None:
    source, replica = world.fresh()
    counted = FaultyStore(replica)
    promote(counted)
    last = max(at for at, call in enumerate(counted.trace, 1) if call.startswith("delete replica"))
    source, replica = world.fresh()
    with pytest.raises(Dropped):
        promote(FaultyStore(replica, Fault("drop-before", last)))
    before = contents(replica)
    for call in (lambda: replicate(source, replica), lambda: Catalog.open_for_writing(replica)):
        with pytest.raises(ReplicaError, match="promotion was begun"):
            call()
    assert contents(replica) == before


def test_two_replications_at_once_keep_what_both_chose(tmp_path: Path) -> None:
    _choosing(tmp_path / "source", tmp_path / "replica")
    source = store_at(tmp_path / "source")
    counted = FaultyStore(store_at(tmp_path / "other"))
    replicate(source, counted, only=["tag:tag0"])
    for at in range(1, len(counted.trace) + 1):
        shutil.rmtree(tmp_path / "other")
        other = store_at(tmp_path / "other")
        struck = Meanwhile(other, Fault("none", at), happens=lambda: replicate(source, other, only=["tag:tag1"]))  # noqa: B023
        try:
            replicate(source, struck, only=["tag:tag0"])
        except ConflictError:
            replicate(source, other, only=["tag:tag0"])
        assert not verify(other).damaged
        if counted.trace[at - 1] != "put replica.json":
            assert {"tag0", "tag1"} <= read_state(other).tags.keys(), counted.trace[at - 1]
