"""`snapshots export delete`."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from snapshot_assets.catalog.listing import summarize
from snapshot_assets.catalog.operations.delete_snapshot import delete_snapshot
from snapshot_assets.catalog.rules import refuse_pinned
from snapshot_assets.cli.confirm import confirmed
from snapshot_assets.cli.location import open_location
from snapshot_assets.cli.output import counted, human_bytes, show, show_json, show_message
from snapshot_assets.errors import NoSnapshotError


def run(options: argparse.Namespace) -> int:
    """Delete a snapshot after the confirmation `yes`; exit status 1 without it.

    Raises:
        PinnedError: Tags or savepoints pin the snapshot, and `--with-tags` is not given.
    """
    store, _ = open_location(options, options.snapshot)
    if "transactions" not in store.folders():
        raise NoSnapshotError(f"There is no snapshot at {store.uri}; nothing was deleted.", uri=store.uri)
    summary = summarize(store)
    show_message(
        f"{summary.uri}: {summary.name or '(no name)'}, {summary.status}, "
        f"{summary.chunks_done}/{summary.chunks} chunks, {summary.rows} rows, {human_bytes(summary.bytes)}"
    )
    if not options.with_tags:
        # before the confirmation; the deletion checks again
        refuse_pinned(sorted(tag.tag_name for tag in summary.tags), (each.savepoint_id for each in summary.savepoints))
    if not options.yes and not confirmed("Everything the snapshot wrote will be removed."):
        show_message("Nothing was deleted.")
        if options.json:
            show_json({"uri": store.uri, "deleted": False, "objects": 0, "temporary": 0, "foreign": []})
        return 1
    deletion = delete_snapshot(store, with_tags=options.with_tags)
    for path in deletion.foreign:
        show_message(f"left alone: {path} is not part of the format")
    if options.json:
        show_json({"uri": store.uri, "deleted": True} | asdict(deletion))
    else:
        left = f" and {counted(deletion.temporary, 'temporary file')}" if deletion.temporary else ""
        show(f"Deleted {deletion.objects} objects{left} of {store.uri}.")
    return 0
