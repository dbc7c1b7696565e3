"""`snapshots catalog upgrade`."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from snapshot_assets.catalog.operations.upgrade import upgrade
from snapshot_assets.cli.catalog.opening import open_catalog
from snapshot_assets.cli.output import show, show_json


def run(options: argparse.Namespace) -> int:
    """Raise the format version of a location."""
    catalog = open_catalog(options, writing=not options.dry_run)
    done = upgrade(catalog, options.to, dry_run=options.dry_run)
    if options.json:
        show_json({"uri": catalog.store.uri, "dry_run": options.dry_run} | asdict(done))
    elif done.previous == done.version:
        show(f"{catalog.store.uri} has format version {done.version}; nothing to do")
    elif done.revision is None:
        show(f"{catalog.store.uri} would be upgraded from format version {done.previous} to {done.version}")
    else:
        show(
            f"{catalog.store.uri} is upgraded from format version {done.previous} to {done.version} as of revision "
            f"{done.revision}; older code reads it no longer"
        )
    return 0
