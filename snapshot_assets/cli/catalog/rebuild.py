"""`snapshots catalog rebuild`."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from snapshot_assets.catalog.rebuild.rebuild import Rebuild, rebuild
from snapshot_assets.cli.location import open_location
from snapshot_assets.cli.output import counted, human_bytes, show, show_json


def run(options: argparse.Namespace) -> int:
    """Rebuild a lost or damaged log, and report what is lost."""
    store, _ = open_location(options, options.snapshot)
    done = rebuild(
        store,
        accept_undeleted=options.accept_undeleted,
        from_files=options.from_files,
        dry_run=options.dry_run,
        single_writer=options.single_writer,
    )
    if options.json:
        show_json(_as_json(done))
    else:
        _show(done)
    return 0


def _as_json(done: Rebuild) -> dict[str, Any]:
    texts = {"taken": {str(chunk): path for chunk, path in done.taken.items()}}
    return {"dry_run": not done.committed} | asdict(done) | texts


def _show(done: Rebuild) -> None:
    verb = "begins" if done.committed else "would begin"
    if done.revision == done.proved:
        show(f"{done.uri}: the log is whole up to revision {done.revision}")
    else:
        base = f"revision {done.proved}" if done.proved else "receipts and data files alone"
        show(f"{done.uri}: a new log {verb} at revision {done.revision}, from {base}")
    show(f"  {counted(done.files, 'file')}, {counted(done.rows, 'row')}, {human_bytes(done.bytes)}")
    for path in done.restored:
        show(f"  {'written' if done.committed else 'would be written'} again: {path}")
    for chunk, path in sorted(done.taken.items()):
        show(f"  not proved: chunk {chunk} rests on {path}")
    for sentence in done.lost:
        show(f"  lost: {sentence}")
    if done.tags:
        show(f"  tags: {', '.join(done.tags)}")
    if done.savepoints:
        show(f"  savepoints: {', '.join(map(str, done.savepoints))}")
    if done.missing:
        show(f"  to be exported: chunks {', '.join(map(str, done.missing))}")
    show("  sealed" if done.sealed else "  not sealed: run the export again, which verifies and seals it")
