"""Actors whose storage calls a scheduler interleaves, on a simulated clock.

Each actor is a thread that waits before every storage call until the scheduler continues it. Only one thread runs at a
time, so a schedule always gives the same run, and hypothesis can shrink it. A listing is two calls, like several pages
of a cloud store. Objects are real; their times of writing come from the simulated clock.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.errors import OutcomeUnknownError, SnapshotError
from snapshot_assets.format import actions as act
from snapshot_assets.storage.base import ObjectInfo, ObjectStore
from snapshot_assets_tests.faults.operations import store_at
from snapshot_assets_tests.faults.store import Dropped, kind_of_object


@dataclass
class Clock:
    """The present of all actors and of the store."""

    now: datetime

    def __call__(self) -> datetime:
        return self.now


class World:
    """A location, its clock, when each object was written, and all commits and attempted commits.

    Attributes:
        won: Transactions whose commit was reported as won.
        sent: By commit, the ids of the transactions that it sent.
        unknown: Those of commits that ended without learning what became of them.
        applied: By file, the tombstones that its writer knew.
        replica: Objects of the location's replica, in worlds that have one.
    """

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self.store, self.clock = store, clock
        self.written: dict[str, datetime] = {}
        self.won: list[act.Transaction] = []
        self.sent: list[list[str]] = []
        self.unknown: set[str] = set()
        self.applied: dict[str, set[int]] = {}
        self.replica: dict[str, bytes] = {}

    def page_end(self, prefix: str) -> str:
        """Return the last path on the first page of a listing."""
        paths = [info.path for info in self.store.list(prefix)]
        return paths[(len(paths) - 1) // 2] if paths else ""

    def copy(self, folder: Path) -> World:
        """Return an equal world in another folder."""
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(Path(self.store._root), folder)
        copy = World(store_at(folder), Clock(self.clock.now))
        return copy.after(self)

    def after(self, other: World) -> World:
        """Take over what was written and committed in another world, and return this one."""
        self.written, self.won, self.sent = dict(other.written), list(other.won), list(other.sent)
        self.applied, self.replica = dict(other.applied), other.replica
        return self


class SeenStore:
    """A world's store as one actor sees it.

    Args:
        pause: Takes operation and path of each call that reaches the store, before it does.
    """

    def __init__(self, world: World, pause: Callable[[str, str], None] = lambda operation, path: None) -> None:
        self.world, self.pause = world, pause
        self.uri = world.store.uri

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Pass `get`, `get_range`, `open_reader` and `delete` to the real store after a pause."""
        call = getattr(self.world.store, name)

        def paused(path: str, *arguments: Any, **options: Any) -> Any:
            self.pause(name, path)
            return call(path, *arguments, **options)

        return paused

    def put(self, path: str, data: bytes) -> None:
        self.pause("put", path)
        self.world.store.put(path, data)
        self.world.written[path] = self.world.clock.now

    def create(self, path: str, data: bytes) -> None:
        self.pause("create", path)
        self.world.store.create(path, data)
        self.world.written[path] = self.world.clock.now

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        self.pause("list", prefix)
        end = self.world.page_end(prefix)
        page = [self._dated(info) for info in self.world.store.list(prefix) if info.path <= end]
        self.pause("list on", prefix)
        return iter(page + [self._dated(info) for info in self.world.store.list(prefix) if info.path > end])

    def temporaries(self) -> Iterator[ObjectInfo]:
        return self.world.store.temporaries()

    def head(self, path: str) -> ObjectInfo:
        self.pause("head", path)
        return self._dated(self.world.store.head(path))

    def _dated(self, info: ObjectInfo) -> ObjectInfo:
        return replace(info, modified=self.world.written[info.path])


class Recorded(Catalog):
    """A catalog that records its attempted commits and those reported as won."""

    def commit(self, prepare):
        world, self._sent = self.store.world, []
        world.sent.append(self._sent)
        try:
            revision = super().commit(prepare)
        except (OutcomeUnknownError, Dropped):
            world.unknown.update(self._sent)
            raise
        if revision is not None:
            world.won.append(self._last)
        return revision

    def _transaction(self, actions):
        self._last = super()._transaction(actions)
        self._sent.append(self._last.uuid)
        return self._last


class Actor(threading.Thread):
    """A writer or reader of the world's location.

    Attributes:
        calls: The calls that it came to: operation and kind of object.
        waiting_since: When it came to the call that it waits at; None before its first one.
        error: What it was refused with.
        crash: What it must not end with.
    """

    def __init__(self, world: World, name: str, work: Callable[[Actor], None]) -> None:
        super().__init__(name=name, daemon=True)
        self.world, self.work = world, work
        self.calls: list[str] = []
        self.waiting_since: datetime | None = None
        self.ended = False
        self.error: SnapshotError | None = None
        self.crash: BaseException | None = None
        self._go, self._stands = threading.Semaphore(0), threading.Semaphore(0)
        self._free = False
        self.store = SeenStore(world, self._pause)

    def open(self) -> Recorded:
        """Open the location without waiting, because opening refuses a clock that moves while it probes the store."""
        with self._unhindered():
            return Recorded.open_for_writing(self.store, clock=self.world.clock)

    @contextmanager
    def _unhindered(self) -> Iterator[None]:
        self._free = True
        yield
        self._free = False

    def _pause(self, operation: str, path: str) -> None:
        # An actor waits for the threads that it starts, so these run within its turn.
        if self._free or threading.current_thread() is not self:
            return
        self.calls.append(f"{operation} {kind_of_object(path)}")
        self.waiting_since = self.world.clock.now
        self._stands.release()
        self._go.acquire()

    def run(self) -> None:
        self._go.acquire()
        try:
            self.work(self)
        except SnapshotError as error:
            self.error = error
        except BaseException as error:
            self.crash = error
        self.ended = True
        self._stands.release()

    def step(self) -> None:
        """Let the actor make the call that it waits for, and continue to the next call or to its end."""
        self._go.release()
        self._stands.acquire()


@dataclass(frozen=True)
class Turn:
    """A piece of a schedule.

    Attributes:
        actor: Who goes on; counted among those that have not ended.
        calls: Number of storage calls.
        pause: How far the clock moves before them.
    """

    actor: int
    calls: int
    pause: timedelta


def play(world: World, actors: Sequence[Actor], schedule: Sequence[Turn], patience: timedelta) -> None:
    """Continue actors in the order of a schedule, and then one after the other, until all have ended.

    Args:
        world: Where they work.
        actors: None of them started.
        schedule: Who moves when.
        patience: Longest time that a process waits before one storage call; the clock moves no further.
    """
    for actor in actors:
        actor.start()
    for turn in schedule:
        alive = [actor for actor in actors if not actor.ended]
        if not alive:
            return
        waits = [actor.waiting_since for actor in alive if actor.waiting_since is not None]
        if all(world.clock.now + turn.pause - since <= patience for since in waits):
            world.clock.now += turn.pause
        _advance(alive[turn.actor % len(alive)], turn.calls)
    for actor in actors:
        while not actor.ended:
            actor.step()


def _advance(actor: Actor, calls: int) -> None:
    for _ in range(calls):
        if actor.ended:
            return
        actor.step()
