"""Opens the store of a location."""

from __future__ import annotations

import os
from collections.abc import Mapping

from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import FILE, Location
from snapshot_assets.storage.options import StoreOptions


def open_store(
    location: Location, options: StoreOptions | None = None, environment: Mapping[str, str] = os.environ
) -> ObjectStore:
    """Return the store of a location. Connects to nothing, but imports the driver's library.

    Args:
        location: The location.
        options: Endpoint and credentials. The rest is taken from the environment now, so that the store may be
            pickled to another process.
        environment: Variables that complete the options; by default those of this process.

    Raises:
        PlanError: The options contradict each other, one has no effect there, or the extra for `oss` is not installed.
    """
    options = options or StoreOptions()
    if location.scheme == FILE:
        options.check(FILE)
        from snapshot_assets.storage.local import LocalStore

        return LocalStore(location)
    resolved = options.resolved(location.scheme, environment)
    if location.scheme == "oss":
        from snapshot_assets.storage.oss import open_oss

        return open_oss(location, resolved)
    from snapshot_assets.storage.cloud import CloudStore

    return CloudStore(location, resolved)
