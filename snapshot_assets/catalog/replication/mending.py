"""Finds the transactions of a replica's log that are damaged and that its source has whole."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from snapshot_assets.catalog.log.replay import read_entries
from snapshot_assets.catalog.log.store import list_log
from snapshot_assets.catalog.state.chain import LogEntry
from snapshot_assets.errors import DamageError, MisnamedError
from snapshot_assets.format.layout import transaction_path
from snapshot_assets.storage.base import ObjectInfo, ObjectStore


def damaged_transactions(source: ObjectStore, target: ObjectStore) -> tuple[str, ...]:
    """Return the paths of a replica's transactions that are damaged, and whole in its source.

    One that is whole under the name of another revision was written by something else.
    """
    own = read_entries(target, list_log(target).transactions)
    faults = {revision: entry for revision, entry in own if isinstance(entry, DamageError)}
    damaged = {revision for revision, fault in faults.items() if not isinstance(fault, MisnamedError)}
    there = sorted(damaged.intersection(list_log(source).transactions))
    return tuple(transaction_path(each) for each, entry in read_entries(source, there) if isinstance(entry, LogEntry))


class MendedStore:
    """A replica's store with some objects as its source has them. All other methods are the replica's own.

    Args:
        target: The replica's store.
        source: The source's store.
        paths: Paths of the objects that are read from the source.
    """

    def __init__(self, target: ObjectStore, source: ObjectStore, paths: Collection[str]) -> None:
        self._target, self._source, self._paths = target, source, paths

    def __getattr__(self, name: str) -> Any:
        if name in ("_target", "_source", "_paths"):  # asked while it is unpickled
            raise AttributeError(name)
        return getattr(self._target, name)

    def _having(self, path: str) -> ObjectStore:
        return self._source if path in self._paths else self._target

    def get(self, path: str, *, limit: int | None = None) -> bytes:
        """Return an object's bytes; see `ObjectStore.get`."""
        return self._having(path).get(path, limit=limit)

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """Return a part of an object; see `ObjectStore.get_range`."""
        return self._having(path).get_range(path, start, length)

    def head(self, path: str) -> ObjectInfo:
        """Return an object's size and time; see `ObjectStore.head`."""
        return self._having(path).head(path)
