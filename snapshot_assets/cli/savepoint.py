"""`snapshots savepoint list | delete`."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from snapshot_assets.catalog.pin_list import list_savepoints
from snapshot_assets.catalog.savepoints import delete_savepoint
from snapshot_assets.catalog.versions import resolve_version
from snapshot_assets.cli.catalog.describe import plain
from snapshot_assets.cli.catalog.opening import open_catalog
from snapshot_assets.cli.freed import would_free
from snapshot_assets.cli.output import say, show, show_json, show_table


def run(options: argparse.Namespace) -> int:
    """Do what the command says."""
    return {"list": _list, "delete": _delete}[options.action](options)


def _list(options: argparse.Namespace) -> int:
    catalog = open_catalog(options, writing=False)
    found = [plain(asdict(each)) for each in list_savepoints(catalog.state)]
    if options.json:
        show_json(found)
    elif found:
        names = ("savepoint_id", "saved_snapshot_id", "commit_time", "create_time")
        headers = ("Savepoint", "Revision", "Commit time", "Created")
        show_table(headers, [tuple(each[name] for name in names) for each in found])
    else:
        say(f"No savepoints at {catalog.store.uri}.")
    return 0


def _delete(options: argparse.Namespace) -> int:
    catalog = open_catalog(options, writing=not options.dry_run)
    resolve_version(f"savepoint:{options.id}", catalog.state)  # a wrong number is told with those that there are
    if options.dry_run:
        return would_free(options, catalog, catalog.state.pins.savepoints[options.id], {"id": options.id})
    deleted = delete_savepoint(catalog, options.id)  # False if another was quicker
    if options.json:
        show_json({"uri": catalog.store.uri, "id": options.id, "deleted": deleted})
    else:
        show(f"{catalog.store.uri}: savepoint {options.id} is deleted")
    return 0
