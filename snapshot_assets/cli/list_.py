"""`snapshots export list`."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from snapshot_assets.catalog.listing import SnapshotSummary, TagSummary, list_snapshots
from snapshot_assets.cli.location import open_location
from snapshot_assets.cli.output import human_bytes, say, show_json, show_table
from snapshot_assets.format.units import duration_text, time_text


def run(options: argparse.Namespace) -> int:
    """List snapshots; exit status 1 if one of them cannot be read."""
    store, open_below = open_location(options, options.location, allow_root=True)
    found = list_snapshots(store, open_below)
    if options.json:
        show_json([_as_json(summary) for summary in found])
    elif found:
        show_table(("Location", "Name", "Created", "Chunks", "Rows", "Size", "Status"), [_row(item) for item in found])
    else:
        say(f"No snapshots at {store.uri}.")
    for summary in found:
        if summary.error:
            say(f"{summary.uri}: {summary.error}")
    return 1 if any(summary.status == "unreadable" for summary in found) else 0


def _as_json(summary: SnapshotSummary) -> dict[str, object]:
    created = summary.created_at
    return asdict(summary) | {
        "created_at": time_text(created) if created else None,
        "tags": [_tag(tag) for tag in summary.tags],
        "savepoints": [asdict(each) | {"created_at": time_text(each.created_at)} for each in summary.savepoints],
    }


def _tag(tag: TagSummary) -> dict[str, object]:
    return asdict(tag) | {"created_at": time_text(tag.created_at), "ttl": duration_text(tag.ttl) if tag.ttl else None}


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
