"""The pairs of actors whose storage calls `exhaustive` puts in every order, and the small locations that they work on.

Each location is older than the grace period, so that collectors and pruners delete from their first call on. The clock
moves before the first scheduled call only, while an exporter waits with its files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.operations.garbage import execute_collection, plan_collection
from snapshot_assets.catalog.operations.maintain_log import execute_pruning, plan_pruning
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag, hold_tag
from snapshot_assets.catalog.replication.replicate import replicate
from snapshot_assets.engine.export.start_snapshot import start_snapshot
from snapshot_assets.format.documents import sha256_hex
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.catalog.conftest import HEADER, SCHEMA, START
from snapshot_assets_tests.catalog.execute import delete_rows, expire
from snapshot_assets_tests.catalog.replication.test_replicate import assert_equal
from snapshot_assets_tests.faults import actors
from snapshot_assets_tests.faults.actors import CHUNKS, GRACE, HOUR
from snapshot_assets_tests.faults.exhaustive import Play, Player, copy_of
from snapshot_assets_tests.faults.interleaving import Clock, Recorded, SeenStore, World
from snapshot_assets_tests.faults.memory import MemoryStore
from snapshot_assets_tests.faults.store import Fault
from snapshot_assets_tests.faults.test_replication import assert_readable
from snapshot_assets_tests.schema_documents import write_schema

Work = Callable[[Player], None]
OTHER_SCHEMA = SCHEMA.model_copy(update={"database": "postgresql"})


@dataclass(frozen=True)
class Pair:
    """Two actors, and what they start from.

    Attributes:
        world: Makes the location.
        holds: Checks what must hold in the end, beside what `model.check` does.
    """

    world: Callable[[], World]
    one: Work
    other: Work
    holds: Callable[[Play], None] = lambda _: None

    def start(self, world: World, fault: Fault = Fault(), struck: int = 0) -> Play:
        """Return both at the start of their work in a copy of a world; the fault strikes one of them."""
        copy = copy_of(world)
        works = enumerate((self.one, self.other))
        return Play(copy, [Player(copy, number, work, fault if number == struck else Fault()) for number, work in works])


# Locations


def _new() -> tuple[World, Recorded]:
    world = World(MemoryStore(), Clock(START + 100 * GRACE))
    catalog = Recorded.open_for_writing(SeenStore(world), clock=world.clock)
    catalog.commit(rules.begin(HEADER, write_schema(catalog.store, SCHEMA)))
    for chunk in CHUNKS:
        actors._export(catalog, chunk)
    return world, catalog


def _aged(world: World) -> World:
    world.clock.now += 3 * GRACE
    return world


def _sealed_twice() -> World:
    """Seals at revisions 5 and 7; the first one has a file that the second one has not, and a tag that has outlived."""
    world, catalog = _new()
    create_tag(catalog, "first", seal(catalog).seal.revision, GRACE)
    actors._export(catalog, 1)
    seal(catalog)
    return _aged(world)


def _expired() -> World:
    """The first of two seals has expired."""
    world, catalog = _new()
    seal(catalog)
    actors._export(catalog, 1)
    seal(catalog)
    expire(catalog, keep_last=1)
    return _aged(world)


def _replicated() -> World:
    """Has a replica of its first seal, which has expired since."""
    world, catalog = _new()
    seal(catalog)
    replica = MemoryStore(uri="file:///replica")
    replicate(world.store, replica)
    actors._export(catalog, 1)
    seal(catalog)
    expire(catalog, keep_last=1)
    world.replica = replica.objects
    return _aged(world)


def _forced() -> World:
    """A snapshot of another schema has replaced that of the first one, which no retained revision needs."""
    world, catalog = _new()
    header = replace(HEADER, name="forced")
    catalog.commit(rules.begin(header, write_schema(catalog.store, OTHER_SCHEMA), force=True))
    return _aged(world)


def _left_receipt() -> World:
    """An export died after it wrote the receipt of the last chunk; another one died before and left garbage."""
    world = World(MemoryStore(), Clock(START + 100 * GRACE))
    catalog = Recorded.open_for_writing(SeenStore(world), clock=world.clock)
    catalog.commit(rules.begin(HEADER, write_schema(catalog.store, SCHEMA)))
    for chunk in (1, 2):
        actors._write(catalog, chunk)
        actors._export(catalog, chunk)
    actors._write(catalog, 3)
    return _aged(world)


def _with_checkpoints() -> World:
    """Two seals, and two checkpoints after the first one."""
    world, catalog = _new()
    seal(catalog)
    actors._export(catalog, 1)
    write_checkpoint(catalog.store, catalog.state)
    seal(catalog)
    write_checkpoint(catalog.store, catalog.state)
    return _aged(world)


# Actors


def exporter(waits: timedelta = timedelta(0)) -> Work:
    """Replaces a chunk; waits between its receipt and its commit, if it waits."""

    def work(actor: Player) -> None:
        catalog = actor.open()
        if not waits:
            actor.ready()
            actors._export(catalog, 1)
            return
        replaces = tuple(catalog.state.files.chunk(1))
        written = actors._write(catalog, 1)
        actor.world.clock.now += waits
        actor.ready()
        actors._commit(catalog, *written, replaces)

    return work


def _after_opening(work: Callable[[Recorded], object]) -> Work:
    def run(actor: Player) -> None:
        catalog = actor.open()
        actor.ready()
        work(catalog)

    return run


def collector(actor: Player) -> None:
    """Executes a plan that was made when the location was opened."""
    catalog = actor.open()
    plan = plan_collection(catalog)
    actor.ready()
    execute_collection(catalog, plan)


def pruner(actor: Player) -> None:
    catalog = actor.open()
    plan = plan_pruning(catalog)
    actor.ready()
    execute_pruning(catalog, plan)


def resumer(actor: Player) -> None:
    actor.opened = actor.ready
    actors.resumer(actor)


def tagger(actor: Player) -> None:
    catalog = actor.open()
    oldest = catalog.state.readable()[0].revision
    actor.ready()
    create_tag(catalog, "kept", oldest)


def compactor(catalog: Recorded) -> None:
    actors._compact(catalog, 1)


def sealer(actor: Player) -> None:
    catalog = actor.open()
    actors._export(catalog, 2)
    actor.ready()
    seal(catalog)


def reader(actor: Player) -> None:
    """Opens each sealed revision, and reads the files of the oldest one."""
    actor.ready()
    actors.reader(actor)
    actors.file_reader(0)(actor)


def replicator(actor: Player) -> None:
    target = World(MemoryStore(dict(actor.world.replica), "file:///replica"), actor.world.clock)
    target.written = dict.fromkeys(target.store.objects, START)
    actor.world.replica = target.store.objects
    store = actor.beside(target)
    actor.ready()
    replicate(actor.store, store)


# What holds


def _held_tag_stays(play: Play) -> None:
    if play.actors[0].error is None and play.actors[0].crash is None:
        assert read_state(play.world.store).tags["first"].hold is not None, "a held tag is gone"


def _replica_is_true(play: Play) -> None:
    source, replica = play.world.store, MemoryStore(dict(play.world.replica), "file:///replica")
    state = read_state(replica)
    assert_readable(replica)
    assert state.uuid in {won.uuid for won in play.world.won}, "the replica's head is no version of its source"
    replicate(source, replica)
    assert_equal(source, replica)


def _receipt_was_adopted(play: Play) -> None:
    state = read_state(play.world.store)
    for known in state.live_files(3):
        assert sha256_hex(play.world.store.get(known.file.path)) == known.file.sha256


PAIRS = {
    "export × gc": Pair(_expired, exporter(), collector),
    "export that waited for half the grace period × gc": Pair(_expired, exporter(GRACE / 2), collector),
    "export that waited longer than the grace period × gc": Pair(_expired, exporter(GRACE + HOUR), collector),
    "resumed export × gc": Pair(_left_receipt, resumer, collector),
    "start of a snapshot × gc": Pair(
        _forced, _after_opening(lambda catalog: start_snapshot(catalog, HEADER, SCHEMA, force=True)), collector
    ),
    "tag × expire": Pair(_sealed_twice, tagger, _after_opening(lambda catalog: expire(catalog, keep_last=1))),
    "prune × reader": Pair(_with_checkpoints, pruner, reader),
    "replicate × gc": Pair(_replicated, replicator, collector, _replica_is_true),
    "compact × tombstone": Pair(
        _sealed_twice,
        _after_opening(compactor),
        _after_opening(lambda catalog: delete_rows(catalog, TableName("main", "m"), "t is null")),
    ),
    "seal × replace": Pair(_sealed_twice, sealer, exporter()),
    "hold × expire": Pair(
        _sealed_twice,
        _after_opening(lambda catalog: hold_tag(catalog, "first", "a lawsuit", "counsel")),
        _after_opening(lambda catalog: expire(catalog, keep_last=1)),
        _held_tag_stays,
    ),
}
