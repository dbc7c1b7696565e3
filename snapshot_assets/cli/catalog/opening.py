"""Opening the catalog of the location that a command names."""

from __future__ import annotations

import argparse
from datetime import timedelta

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.cli.location import open_log
from snapshot_assets.format.units import parse_duration
from snapshot_assets.storage.base import ObjectStore


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
        PlanError: It is no duration.
    """
    return None if options.grace is None else parse_duration(options.grace)
