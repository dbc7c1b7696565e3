"""`snapshots catalog gc`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from functools import partial
from typing import Any

from snapshot_assets.catalog.garbage import Collection, Garbage, collect_garbage
from snapshot_assets.cli.catalog.opening import grace_of, open_catalog
from snapshot_assets.cli.confirm import confirmed
from snapshot_assets.cli.output import counted, human_bytes, say, show, show_json, show_table
from snapshot_assets.format.units import duration_text, time_text


def run(options: argparse.Namespace) -> int:
    """Collect garbage after a confirmation that is exactly `yes`; exit status 1 if it was not given."""
    catalog = open_catalog(options, writing=not options.dry_run)
    collect = partial(collect_garbage, catalog, grace=grace_of(options), unsafe=options.unsafe)
    found = collect(dry_run=True)
    if options.dry_run:
        return _report(options, catalog.store.uri, found, done=False)
    if found.deleted and not options.yes:
        due = f"{counted(len(found.deleted), 'object')}, {_bytes(found.deleted)}"
        if not confirmed(f"{catalog.store.uri}: {due} that nothing needs will be deleted for ever."):
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


def by_reason(found: Iterable[Garbage]) -> dict[str, dict[str, int]]:
    """Return how many objects and bytes there are by the reason why nothing needs them."""
    reasons: dict[str, dict[str, int]] = {}
    for each in found:
        sums = reasons.setdefault(each.reason, {"objects": 0, "bytes": 0})
        sums["objects"] += 1
        sums["bytes"] += each.bytes
    return dict(sorted(reasons.items()))


def _show(found: Collection, done: bool) -> None:
    if not done and (found.deleted or found.waiting):
        marked = [("delete", each) for each in found.deleted] + [("wait", each) for each in found.waiting]
        rows = [(mark, each.reason, time_text(each.since), each.bytes, each.path) for mark, each in marked]
        show_table(("", "Reason", "Garbage since", "Bytes", "Object"), rows)
    for reason, sums in by_reason(found.deleted).items():
        show(f"{reason}: {counted(sums['objects'], 'object')}, {human_bytes(sums['bytes'])}")
    verb = "deleted" if done else "would be deleted"
    show(f"{counted(len(found.deleted), 'object')}, {_bytes(found.deleted)}, {verb}")
    if found.waiting:
        show(
            f"{counted(len(found.waiting), 'object')}, {_bytes(found.waiting)}, garbage for less than "
            f"{duration_text(found.grace)}: kept so long"
        )


def _bytes(found: Iterable[Garbage]) -> str:
    return human_bytes(sum(each.bytes for each in found))
