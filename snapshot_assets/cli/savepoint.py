"""`snapshots savepoint list | delete`."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from functools import partial

from snapshot_assets.catalog.pins.listing import list_savepoints
from snapshot_assets.catalog.pins.savepoints import delete_savepoint
from snapshot_assets.catalog.state.versions import resolve_version
from snapshot_assets.cli.catalog.describe import plain
from snapshot_assets.cli.catalog.opening import open_catalog
from snapshot_assets.cli.pins import delete_pin, show_pins

_COLUMNS = {
    "Savepoint": "savepoint_id",
    "Revision": "saved_snapshot_id",
    "Commit time": "commit_time",
    "Created": "create_time",
}


def run(options: argparse.Namespace) -> int:
    """Do what the command says."""
    return {"list": _list, "delete": _delete}[options.action](options)


def _list(options: argparse.Namespace) -> int:
    catalog = open_catalog(options, writing=False)
    return show_pins(options, "savepoints", [plain(asdict(each)) for each in list_savepoints(catalog.state)], _COLUMNS)


def _delete(options: argparse.Namespace) -> int:
    catalog = open_catalog(options, writing=not options.dry_run)
    resolve_version(f"savepoint:{options.id}", catalog.state)  # a wrong number is told with those that there are
    known = catalog.state.pins.savepoints[options.id]
    return delete_pin(options, catalog, known, partial(delete_savepoint, catalog, options.id), savepoint_id=options.id)
