"""The pairs of actors whose storage calls `exhaustive` puts in every order, and the small locations that they work on.

`python -m snapshot_assets_tests.faults.pairs` searches all of them with every fault, and prints what that covers.

Each location is older than the grace period, so that collectors and pruners delete from their first call on. The clock
moves before the first scheduled call only, while an exporter waits with its files.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from math import comb

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.operations.garbage import execute_collection, plan_collection
from snapshot_assets.catalog.operations.maintain_log import execute_pruning, plan_pruning
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag, hold_tag
from snapshot_assets.catalog.replication.replicate import replicate
from snapshot_assets.engine.export.start_snapshot import start_snapshot
from snapshot_assets.errors import OutcomeUnknownError, SnapshotError, StoreUnavailableError, SupersededError
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.catalog.conftest import HEADER, SCHEMA, START
from snapshot_assets_tests.catalog.execute import collect_garbage, delete_rows, expire, prune
from snapshot_assets_tests.catalog.replication.test_replicate import assert_equal
from snapshot_assets_tests.faults import actors
from snapshot_assets_tests.faults.actors import CHUNKS, GRACE, HOUR
from snapshot_assets_tests.faults.conftest import CHANGES
from snapshot_assets_tests.faults.exhaustive import Play, Player, Search, SmallWorld, repeatable
from snapshot_assets_tests.faults.interleaving import Clock, Recorded, SeenStore
from snapshot_assets_tests.faults.memory import MemoryStore
from snapshot_assets_tests.faults.model import check
from snapshot_assets_tests.faults.store import Dropped, Fault
from snapshot_assets_tests.faults.test_replication import assert_readable
from snapshot_assets_tests.schema_documents import write_schema

Work = Callable[[Player], None]
NO_FAULT = Fault()
OTHER_SCHEMA = SCHEMA.model_copy(update={"database": "postgresql"})


@dataclass(frozen=True)
class Pair:
    """Two actors, and what they start from.

    Attributes:
        world: Makes the location.
        holds: Checks what must hold in the end, beside what `model.check` does.
        again: What the next run does first after a fault, to mend what only it can.
        refusals: Errors that an actor may get, beside those of `model.check`.
        every: One of so many faults is tried, because each has very many schedules.
    """

    world: Callable[[], SmallWorld]
    one: Work
    other: Work
    holds: Callable[[Play], None] = lambda _: None
    again: Callable[[Recorded], object] = lambda _: None
    refusals: tuple[type[SnapshotError], ...] = ()
    every: int = 1

    def start(self, world: SmallWorld, struck: int = 0, fault: Fault = NO_FAULT) -> Play:
        """Return both at the start of their work in a copy of a world; the fault strikes one of them."""
        copy = world.copy()
        works = enumerate((self.one, self.other))
        return Play(
            copy, [Player(copy, number, work, fault if number == struck else Fault()) for number, work in works]
        )

    def check(self, play: Play) -> None:
        """Check a world after a schedule, and again once everything unreferenced is collected and pruned."""
        world, struck = play.world, any(actor.fault.at for actor in play.actors)
        others = [actor for actor in play.actors if not self._excuses(actor)]
        catalog = Recorded.open_for_writing(SeenStore(world), clock=world.clock)
        if struck:
            self.again(catalog)
        check(world, others)
        self.holds(play)
        _aged(world)
        collect_garbage(catalog)
        prune(catalog)
        check(world, others)

    def _excuses(self, actor: Player) -> bool:
        if actor.fault.at and isinstance(
            actor.error or actor.crash, (StoreUnavailableError, OutcomeUnknownError, Dropped)
        ):
            return True
        return isinstance(actor.error, self.refusals)


@dataclass
class Coverage:
    """What a search covers.

    Attributes:
        calls: The most calls of each actor in a schedule.
        played: How many schedules were played.
        found: What each call of each actor was, by actor and number.
    """

    calls: list[int] = field(default_factory=lambda: [0, 0])
    played: int = 0
    found: dict[tuple[int, int], set[str]] = field(default_factory=dict)

    @property
    def orders(self) -> int:
        """The number of orders of so many calls."""
        return comb(sum(self.calls), self.calls[0])

    def faults(self) -> list[tuple[int, Fault]]:
        """Return every actor and fault: each call fails, and each change is also lost to its caller or the last one.

        A crash before a call is one after the change before it.
        """
        return [
            (actor, Fault(kind, at))
            for (actor, at), operations in sorted(self.found.items())
            for kind in ("fail-before", "fail-after", "drop-after")
            if kind == "fail-before" or operations & set(CHANGES)
        ]


def cover(pair: Pair, world: SmallWorld, struck: int = 0, fault: Fault = NO_FAULT) -> Coverage:
    """Play all schedules of a pair in a world, and check each end of them once."""
    covered, ends = Coverage(), set[object]()
    for play in Search(lambda: pair.start(world, struck, fault)):
        covered.played += 1
        calls = [0, 0]
        for step in play.steps:
            calls[step.actor] += 1
            covered.found.setdefault((step.actor, calls[step.actor]), set()).add(step.operation)
        covered.calls = [*map(max, covered.calls, calls)]
        end = play.end()
        if end not in ends:
            ends.add(end)
            try:
                pair.check(play)
            except Exception as error:
                error.add_note(f"{fault} of actor {struck} in this schedule:\n{play}")
                raise
    return covered


# Locations


def _new() -> tuple[SmallWorld, Recorded]:
    world = SmallWorld(Clock(START + 100 * GRACE))
    catalog = Recorded.open_for_writing(SeenStore(world), clock=world.clock)
    catalog.commit(rules.begin(HEADER, write_schema(catalog.store, SCHEMA)))
    for chunk in CHUNKS:
        actors._export(catalog, chunk)
    return world, catalog


def _aged(world: SmallWorld) -> SmallWorld:
    world.clock.now += 3 * GRACE
    return world


def _sealed_twice() -> SmallWorld:
    """Seals at revisions 5 and 7; the first one has a file that the second one has not, and a tag that has outlived."""
    world, catalog = _new()
    create_tag(catalog, "first", seal(catalog).seal.revision, GRACE)
    actors._export(catalog, 1)
    seal(catalog)
    return _aged(world)


def _expired() -> SmallWorld:
    """The first of two seals has expired."""
    world, catalog = _new()
    seal(catalog)
    actors._export(catalog, 1)
    seal(catalog)
    expire(catalog, keep_last=1)
    return _aged(world)


def _replicated() -> SmallWorld:
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


def _forced() -> SmallWorld:
    """A snapshot of another schema has replaced that of the first one, which no retained revision needs."""
    world = SmallWorld(Clock(START + 100 * GRACE))
    catalog = Recorded.open_for_writing(SeenStore(world), clock=world.clock)
    catalog.commit(rules.begin(HEADER, write_schema(catalog.store, SCHEMA)))
    header = replace(HEADER, name="forced")
    catalog.commit(rules.begin(header, write_schema(catalog.store, OTHER_SCHEMA), force=True))
    return _aged(world)


def _left_receipt() -> SmallWorld:
    """An export died after it wrote the receipt of the last chunk; another one died before and left garbage."""
    world = SmallWorld(Clock(START + 100 * GRACE))
    catalog = Recorded.open_for_writing(SeenStore(world), clock=world.clock)
    catalog.commit(rules.begin(HEADER, write_schema(catalog.store, SCHEMA)))
    for chunk in (1, 2):
        actors._write(catalog, chunk)
        actors._export(catalog, chunk)
    actors._write(catalog, 3)
    return _aged(world)


def _with_checkpoints() -> SmallWorld:
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


def sleeper(actor: Player) -> None:
    """Replaces a chunk after a sleep in which others committed and wrote checkpoints: its next revision may go."""
    catalog = actor.open()
    other = Recorded.open_for_writing(SeenStore(actor.world), clock=actor.world.clock)
    for chunk in (2, 3):
        actors._export(other, chunk)
        seal(other)
        expire(other, keep_last=1)
        write_checkpoint(other.store, other.state)
    _aged(actor.world)
    replaces = tuple(catalog.state.files.chunk(1))
    actor.ready()
    actors._commit(catalog, *actors._write(catalog, 1), replaces)


def after_opening(work: Callable[[Recorded], object]) -> Work:
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
    """Adopts a receipt that was found when the location was opened."""
    catalog = actor.open()
    token, found = catalog.token(), actors._adoptable(catalog)
    actor.ready()
    actors._adopt(catalog, token, found)


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
    target = SmallWorld(actor.world.clock, dict(actor.world.replica))
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


def _start_again(catalog: Recorded) -> None:
    """Start the snapshot if it was begun: that writes schema documents which a struck actor lost."""
    if catalog.refresh().header == HEADER:
        start_snapshot(catalog, HEADER, SCHEMA)


PAIRS = {
    "export x gc": Pair(_expired, exporter(), collector),
    "export that waited for half the grace period x gc": Pair(_expired, exporter(GRACE / 2), collector),
    "export that waited longer than the grace period x gc": Pair(_expired, exporter(GRACE + HOUR), collector),
    "resumed export x gc": Pair(_left_receipt, resumer, collector),
    "start of a snapshot x gc": Pair(
        _forced,
        after_opening(lambda catalog: start_snapshot(catalog, HEADER, SCHEMA, force=True)),
        collector,
        again=_start_again,
        refusals=(StoreUnavailableError,),
        every=10,
    ),
    "tag x expire": Pair(_sealed_twice, tagger, after_opening(lambda catalog: expire(catalog, keep_last=1))),
    "prune x reader": Pair(_with_checkpoints, pruner, reader),
    "commit after sleep x prune": Pair(_expired, sleeper, pruner, refusals=(SupersededError,), every=10),
    "replicate x gc": Pair(_replicated, replicator, collector, _replica_is_true),
    "compact x tombstone": Pair(
        _sealed_twice,
        after_opening(compactor),
        after_opening(lambda catalog: delete_rows(catalog, TableName("main", "m"), "t is null")),
    ),
    "seal x replace": Pair(_sealed_twice, sealer, exporter()),
    "hold x expire": Pair(
        _sealed_twice,
        after_opening(lambda catalog: hold_tag(catalog, "first", "a lawsuit", "counsel")),
        after_opening(lambda catalog: expire(catalog, keep_last=1)),
        _held_tag_stays,
    ),
}


def share(pair: Pair, covered: Coverage) -> list[tuple[int, Fault]]:
    """Return the faults that are tried, by what was covered without one."""
    return covered.faults()[:: pair.every]


def line(name: str, pair: Pair, covered: Coverage) -> str:
    """Return what was covered without a fault, as a line of the table in `docs/protocol.md`."""
    one, other = covered.calls
    return f"| {name} | {one}, {other} | {covered.orders:.0e} | {covered.played:,} | {len(share(pair, covered)):,} |"


def struck(pair: Pair, world: SmallWorld, covered: Coverage, every: int = 1) -> int:
    """Play all schedules with one of so many faults, and return how many there were."""
    return sum(cover(pair, world, *fault).played for fault in share(pair, covered)[::every])


if __name__ == "__main__":
    with repeatable():
        for name, pair in PAIRS.items():
            world = pair.world()
            covered = cover(pair, world)
            sys.stdout.write(f"{line(name, pair, covered)} {struck(pair, world, covered):,} schedules with faults\n")
            sys.stdout.flush()
