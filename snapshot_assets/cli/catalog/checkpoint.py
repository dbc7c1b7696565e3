"""`snapshots catalog checkpoint`."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from snapshot_assets.catalog.operations.checkpoint import checkpoint_head
from snapshot_assets.cli.catalog.opening import open_catalog
from snapshot_assets.cli.output import human_bytes, show, show_json


def run(options: argparse.Namespace) -> int:
    """Write the checkpoint of the newest revision."""
    catalog = open_catalog(options, writing=True)
    written = checkpoint_head(catalog)
    if options.json:
        show_json({"uri": catalog.store.uri} | asdict(written))
    else:
        verb = "written" if written.new else "there already"
        show(f"{written.path} is {verb}: revision {written.revision}, {human_bytes(written.bytes)}")
        for path in written.mended:
            show(f"{path} was damaged, and is written again")
    return 0
