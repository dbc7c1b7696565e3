"""Tries every order of the storage calls of two actors, but for orders that can make no difference.

Two orders are equivalent if one becomes the other by swapping neighbours that are independent: calls of two actors of
which neither changes what the other one touches. Of each class of equivalent orders, one is played (Flanagan and
Godefroid, "Dynamic partial-order reduction"): after each schedule, the pairs of dependent calls in it that could have
come the other way round tell where another actor should have gone first. Sleep sets (Godefroid) keep a schedule from
being played again: an actor whose call was tried at a place sleeps in what follows, until a call that depends on it.
"""

from __future__ import annotations

import random
import secrets
import threading
import uuid
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import filterfalse
from typing import Any

import pytest

from snapshot_assets.catalog.log import store as log
from snapshot_assets.format.layout import is_probe
from snapshot_assets.storage import bulk, create
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets_tests.faults.interleaving import Actor, Clock, Recorded, SeenStore, World
from snapshot_assets_tests.faults.memory import MemoryStore
from snapshot_assets_tests.faults.store import Fault, FaultyStore


@dataclass(frozen=True)
class Step:
    """A storage call that an actor made, and what it did until its next one.

    Attributes:
        path: Of the object, or what the listed paths begin with.
        page_end: Of the two pages of a listing, the last path on the first one.
        changed: Paths of the objects that were written or deleted. Readers pass over probes.
    """

    actor: int
    operation: str
    path: str
    page_end: str
    changed: frozenset[str]

    def touches(self, path: str) -> bool:
        match self.operation:
            case "list":
                return path.startswith(self.path) and path <= self.page_end
            case "list on":
                return path.startswith(self.path) and path > self.page_end
            case "folders":
                return path.startswith(self.path)
        return path == self.path

    def __str__(self) -> str:
        return f"{self.actor}: {self.operation} {self.path}"


def dependent(one: Step, other: Step) -> bool:
    """Return whether the order of two calls of different actors can make a difference."""
    return any(map(one.touches, other.changed)) or any(map(other.touches, one.changed))


class _Struck(FaultyStore):
    """A store that an actor sees, with a fault at one of its calls."""

    @property
    def world(self) -> World:
        return self.inner.world


class Player(Actor):
    """An actor whose opening is not scheduled, and at one of whose later calls a fault may strike.

    Args:
        number: Its number in the play.
        work: What it does; calls `ready` after its opening.
    """

    play: Play

    def __init__(self, world: World, number: int, work: Callable[[Player], None], fault: Fault) -> None:
        super().__init__(world, str(number), work)
        self.number, self.fault = number, fault
        self.random = random.Random(number)
        self.pending = ("", "")
        self._free = True
        self.stores = [_Struck(self.store)]
        [self.store] = self.stores

    def open(self) -> Recorded:
        """Open the location; see `Actor.open`. What follows is not scheduled either, until the actor is `ready`."""
        catalog = super().open()
        self._free = True
        return catalog

    def beside(self, world: World) -> ObjectStore:
        """Return the store of a world that no other actor sees, whose calls are scheduled and struck, too."""
        self.stores.append(_Struck(SeenStore(world, lambda operation, path: self._pause(operation, f"replica:{path}"))))
        self.stores[-1].trace = self.store.trace
        return self.stores[-1]

    def ready(self) -> None:
        """Be scheduled from the next call on."""
        self.store.trace.clear()
        for store in self.stores:
            store.fault = self.fault
        self._free = False

    def _pause(self, operation: str, path: str) -> None:
        if self._free:
            return
        assert threading.current_thread() is self, "an actor's calls are made by one thread"
        self.play.note()
        self.pending = operation, path
        if self.play.turn != self.number:
            self._stands.release()
            self._go.acquire()

    def abandon(self) -> None:
        """End without another effect."""
        self._free = True
        for store in self.stores:
            store.dropped = True
        while not self.ended:
            self.step()


class Play:
    """Two actors in a world, and their calls so far.

    Attributes:
        turn: Who makes the next call; None at the end.
    """

    def __init__(self, world: World, actors: Sequence[Player]) -> None:
        self.world, self.actors = world, actors
        self.steps: list[Step] = []
        self.turn: int | None = None
        self._choose: Callable[[Play], int | None] = lambda _: None
        for actor in actors:
            actor.play = self

    def run(self, choose: Callable[[Play], int | None]) -> None:
        """Let both actors open the location, and then let one of them make its next call after each call.

        The thread of an actor asks who is next, so that it goes on if that is itself.
        """
        for actor in self.actors:
            actor.start()
            actor.step()
        self.world.store.changed.clear()
        self._choose = choose
        self.turn = choose(self)
        while self.turn is not None:
            actor = self.actors[self.turn]
            actor.step()
            if actor.ended:
                self.note()

    def note(self) -> None:
        """Note the call that was made, if one was, and choose who makes the next one."""
        if self.turn is not None:
            operation, path = self.actors[self.turn].pending
            end = self.world.page_end(path) if operation.startswith("list") else ""
            changed = self.world.store.changed
            self.steps.append(Step(self.turn, operation, path, end, frozenset(filterfalse(is_probe, changed))))
            changed.clear()
            self.turn = self._choose(self)

    def alive(self) -> list[int]:
        """Return the numbers of the actors that have not ended."""
        return [actor.number for actor in self.actors if not actor.ended]

    def end(self) -> Hashable:
        """Return all that the end of a schedule can be judged by."""
        world = self.world
        return (
            frozenset(world.store.objects.items()),
            frozenset(world.replica.items()),
            tuple((type(actor.error), repr(actor.crash)) for actor in self.actors),
            frozenset(won.uuid for won in world.won),
            frozenset(world.unknown),
        )

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))


