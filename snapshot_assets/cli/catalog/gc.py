"""`snapshots catalog gc`."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from snapshot_assets.catalog.operations.collect_garbage import Collection, Garbage, collect_garbage
from snapshot_assets.cli.catalog.opening import grace_of, open_catalog
from snapshot_assets.cli.confirm import confirmed
from snapshot_assets.cli.output import say, show, show_json, show_table
from snapshot_assets.cli.unreferenced import by_reason, show_reasons, sizes
from snapshot_assets.format.units import duration_text, time_text


def run(options: argparse.Namespace) -> int:
    """Collect garbage after a confirmation that is exactly `yes`; exit status 1 if it was not given."""
    catalog = open_catalog(options, writing=not options.dry_run)
    collect = partial(collect_garbage, catalog, grace=grace_of(options), unsafe=options.unsafe)
    found = collect(dry_run=True)
    if options.dry_run:
        return _report(options, catalog.store.uri, found, done=False)
    due = f"{catalog.store.uri}: {sizes(found.deleted)} that nothing needs will be deleted for ever."
    if found.deleted and not options.yes and not confirmed(due):
        say("Nothing was deleted.")
        _report(options, catalog.store.uri, found, done=False, quiet=True)
        return 1
    return _report(options, catalog.store.uri, collect(only=found), done=True)


def _report(options: argparse.Namespace, uri: str, found: Collection, *, done: bool, quiet: bool = False) -> int:
    if options.json:
        show_json(_as_json(uri, found, done, options.dry_run))
    elif not quiet:
        _show(found, done)
    for path in found.foreign:
        say(f"left alone: {path} is not part of the format")
    return 0


def _as_json(uri: str, found: Collection, done: bool, dry_run: bool) -> dict[str, Any]:
    return {
        "uri": uri,
        "dry_run": dry_run,
        "deleted": done,
        "grace": duration_text(found.grace),
        "objects": len(found.deleted),
        "bytes": sum(each.bytes for each in found.deleted),
        "reasons": by_reason(found.deleted),
        "garbage": [_garbage(each) for each in found.deleted],
        "waiting": [_garbage(each) for each in found.waiting],
        "foreign": list(found.foreign),
    }


def _garbage(each: Garbage) -> dict[str, Any]:
    return {"path": each.path, "bytes": each.bytes, "reason": each.reason, "since": time_text(each.since)}


def _show(found: Collection, done: bool) -> None:
    if not done and (found.deleted or found.waiting):
        marked = [("delete", each) for each in found.deleted] + [("wait", each) for each in found.waiting]
        rows = [(mark, each.reason, time_text(each.since), each.bytes, each.path) for mark, each in marked]
        show_table(("", "Reason", "Garbage since", "Bytes", "Object"), rows)
    show_reasons(found.deleted)
    show(f"{sizes(found.deleted)}, {'deleted' if done else 'would be deleted'}")
    if found.waiting:
        show(f"{sizes(found.waiting)}, garbage for less than {duration_text(found.grace)}: kept so long")
