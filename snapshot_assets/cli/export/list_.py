"""`snapshots export list`."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from snapshot_assets.catalog.listing import SnapshotSummary, list_snapshots
from snapshot_assets.cli.catalog.describe import plain
from snapshot_assets.cli.location import open_location
from snapshot_assets.cli.output import human_bytes, show_json, show_message, show_table
from snapshot_assets.format.units import time_text


def run(options: argparse.Namespace) -> int:
    """List snapshots; exit status 1 if one of them cannot be read."""
    store, open_below = open_location(options, options.location, allow_root=True)
    found = list_snapshots(store, open_below)
    if options.json:
        show_json([plain(asdict(summary)) for summary in found])
    elif found:
        show_table(("Location", "Name", "Created", "Chunks", "Rows", "Size", "Status"), [_row(item) for item in found])
    else:
        show_message(f"No snapshots at {store.uri}.")
    for summary in found:
        if summary.error:
            show_message(f"{summary.uri}: {summary.error}")
    return 1 if any(summary.status == "unreadable" for summary in found) else 0


def _row(summary: SnapshotSummary) -> tuple[object, ...]:
    return (
        summary.uri,
        summary.name,
        time_text(summary.created_at) if summary.created_at else "",
        f"{summary.chunks_done}/{summary.chunks}",
        summary.rows,
        human_bytes(summary.bytes),
        summary.status,
    )
