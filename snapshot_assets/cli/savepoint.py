"""`snapshots savepoint list | delete`."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from snapshot_assets.catalog.pin_list import ListedSavepoint, list_savepoints
from snapshot_assets.catalog.savepoints import delete_savepoint
from snapshot_assets.catalog.versions import resolve_version
from snapshot_assets.cli.catalog.opening import open_catalog
from snapshot_assets.cli.pins import delete_pin, show_pins
from snapshot_assets.format.units import time_text

_COLUMNS = {"Savepoint": "id", "Revision": "revision", "Commit time": "commit_time", "Created": "created_at"}


def run(options: argparse.Namespace) -> int:
    """Do what the command says."""
    return {"list": _list, "delete": _delete}[options.action](options)


def _list(options: argparse.Namespace) -> int:
    catalog = open_catalog(options, writing=False)
    found = [savepoint_facts(each) for each in list_savepoints(catalog.state)]
    return show_pins(options, "savepoints", found, _COLUMNS)


def savepoint_facts(savepoint: ListedSavepoint) -> dict[str, Any]:
    """Return a savepoint as JSON holds it."""
    return {
        "id": savepoint.id,
        "revision": savepoint.revision,
        "commit_time": time_text(savepoint.committed_at),
        "created_at": time_text(savepoint.created_at),
        "automatic": savepoint.automatic,
        "previous": savepoint.previous,
        "next": savepoint.next,
    }


def _delete(options: argparse.Namespace) -> int:
    catalog = open_catalog(options, writing=not options.dry_run)
    resolve_version(f"savepoint:{options.id}", catalog.state)  # a wrong number is told with those that there are
    known = catalog.state.pins.savepoints[options.id]
    return delete_pin(options, catalog, known, partial(delete_savepoint, catalog, options.id), id=options.id)
