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
from snapshot_assets.plan.read_configuration import load_configuration
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
    """
    configuration = load_configuration(options.config, storage_only=True)
    location = parse_location(uri, allow_root=allow_root)
    storage = configuration.store_options_for(location)
    return open_store(location, storage), lambda *names: open_store(reduce(Location.child, names, location), storage)


def open_log(options: argparse.Namespace, store: ObjectStore | None = None) -> ObjectStore:
    """Return a store that has a log: that of `--snapshot` by default.

    Raises:
        NoSnapshotError: There is no log.
        LostLogError: There is no log, but there are objects that only a commit leads to.
    """
    store = store or open_location(options, options.snapshot)[0]
    if "transactions" not in store.folders():
        refuse_lost_log(store)
        raise NoSnapshotError(f"There is no snapshot at {store.uri}; check the URI.", uri=store.uri)
    return store


def open_catalog(
    options: argparse.Namespace, *, writing: bool, store: ObjectStore | None = None, single_writer: bool = False
) -> Catalog:
    """Return the catalog of `--snapshot`, or of a given store.

    Args:
        options: The call.
        writing: Whether to prove first that the location may be written.
        store: The location.
        single_writer: Whether no other writer uses the location, as `--single-writer` promises.
    """
    store = open_log(options, store)
    if writing:
        catalog = Catalog.open_for_writing(store, single_writer=single_writer or options.single_writer)
    else:
        catalog = Catalog.open(store)
    catalog.require_snapshot()
    return catalog


def duration_of(text: str | None) -> timedelta | None:
    """Parse the duration of an option; None if it is not given."""
    return None if text is None else parse_duration(text)
