"""A store whose creates are not conditional, for one who has promised to be its only writer."""

from __future__ import annotations

from typing import Any

from snapshot_assets.errors import ObjectExistsError, ObjectNotFoundError
from snapshot_assets.storage.base import ObjectStore


class SingleWriterStore:
    """Makes `create` of a look and a put: two writers at once could both succeed, so there must be only one.

    Everything else is the store's own.

    Args:
        store: A store that accepts a second create, or refuses all.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        if name == "_store":  # asked while it is unpickled
            raise AttributeError(name)
        return getattr(self._store, name)

    def create(self, path: str, data: bytes) -> None:
        """Write an object if none is seen there; see `ObjectStore.create`."""
        try:
            self._store.head(path)
        except ObjectNotFoundError:
            self._store.put(path, data)
            return
        raise ObjectExistsError(f"{path} in {self._store.uri} exists already.", object=path)
