"""Creates with a certain outcome: also after a lost reply, and on stores without conditional creates."""

from __future__ import annotations

from typing import Any, Protocol

from snapshot_assets.errors import ObjectExistsError, ObjectNotFoundError, StoreUnavailableError
from snapshot_assets.storage.base import ObjectInfo, ObjectStore


class Readable(Protocol):
    """What `holds` needs of a store."""

    def head(self, path: str) -> ObjectInfo:
        """See `ObjectStore.head`."""

    def get(self, path: str) -> bytes:
        """See `ObjectStore.get`."""


def create_own(store: ObjectStore, path: str, data: bytes) -> None:
    """Create an object at a path that no other writer uses.

    An object with the same bytes counts as created: the store created it, and its reply was lost.

    Raises:
        ObjectExistsError: An object with other bytes exists.
        StoreUnavailableError: The store refused the create because of an object that it does not have.
    """
    try:
        store.create(path, data)
    except ObjectExistsError:
        try:
            if not holds(store, path, data):
                raise
        except ObjectNotFoundError as gone:
            raise StoreUnavailableError(
                f"{store.uri} refused to create {path} because it exists, but has no such object; run again.",
                uri=store.uri,
            ) from gone


def holds(store: Readable, path: str, data: bytes) -> bool:
    """Return whether an object has these bytes; raises `ObjectNotFoundError` if there is none."""
    return store.head(path).size == len(data) and store.get(path) == data


class SingleWriterStore:
    """A store whose `create` looks for the object and then puts it, for a location with a single writer.

    Two writers at once could both succeed. All other methods are the store's own.

    Args:
        store: A store without conditional creates.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        if name == "_store":  # asked while it is unpickled
            raise AttributeError(name)
        return getattr(self._store, name)

    def create(self, path: str, data: bytes) -> None:
        """Write an object if none exists; see `ObjectStore.create`."""
        try:
            self._store.head(path)
        except ObjectNotFoundError:
            self._store.put(path, data)
            return
        raise ObjectExistsError(f"{path} in {self._store.uri} exists already.", object=path)
