"""Opens the location that a command names by URI, with the storage options that the configuration has for it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import timedelta
from functools import reduce

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.truncation import refuse_lost_log
from snapshot_assets.errors import NoSnapshotError
from snapshot_assets.format.units import parse_duration
from snapshot_assets.plan.configuration import load_configuration
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import Location, parse_location
from snapshot_assets.storage.open import open_store


def open_location(
    options: argparse.Namespace, uri: str, *, allow_root: bool = False
) -> tuple[ObjectStore, Callable[..., ObjectStore]]:
    """Return the store of a URI, and a function that opens the store of a folder below it by its path segments.

    Args:
        options: The command's options.
        uri: The location.
        allow_root: Accept a bucket's root, for listing only.

    Raises:
        LocationUriError: A snapshot's location cannot have this URI.
    """
    configuration = load_configuration(options.config, storage_only=True)
    location = parse_location(uri, allow_root=allow_root)
    storage = configuration.store_options_for(location)
    return open_store(location, storage), lambda *names: open_store(reduce(Location.child, names, location), storage)


def open_log(options: argparse.Namespace) -> ObjectStore:
    """Return the store of `--snapshot`, which has a log.

    Raises:
        LocationUriError: A snapshot's location cannot have this URI.
        NoSnapshotError: There is no log.
        LostLogError: There is no log, but there are objects that only a commit leads to.
    """
    return with_log(open_location(options, options.snapshot)[0])


def with_log(store: ObjectStore) -> ObjectStore:
    """Return a store if it has a log; see `open_log`."""
    if "transactions" not in store.folders():
        refuse_lost_log(store)
        raise NoSnapshotError(f"There is no snapshot at {store.uri}; check the URI.", uri=store.uri)
    return store


def open_catalog(options: argparse.Namespace, *, writing: bool) -> Catalog:
    """Return the catalog of `--snapshot`.

    Args:
        options: The call.
        writing: Whether to prove first that the location may be written.

    Raises:
        NoSnapshotError: There is no snapshot.
        LocationDeletedError: It was deleted.
    """
    return begun_catalog(open_log(options), writing=writing, single_writer=writing and options.single_writer)


def begun_catalog(store: ObjectStore, *, writing: bool, single_writer: bool) -> Catalog:
    """Return the catalog of a store that has a log; see `open_catalog`."""
    catalog = Catalog.open_for_writing(store, single_writer=single_writer) if writing else Catalog.open(store)
    catalog.require_snapshot()
    return catalog


def grace_of(options: argparse.Namespace) -> timedelta | None:
    """Return the period that `--grace` gives.

    Raises:
        PlanError: It is not a duration.
    """
    return None if options.grace is None else parse_duration(options.grace)
