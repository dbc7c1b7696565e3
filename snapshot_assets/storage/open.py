"""From a location to its objects."""

from __future__ import annotations

from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import FILE, Location
from snapshot_assets.storage.options import StoreOptions


def open_store(location: Location, options: StoreOptions | None = None) -> ObjectStore:
    """Return the objects of a location. Connects to nothing; the driver's library is imported here.

    Args:
        location: Where.
        options: Endpoint and credentials; what is left out is taken from the environment of this process now, so the
            store may be pickled to another.

    Returns:
        The store.

    Raises:
        PlanError: The options contradict each other, one has no effect there, or the extra for `oss` is not installed.
    """
    options = options or StoreOptions()
    if location.scheme == FILE:
        options.check(FILE)
        from snapshot_assets.storage.local import LocalStore

        return LocalStore(location)
    resolved = options.resolved(location.scheme)
    if location.scheme == "oss":
        from snapshot_assets.storage.oss import open_oss

        return open_oss(location, resolved)
    from snapshot_assets.storage.cloud import CloudStore

    return CloudStore(location, resolved)
