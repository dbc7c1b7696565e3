"""Reads the files of a table side by side, without Spark, and yields their rows in the files' order.

Large Parquet files on this machine are read in shares of their row groups, so that all cores decode one file.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from itertools import islice
from queue import Full, Queue

import pyarrow as pa

from snapshot_assets.catalog.schemas import naming_lost_files
from snapshot_assets.catalog.verify.objects import HASHING_THREADS
from snapshot_assets.engine.files.read import check_hash
from snapshot_assets.engine.reading.planning import FilePart, FileRows
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.bulk import hashing_threads, threads
from snapshot_assets.storage.location import FILE, parse_location
from snapshot_assets.storage.retry import STOPS

_WAITING_BATCHES = 16  # of each share, about a row group: a thread that is ahead waits
_SHARE_BYTES = 4 << 20  # about a row group, packed
_POLL_SECONDS = 0.1
Hashed = set[tuple[object, ...]]
"""Files that were hashed: location, path, SHA-256, and the time of one on this machine."""


def read_parts(rows: FileRows, parts: Sequence[FilePart], workers: int | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files, of which threads read shares; see `files.read.read_batches` for errors.

    Memory is bounded: one share more than `workers` is open, each with about a row group.

    Args:
        rows: Reads one file.
        parts: The files.
        workers: Number of shares that are read ahead; by default, one for each core.
    """
    workers = workers or hashing_threads(rows.store, os.cpu_count() or 1)
    local = parse_location(rows.store.uri).scheme == FILE  # elsewhere each opening is several requests
    if workers > 1 and local and rows.schema.names:
        parts = [share for part in parts for share in _shares(part)]
    if len(parts) < 2 or workers < 2:
        yield from rows(parts)
        return
    todo, waiting, stop = iter(parts), deque[Queue[object]](), threading.Event()
    try:
        while True:
            for part in islice(todo, workers + 1 - len(waiting)):
                waiting.append(Queue(_WAITING_BATCHES))
                fill = partial(copy_context().run, _fill, rows, part, waiting[-1], stop)
                threading.Thread(target=fill).start()
            if not waiting:
                return
            yield from _drain(waiting.popleft())
    finally:
        stop.set()


def _shares(part: FilePart) -> list[FilePart]:
    shares = 1 if part.text else 1 + part.file.bytes // _SHARE_BYTES
    return [replace(part, share=(number, shares)) for number in range(shares)]


def unhashed(
    store: ObjectStore, parts: Iterable[FilePart], known: Hashed, *, local: bool
) -> dict[tuple[object, ...], FilePart]:
    """Return the files that are not known to have been hashed; a local one is another file once its time changed."""
    with naming_lost_files():
        found = {
            (store.uri, part.file.path, part.file.sha256, store.head(part.file.path).modified if local else None): part
            for part in parts
        }
    return {identity: part for identity, part in found.items() if identity not in known}


def check_parts(store: ObjectStore, parts: Iterable[FilePart], known: Hashed) -> None:
    """Hash files that are not known side by side, and compare them with the log; see `files.read.check_hash`."""
    if new := unhashed(store, parts, known, local=parse_location(store.uri).scheme == FILE):
        with threads(hashing_threads(store, HASHING_THREADS)) as pool:
            for _ in pool.map(lambda part: check_hash(store, part.file), new.values()):
                pass
        known.update(new)


def _fill(rows: FileRows, part: FilePart, queue: Queue[object], stop: threading.Event) -> None:
    """Put the batches of a share into a queue, then None, or the error that ended it."""
    STOPS.set((*STOPS.get(), stop))
    end: object = None
    try:
        for batch in rows([part]):
            if not _put(queue, batch, stop):
                return
    except BaseException as error:
        end = error
    _put(queue, end, stop)


def _put(queue: Queue[object], item: object, stop: threading.Event) -> bool:
    """Put an item into a queue as soon as there is room; returns False if the reader has stopped.

    So has one that was left open when the process ends, which waits for its threads.
    """
    while not stop.is_set() and threading.main_thread().is_alive():
        try:
            queue.put(item, timeout=_POLL_SECONDS)
        except Full:
            continue
        return True
    return False


def _drain(queue: Queue[object]) -> Iterator[pa.RecordBatch]:
    while isinstance(item := queue.get(), pa.RecordBatch):
        yield item
    if isinstance(item, BaseException):
        raise item
