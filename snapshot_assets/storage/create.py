"""Creating an object under a name that nobody else can want."""

from __future__ import annotations

from snapshot_assets.errors import ObjectExistsError, ObjectNotFoundError, StoreUnavailableError
from snapshot_assets.storage.base import ObjectStore


def create_own(store: ObjectStore, path: str, data: bytes) -> None:
    """Create an object; one with these very bytes was created by the store's client before a reply was lost.

    Raises:
        ObjectExistsError: There is an object of other bytes.
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
