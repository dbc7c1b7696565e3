"""Keeps a replication at work from writing into a location that is no longer its replica: one that was promoted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from snapshot_assets.catalog.replica import Replica, promotion_text, read_marker
from snapshot_assets.errors import ReplicaError
from snapshot_assets.format.layout import checkpointed_revision, is_receipt
from snapshot_assets.storage.base import ObjectStore, ObjectWriter


def is_evidence(path: str) -> bool:
    """Return whether an object of a path names the revision that it was written for, which a log must have."""
    return is_receipt(path) or path.startswith(("tag/", "savepoint/"))


class GuardedStore:
    """A replica's store that reads the marker again before each write and each deletion.

    A promotion replaces the marker first. What is being sent at that moment may still arrive; the promotion's own
    transaction then keeps transactions of the source out. All other methods are the store's own.

    Args:
        store: The replica's store.
        marker: The replica's marker, as it was when the replication began.
    """

    def __init__(self, store: ObjectStore, marker: Replica) -> None:
        self._store, self._marker = store, marker

    def __getattr__(self, name: str) -> Any:
        if name in ("_store", "_marker"):  # asked while it is unpickled
            raise AttributeError(name)
        return getattr(self._store, name)

    def check(self) -> Replica:
        """Return the marker as it is now.

        Raises:
            ReplicaError: It is gone, is being deleted by a promotion, or is another replica's.
        """
        found = read_marker(self._store)
        if found is None or not self._marker.is_same(found):
            raise ReplicaError(
                f"{self._store.uri} is no longer the replica that this replication began to write to: it was promoted "
                "or replaced meanwhile. Nothing more is written to it.",
                uri=self._store.uri,
            )
        if found.promoting:
            raise ReplicaError(promotion_text(self._store.uri), uri=self._store.uri)
        return found

    def put(self, path: str, data: bytes) -> None:
        """Write an object; see `ObjectStore.put`."""
        self.check()
        self._store.put(path, data)

    def create(self, path: str, data: bytes) -> None:
        """Write an object if none exists; see `ObjectStore.create`."""
        self.check()
        self._store.create(path, data)
        if checkpointed_revision(path) is not None or is_evidence(path):  # a promoted location would look damaged
            try:
                self.check()
            except ReplicaError:
                self._store.delete(path)
                raise

    @contextmanager
    def open_writer(self, path: str) -> Iterator[ObjectWriter]:
        """Stream an object; see `ObjectStore.open_writer`."""
        self.check()
        with self._store.open_writer(path) as writer:
            yield writer
            self.check()  # an error aborts the object

    def delete(self, path: str) -> None:
        """Delete an object; see `ObjectStore.delete`."""
        self.check()
        self._store.delete(path)
