"""Reads many objects of a store: side by side where each takes a request, one after the other on a local disk."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import FILE
from snapshot_assets.storage.retry import STOPS

_T = TypeVar("_T")
_R = TypeVar("_R")

_REQUESTS = 16


def in_parallel(store: ObjectStore, read: Callable[[_T], _R], values: Iterable[_T]) -> Iterator[_R]:
    """Yield what a function that reads from a store returns for each value, in their order.

    On a local disk, to start the threads takes longer than to read small objects without them.
    """
    if _is_local(store):
        yield from map(read, values)
        return
    with threads(_REQUESTS) as pool:
        yield from pool.map(read, values)


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
