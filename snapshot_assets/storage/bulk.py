"""Many objects of a location: listed, though a listing may miss some, and read side by side."""

from __future__ import annotations

import threading
from array import array
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from itertools import groupby
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


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_CACHED_FOLDERS = 16


# The names in a folder, each with a slash behind it, their sizes, and their times in microseconds since 1970: a million
# objects as values would take 300 MB.
_Folder = tuple[list[str], "array[int]", "array[int]"]


class Listed(Mapping[str, ObjectInfo]):
    """The objects of a location by path.

    A listing of a folder that others write to may miss an object. So a lookup of an unlisted path asks the store.
    Iteration yields the listed objects by folder, then those that lookups added. `prefixes` are what is listed, as
    `ObjectStore.list` takes it; none for all objects.
    """

    def __init__(self, store: ObjectStore, *prefixes: str) -> None:
        self._store = store
        self._folders = defaultdict[str, _Folder](lambda: ([], array("q"), array("q")))
        self._added: dict[str, ObjectInfo] = {}
        self._folder = lru_cache(_CACHED_FOLDERS)(partial(_read_folder, self._folders))  # not `self`, to be freed
        infos = (info for prefix in prefixes or ("",) for info in store.list(prefix))
        for path, some in groupby(infos, lambda info: info.path.rpartition("/")[0]):
            names, sizes, times = self._folders[path]
            for info in some:
                names.append(info.path.rpartition("/")[2] + "/")
                sizes.append(info.size)
                times.append((info.modified - _EPOCH) // _MICROSECOND)
            names[:] = ["".join(names)]

    def __getitem__(self, path: str) -> ObjectInfo:
        """Return an object's size and time; `KeyError` if it is missing."""
        found = self._folder(path.rpartition("/")[0]).get(path) or self._added.get(path)
        if found is None:
            try:
                found = self._added[path] = self._store.head(path)
            except ObjectNotFoundError:
                raise KeyError(path) from None
        return found

    def __iter__(self) -> Iterator[str]:
        for path in self._folders:
            yield from _paths(path, self._folders[path][0])
        yield from tuple(self._added)

    def __len__(self) -> int:
        return sum(len(sizes) for _, sizes, _ in self._folders.values()) + len(self._added)

    def missing(self, paths: Iterable[str]) -> set[str]:
        """Return those of the paths that have no object."""
        unlisted = [path for path in sorted({*paths}) if path not in self._folder(path.rpartition("/")[0])]
        if not unlisted:
            return set()
        exists = in_parallel(self._store, self.__contains__, unlisted)
        return {path for path, present in zip(unlisted, exists, strict=True) if not present}


def _read_folder(folders: Mapping[str, _Folder], path: str) -> dict[str, ObjectInfo]:
    names, sizes, times = folders.get(path, ([], (), ()))
    found = zip(_paths(path, names), sizes, times, strict=True)
    return {name: ObjectInfo(name, size, _EPOCH + at * _MICROSECOND) for name, size, at in found}


def _paths(path: str, names: list[str]) -> Iterator[str]:
    return (f"{path}/{name}" if path else name for name in "".join(names).split("/")[:-1])
