"""Opening a location that a command names by URI, with the configuration's storage options where it knows it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import reduce

from snapshot_assets.catalog.log.truncation import refuse_lost_log
from snapshot_assets.errors import NoSnapshotError
from snapshot_assets.plan.configuration import load_configuration
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import Location, parse_location
from snapshot_assets.storage.open import open_store


def open_location(
    options: argparse.Namespace, uri: str, *, allow_root: bool = False
) -> tuple[ObjectStore, Callable[..., ObjectStore]]:
    """Return the store of a URI, and a function that opens a store below it by the names on the way to it.

    Args:
        options: The command's options.
        uri: The location.
        allow_root: Accept a bucket's root, for listing only.

    Raises:
        LocationUriError: The URI is not one that snapshots may live at.
    """
    configuration = load_configuration(options.config, storage_only=True)
    location = parse_location(uri, allow_root=allow_root)
    storage = configuration.store_options_for(location)
    return open_store(location, storage), lambda *names: open_store(reduce(Location.child, names, location), storage)


def open_log(options: argparse.Namespace) -> ObjectStore:
    """Return the store of `--snapshot`, which has a log.

    Raises:
        LocationUriError: The URI is not one that snapshots may live at.
        NoSnapshotError: There is no log.
        LostLogError: There is none, but what only follows one.
    """
    return with_log(open_location(options, options.snapshot)[0])


def with_log(store: ObjectStore) -> ObjectStore:
    """Return a store if it has a log; see `open_log`."""
    if "transactions" not in store.folders():
        refuse_lost_log(store)
        raise NoSnapshotError(f"There is no snapshot at {store.uri}; check the URI.", uri=store.uri)
    return store
