"""Replication that is killed at any storage call: the replica stays whole, and the next run finishes it.

Between the two runs, or in the middle of one, the source loses tags, revisions, files and the beginning of its log.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag, delete_tag
from snapshot_assets.catalog.replication import objects
from snapshot_assets.catalog.replication.replicate import replicate
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import StoreUnavailableError
from snapshot_assets.format.documents import sha256_hex
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.catalog.execute import collect_garbage, expire, prune
from snapshot_assets_tests.catalog.replication.test_replicate import NOW, assert_equal, replace_chunk
from snapshot_assets_tests.faults.conftest import CHANGES, spread
from snapshot_assets_tests.faults.operations import CONTINUOUS, opened, store_at
from snapshot_assets_tests.faults.store import Dropped, Fault, FaultyStore


def grow(writer: Writer, number: int) -> None:
    """Replace a chunk, seal, and tag the seal."""
    replace_chunk(writer, b"rows of %d" % number)
    create_tag(writer.catalog, f"tag{number}", seal(writer.catalog).seal.revision)


def shrink(writer: Writer) -> None:
    """Delete the tags, expire what is old, collect garbage, and prune the log."""
    for name in sorted(writer.catalog.refresh().tags):
        delete_tag(writer.catalog, name)
    grow(writer, 100)
    write_checkpoint(writer.store, writer.catalog.state)
    grow(writer, 101)
    write_checkpoint(writer.store, writer.catalog.state)
    expire(writer.catalog, keep_last=1)
    collect_garbage(writer.catalog, **NOW)
    prune(writer.catalog, **NOW)


def new(folder: Path) -> Writer:
    writer = Writer(store_at(folder))
    writer.begin(CONTINUOUS)
    writer.fill()
    create_tag(writer.catalog, "first", seal(writer.catalog).seal.revision)
    return writer


def _first(source: Path, replica: Path) -> None:
    """A replica is created of a source that has collected garbage."""
    writer = new(source)
    for number in range(3):
        grow(writer, number)
    delete_tag(writer.catalog, "first")
    expire(writer.catalog, keep_last=2)
    collect_garbage(writer.catalog, **NOW)


def _following(source: Path, replica: Path) -> None:
    """A replica follows a source that has lost nothing."""
    writer = new(source)
    replicate(writer.store, store_at(replica))
    grow(writer, 1)


def _jumping(source: Path, replica: Path) -> None:
    """A replica follows a source that has collected garbage and pruned its log since."""
    writer = new(source)
    replicate(writer.store, store_at(replica))
    grow(writer, 1)
    shrink(writer)


SCENARIOS: dict[str, Callable[[Path, Path], None]] = {"first": _first, "following": _following, "jumping": _jumping}


@dataclass
class World:
    """A source and its replica as they are before a run, and the run's calls."""

    folder: Path
    trace: list[str] = field(default_factory=list)

    def fresh(self) -> tuple[ObjectStore, ObjectStore]:
        """Return both, as they were before the run."""
        for name in ("source", "replica"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
            if (self.folder / "before" / name).exists():
                shutil.copytree(self.folder / "before" / name, self.folder / name)
        return store_at(self.folder / "source"), store_at(self.folder / "replica")

    @property
    def changes(self) -> list[int]:
        """Return the numbers of the calls that change the replica."""
        return [number for number, call in enumerate(self.trace, 1) if call.startswith(CHANGES)]


@pytest.fixture(params=SCENARIOS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    SCENARIOS[request.param](tmp_path / "before/source", tmp_path / "before/replica")
    world = World(tmp_path)
    source, replica = world.fresh()
    counted = FaultyStore(replica)
    replicate(source, counted)
    world.trace = counted.trace
    assert_equal(source, replica)
    return world


def assert_readable(replica: ObjectStore) -> None:
    """Check that the replica's head, and every revision that it can read, is whole, unless its log is not begun."""
    state = read_state(replica)
    if state.revision:
        report = verify(replica)
        assert not report.damaged, report.faults
        for known in state.live_files():
            assert sha256_hex(replica.get(known.file.path)) == known.file.sha256


def strike(world: World, kind: str, at: int, between: Callable[[Writer], None] = lambda _: None) -> None:
    source, replica = world.fresh()
    with pytest.raises((Dropped, StoreUnavailableError)):
        replicate(source, FaultyStore(replica, Fault(kind, at)), delete=True)
    assert_readable(replica)
    between(opened(source))
    replicate(source, replica, delete=True)
    assert_equal(source, replica)


def test_killed_in_the_middle_the_next_run_finishes(world: World) -> None:
    """Twice: before the log follows, and within it."""
    log = [at for at in world.changes if "revision" in world.trace[at - 1]]
    for at in (world.changes[len(world.changes) // 2], log[len(log) // 2]):
        strike(world, "drop-before", at)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("between", [lambda _: None, lambda writer: grow(writer, 50), shrink])
def test_killed_between_two_changes_the_next_run_finishes(world: World, between) -> None:
    for number, kind in enumerate(("drop-before", "drop-after", "fail-after")):
        for at in spread(world.changes, number):
            strike(world, kind, at, between)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_source_that_shrinks_at_a_call_is_replicated(world: World) -> None:
    """Another process deletes tags, collects garbage and prunes between two calls of the replication."""
    source, replica = world.fresh()
    counted = _Between(FaultyStore(source), 0)
    replicate(counted, replica)
    for at in spread(range(1, len(counted.inner.trace) + 1), 0):
        source, replica = world.fresh()
        replicate(_Between(FaultyStore(source), at), replica)
        assert_readable(replica)
        replicate(source, replica)
        assert_equal(source, replica)


class _Between:
    """A store at one of whose calls another process shrinks the source."""

    def __init__(self, inner: FaultyStore, at: int) -> None:
        self.inner, self._at = inner, at

    @property
    def uri(self) -> str:
        return self.inner.uri

    def __getattr__(self, name: str):
        call = getattr(self.inner, name)

        def run(*arguments, **options):
            if self._at and len(self.inner.trace) + 1 >= self._at:
                self._at = 0
                shrink(opened(self.inner.inner))
            return call(*arguments, **options)

        return run


@pytest.mark.parametrize("in_memory", [objects.IN_MEMORY, 4])
def test_a_collection_in_the_middle_of_a_copy_is_no_damage(tmp_path: Path, monkeypatch, in_memory: int) -> None:
    """Also where objects are streamed."""
    monkeypatch.setattr(objects, "IN_MEMORY", in_memory)
    _first(tmp_path / "source", tmp_path / "replica")
    source, replica = store_at(tmp_path / "source"), store_at(tmp_path / "replica")
    struck = _Between(FaultyStore(source), 0)
    replicate(struck, replica)
    reads = [at for at, call in enumerate(struck.inner.trace, 1) if call.startswith(("get file", "open_reader file"))]
    assert reads
    other = store_at(tmp_path / "other")
    replicate(_Between(FaultyStore(source), reads[1]), other)
    assert_equal(source, other)
