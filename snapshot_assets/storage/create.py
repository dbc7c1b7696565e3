"""Creates with a certain outcome: also after a lost reply, and on stores without conditional creates."""

from __future__ import annotations

from typing import Any

from snapshot_assets.errors import ObjectExistsError, ObjectNotFoundError, StoreUnavailableError
from snapshot_assets.storage.base import ObjectStore


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
            if store.head(path).size != len(data) or store.get(path) != data:
                raise
        except ObjectNotFoundError as gone:
            raise StoreUnavailableError(
                f"{store.uri} refused to create {path} because it exists, but has no such object; run again.",
                uri=store.uri,
            ) from gone


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