@dataclass
class _Node:
    """A place in a schedule.

    Attributes:
        sleep: Calls that other schedules tried at or before this place, and that nothing since depends on, by actor.
        todo: The actors that must go first from here, in some schedule.
        done: Those that did, with their calls.
    """

    sleep: dict[int, Step]
    chosen: int
    todo: set[int]
    done: dict[int, Step] = field(default_factory=dict)


@dataclass
class Search:
    """All schedules of a play but equivalent ones.

    Args:
        start: Returns the play before its first call.
        dependent: Returns whether the order of two calls matters.

    Attributes:
        played: How many schedules were played to their end.
        redundant: How many were ended, as they would have been equivalent to others.
    """

    start: Callable[[], Play]
    dependent: Callable[[Step, Step], bool] = dependent
    played: int = 0
    redundant: int = 0

    def __iter__(self) -> Iterator[Play]:
        nodes: list[_Node] = []
        while True:
            play = self.start()
            play.run(lambda play: self._choose(nodes, play))
            for node, step in zip(nodes, play.steps, strict=True):
                assert node.done[node.chosen] == step, f"a schedule is not repeated at {step}:\n{play}"
            if play.alive():
                self.redundant += 1
                for actor in play.actors:
                    actor.abandon()
            else:
                self.played += 1
                yield play
            self._note_races(nodes, play.steps)
            while nodes and not (rest := nodes[-1].todo - nodes[-1].done.keys() - nodes[-1].sleep.keys()):
                nodes.pop()
            if not nodes:
                return
            nodes[-1].chosen = min(rest)

    def _choose(self, nodes: list[_Node], play: Play) -> int | None:
        """Follow the nodes, and add nodes after the last one; return None if all that would follow is asleep."""
        depth = len(play.steps)
        if depth:
            nodes[depth - 1].done.setdefault(nodes[depth - 1].chosen, play.steps[-1])
        if depth == len(nodes):
            sleep = self._sleep_after(nodes)
            awake = [number for number in play.alive() if number not in sleep]
            if not awake:
                return None
            chosen = nodes[-1].chosen if nodes and nodes[-1].chosen in awake else awake[0]
            nodes.append(_Node(sleep, chosen, {chosen}))
        return nodes[depth].chosen

    def _sleep_after(self, nodes: list[_Node]) -> dict[int, Step]:
        if not nodes:
            return {}
        node = nodes[-1]
        step = node.done[node.chosen]
        tried = (node.sleep | node.done).items()
        return {number: other for number, other in tried if number != node.chosen and not self.dependent(step, other)}

    def _note_races(self, nodes: list[_Node], steps: list[Step]) -> None:
        """Let the other actor go first where a call and a later one of the other actor depend on each other alone."""
        seen = [-1, -1]  # by actor, the last call of the other one that must come before its own last call
        for place, step in enumerate(steps):
            others = (at for at in range(place - 1, seen[step.actor], -1) if steps[at].actor != step.actor)
            before = next((at for at in others if self.dependent(steps[at], step)), None)
            if before is not None:
                nodes[before].todo.add(step.actor)
                seen[step.actor] = before


class _Inline(Executor):
    """Threads that are none: an actor's calls come one after the other, in an order that is always the same."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
        future = Future[Any]()
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            future.set_exception(error)
        return future


@contextmanager
def repeatable() -> Iterator[None]:
    """Let each actor make the same calls and draw the same ids whenever it is played, and wait for no store."""
    ours = random.Random(0)

    def bits(number: int) -> int:
        return getattr(threading.current_thread(), "random", ours).getrandbits(number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=bits(128)))
        patch.setattr(create, "uuid4", uuid.uuid4)
        patch.setattr(secrets, "token_hex", lambda number: f"{bits(8 * number):0{2 * number}x}")
        patch.setattr(log, "_SETTLE_WAIT", 0)
        patch.setattr(bulk, "ThreadPoolExecutor", _Inline)
        yield


class SmallWorld(World):
    """A world in memory. First pages of listings end where they would at its start, as if pages were long.

    So a new object changes one page alone.
    """

    def __init__(self, clock: Clock, objects: dict[str, bytes] | None = None) -> None:
        super().__init__(MemoryStore(objects), clock)
        first = World(MemoryStore(dict(self.store.objects)), clock)
        self.page_end = cache(first.page_end)

    def copy(self) -> SmallWorld:
        return SmallWorld(Clock(self.clock.now), dict(self.store.objects)).after(self)
