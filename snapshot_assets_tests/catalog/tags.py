"""Helpers for the tests of pins."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.objects import NO_OBJECT, create_savepoint, delete_pin, write_pin
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import TagExistsError
from snapshot_assets.format import actions as act
from snapshot_assets.format.layout import is_probe
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.create import probe
from snapshot_assets_tests.catalog.execute import collect_garbage
from snapshot_assets_tests.waiting import until

if TYPE_CHECKING:
    from snapshot_assets_tests.catalog.conftest import Writer

NOW = timedelta(0)
SEAL = 5
"""The revision that `sealed` seals."""


class Changed:
    """A real store with some methods replaced."""

    def __init__(self, store, **methods):
        self._store = store
        self._methods = methods

    def __getattr__(self, name):
        return self._methods.get(name) or getattr(self._store, name)


def meeting(store, prefix, act):
    """Return the store of a writer to whom something happens right after it creates an object of a prefix."""

    def create(path, data):
        store.create(path, data)
        if path.startswith(prefix):
            act()

    return Changed(store, create=create)


class Killed(BaseException):
    """Ends a process at once."""


def sealed_by(writer: Writer) -> Writer:
    writer.fill()
    assert seal(writer.catalog).seal.revision == SEAL
    return writer


def reseal(writer: Writer, content: bytes = b"late rows") -> int:
    """Replace chunk 1 and seal again. Return the new seal's revision."""
    old = next(writer.catalog.state.live_files(1)).file.path
    writer.complete(1, writer.file(1, content), replaces=(old,))
    return seal(writer.catalog).seal.revision


def replaced(writer: Writer, chunk: int = 1) -> set[str]:
    """Replace a chunk, and return its old files."""
    old = tuple(writer.catalog.state.files.chunk(chunk))
    writer.complete(chunk, writer.file(chunk, b"new rows"), replaces=old)
    return set(old)


def sealed_four_times(writer: Writer) -> Writer:
    """Seal at 5, 7, 9 and 11, each with another file of chunk 1."""
    sealed_by(writer)
    assert [reseal(writer) for _ in range(3)] == [7, 9, 11]
    return writer


def faults(store):
    return {(fault.kind, fault.object) for fault in verify(store).faults}


def damage(store) -> dict[str, str]:
    """Return what is damaged: the objects' paths, and the messages."""
    return {fault.object: fault.message for fault in verify(store).faults if fault.is_damage}


def flip(store, path: str, place: int | None = -1) -> None:
    """Flip a bit of the byte at a place; without a place, append bytes."""
    data = bytearray(store.get(path))
    if place is None:
        data += b"more"
    else:
        data[place] ^= 1
    store.put(path, bytes(data))


def objects(store) -> set[str]:
    """Return the paths of all objects but probes."""
    return {info.path for info in store.list() if not is_probe(info.path)}


def tag_objects(store):
    return [info.path for info in store.list("tag/")]


def path_of(store, name="nightly"):
    return read_state(store).tags[name].pin.object.path


def save(catalog, **options):
    """Create a savepoint of the newest seal as if it were compacted."""
    return create_savepoint(catalog, catalog.refresh().data_revision, **options)


def delete_savepoint(catalog, number):
    """Delete a savepoint, and return whether there was one."""
    return delete_pin(catalog, catalog.refresh().pins.savepoints.get(number))


def save_older(catalog, revision, *, automatic=False):
    """Create a savepoint of a revision older than the newest seal, which no command does."""
    number = catalog.refresh().pins.last_savepoint + 1
    wanted = act.SavepointCreated(number, revision, NO_OBJECT, catalog.now(), automatic)
    created = write_pin(catalog, wanted, catalog.state.format_version)
    catalog.commit(lambda _: [created])


def race(*calls):
    """Run calls side by side and return what each returned or raised."""
    results = [None] * len(calls)

    def run(number):
        try:
            results[number] = calls[number]()
        except TagExistsError as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def dying(store, calls, after):
    """Return the store of a process that dies before or after a number of writing calls."""
    left = [calls]

    def method(name):
        def call(*arguments):
            left[0] -= 1
            if left[0] < 0 and not after:
                raise Killed
            result = getattr(store, name)(*arguments)
            if left[0] < 0:
                raise Killed
            return result

        return call

    return Changed(store, **{name: method(name) for name in ("create", "put", "delete")})


def readable(store) -> list[int]:
    return [seal.revision for seal in read_state(store).readable()]


def file_of(writer: Writer, revision: int, chunk: int = 1) -> str:
    [found] = writer.catalog.state.files.at(revision).chunk(chunk)
    return found


def wait_for_clock(store: ObjectStore, committed_at: datetime) -> None:
    """Wait until all of a location is older than its store's clock, which may move in steps.

    Args:
        store: The location.
        committed_at: When its last transaction was committed: many quick commits run ahead of the clock.
    """
    newest = max(committed_at, *(info.modified for info in store.list()))
    until(lambda: probe(store, single_writer=True).store_time > newest)


def collected(writer: Writer) -> set[str]:
    """Collect garbage and return the deleted data files."""
    wait_for_clock(writer.store, read_state(writer.store).committed_at)
    before = {info.path for info in writer.store.list("data/") if info.path.endswith(".parquet")}
    collect_garbage(Catalog.open_for_writing(writer.store), grace=NOW, unsafe=True)
    return before - {info.path for info in writer.store.list("data/")}
