"""Many objects of a location: listed, though a listing may miss some, and read side by side."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from snapshot_assets.errors import ObjectNotFoundError
from snapshot_assets.storage.base import ObjectInfo, ObjectStore
from snapshot_assets.storage.location import FILE
from snapshot_assets.storage.retry import STOPS

_T = TypeVar("_T")
_R = TypeVar("_R")

_REQUESTS = 16


def in_parallel(store: ObjectStore, read: Callable[[_T], _R], values: Iterable[_T]) -> Iterator[_R]:
    """Yield what a function that reads from a store returns for each value, in their order.

    Few results wait at a time. On a local disk, to start the threads takes longer than to read small objects without
    them.
    """
    if _is_local(store):
        yield from map(read, values)
        return
    ahead = deque[Future[_R]]()
    with threads(_REQUESTS) as pool:
        for value in values:
            ahead.append(pool.submit(read, value))
            if len(ahead) > _REQUESTS:
                yield ahead.popleft().result()
        yield from (each.result() for each in ahead)


@contextmanager
def threads(number: int) -> Iterator[ThreadPoolExecutor]:
    """Return threads that read from stores. An error, or the end of a generator that uses them, ends their waits."""
    stop = threading.Event()
    with ThreadPoolExecutor(number, initializer=STOPS.set, initargs=((*STOPS.get(), stop),)) as pool:
        try:
            yield pool
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def hashing_threads(store: ObjectStore, cores: int) -> int:
    """Return how many whole objects of a store are read at a time: over a network each takes 24 MiB of memory."""
    return cores if _is_local(store) else min(cores, _REQUESTS)


def _is_local(store: ObjectStore) -> bool:
    return store.uri.startswith(f"{FILE}:")


class Listed(Mapping[str, ObjectInfo]):
    """The objects of a location by path.

    A listing of a folder that others write to may miss an object. So a lookup of an unlisted path asks the store.
    Iteration yields the listed objects, and those that lookups added. `prefixes` are what is listed, as
    `ObjectStore.list` takes it; none for all objects.
    """

    def __init__(self, store: ObjectStore, *prefixes: str) -> None:
        self._store = store
        self._known = {info.path: info for prefix in prefixes or ("",) for info in store.list(prefix)}

    def __getitem__(self, path: str) -> ObjectInfo:
        """Return an object's size and time; `KeyError` if it is missing."""
        if path not in self._known:
            try:
                self._known[path] = self._store.head(path)
            except ObjectNotFoundError:
                raise KeyError(path) from None
        return self._known[path]

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._known))

    def __len__(self) -> int:
        return len(self._known)

    def missing(self, paths: Iterable[str]) -> set[str]:
        """Return those of the paths that have no object."""
        unlisted = sorted(set(paths) - self._known.keys())
        if not unlisted:
            return set()
        exists = in_parallel(self._store, self.__contains__, unlisted)
        return {path for path, present in zip(unlisted, exists, strict=True) if not present}
