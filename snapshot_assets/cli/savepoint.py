"""`snapshots savepoint list | delete`."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from snapshot_assets.catalog.pins.listing import list_savepoints
from snapshot_assets.catalog.state.versions import resolve_version
from snapshot_assets.cli.catalog.describe import plain
from snapshot_assets.cli.location import open_catalog
from snapshot_assets.cli.pins import delete_pin, show_pins

_COLUMNS = {
    "Savepoint": "savepoint_id",
    "Revision": "saved_snapshot_id",
    "Commit time": "commit_time",
    "Created": "create_time",
}


def list_(options: argparse.Namespace) -> int:
    """List the savepoints."""
    catalog = open_catalog(options, writing=False)
    return show_pins(options, "savepoints", [plain(asdict(each)) for each in list_savepoints(catalog.state)], _COLUMNS)


def delete(options: argparse.Namespace) -> int:
    """Delete a savepoint; ask first if a revision becomes unreadable."""
    catalog = open_catalog(options, writing=not options.dry_run)
    resolve_version(f"savepoint:{options.id}", catalog.state)  # its error names the savepoints that there are
    return delete_pin(options, catalog, catalog.state.pins.savepoints[options.id], savepoint_id=options.id)
