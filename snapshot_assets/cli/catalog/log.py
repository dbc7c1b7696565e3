"""`snapshots catalog log`."""

from __future__ import annotations

import argparse
from typing import Any

from snapshot_assets.catalog.log.history import History, Revision
from snapshot_assets.cli.catalog.describe import as_data, file_changes, in_words
from snapshot_assets.cli.location import open_log
from snapshot_assets.cli.output import show, show_json, show_message
from snapshot_assets.format.units import time_text


def run(options: argparse.Namespace) -> int:
    """Show the revisions of a log, newest first; exit status 1 if one of them cannot be read."""
    store = open_log(options)
    history = History(store)
    documents, from_checkpoints, faults = [], 0, 0
    for revision in history.revisions(since=options.since, limit=options.limit):
        faults += bool(revision.error)
        from_checkpoints += bool(revision.checkpoint)
        if options.json:
            documents.append(_as_json(revision))
        else:
            show(_line(revision))
    if options.json:
        show_json({"uri": store.uri, "head": history.head, "pruned": history.pruned, "revisions": documents})
    elif options.since > history.head:
        show_message(f"nothing since revision {options.since}; the newest is {history.head}")
    elif from_checkpoints:
        show_message(
            f"* pruned, read from a checkpoint, without files; {history.pruned} revisions of this log are pruned"
        )
    elif history.pruned and options.limit is None:
        show_message(f"{history.pruned} revisions of this log are pruned")
    return 1 if faults else 0


def _line(revision: Revision) -> str:
    number = f"{revision.revision:>6}{'*' if revision.checkpoint else ' '}"
    if revision.committed_at is None:
        return f"{number} UNREADABLE: {revision.error}"
    what = "; ".join(in_words(revision.actions))
    line = f"{number} {time_text(revision.committed_at):<24}  {revision.writer_id}  {what}"
    return "".join(character if character.isprintable() else "?" for character in line)


def _as_json(revision: Revision) -> dict[str, Any]:
    return {
        "revision": revision.revision,
        "committed_at": time_text(revision.committed_at) if revision.committed_at else None,
        "writer_id": revision.writer_id,
        "what": in_words(revision.actions),
        "actions": as_data(revision.actions),
        **({} if revision.checkpoint else file_changes(revision.actions)),
        "pruned": bool(revision.checkpoint),
        "checkpoint": revision.checkpoint or None,
        "error": revision.error or None,
    }
