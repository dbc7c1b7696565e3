"""`snapshots catalog expire`."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from snapshot_assets.catalog.retention import Expiry, expire
from snapshot_assets.catalog.rules_retention import Retention
from snapshot_assets.cli.catalog.opening import open_catalog
from snapshot_assets.cli.confirm import confirmed
from snapshot_assets.cli.output import counted, human_bytes, say, show, show_json, show_table
from snapshot_assets.errors import PlanError
from snapshot_assets.format.units import parse_duration


def run(options: argparse.Namespace) -> int:
    """Expire revisions after a confirmation that is exactly `yes`; exit status 1 if it was not given."""
    keep_for = None if options.keep_for is None else parse_duration(options.keep_for)
    if options.keep_last is None and keep_for is None:
        raise PlanError("Nothing says which revisions are to be kept; give --keep-last, --keep-for, or both.")
    retention = Retention(options.keep_last, keep_for)
    catalog = open_catalog(options, writing=not options.dry_run)
    expired = partial(expire, catalog, keep_last=retention.keep_last, keep_for=retention.keep_for)
    found = expired(dry_run=True)
    if options.dry_run:
        return _report(options, catalog.store.uri, found)
    if found.expired and not options.yes and not confirmed(f"{catalog.store.uri}: {_words(found)} will expire."):
        say("Nothing expired.")
        if options.json:
            _report(options, catalog.store.uri, found)
        return 1
    return _report(options, catalog.store.uri, expired(only=found))


def _words(found: Expiry) -> str:
    pinned = f", {len(found.pinned)} of them pinned and kept so," if found.pinned else ""
    return f"{counted(len(found.expired), 'sealed revision')}{pinned} of {len(found.expired) + _other(found)}"


def _other(found: Expiry) -> int:
    """Return how many revisions the rules keep."""
    return found.kept - len(found.pinned)


def _report(options: argparse.Namespace, uri: str, found: Expiry) -> int:
    if options.json:
        show_json(_as_json(options, uri, found))
    elif not found.expired:
        show(f"nothing to expire; {counted(found.kept, 'sealed revision')} can be read")
    else:
        _show(found, done=found.revision is not None)
    return 0


def _as_json(options: argparse.Namespace, uri: str, found: Expiry) -> dict[str, Any]:
    return {
        "uri": uri,
        "dry_run": options.dry_run,
        "revision": found.revision,
        "expired": list(found.expired),
        "pinned": [{"revision": revision, "pins": list(pins)} for revision, pins in found.pinned.items()],
        "readable": found.kept,
        "reasons": {"expired": {"files": len(found.unneeded), "bytes": found.bytes}} if found.unneeded else {},
        "unneeded": [{"path": path, "bytes": size, "reason": "expired"} for path, size in found.unneeded.items()],
    }


def _show(found: Expiry, *, done: bool) -> None:
    if not done:
        rows = [(revision, ", ".join(found.pinned.get(revision, ())) or "nothing") for revision in found.expired]
        show_table(("Revision", "Kept by"), rows)
        for path in found.unneeded:
            show(f"not needed then: {path}")
    show(f"{_words(found)} {f'expired as of revision {found.revision}' if done else 'would expire'}")
    files = f"{counted(len(found.unneeded), 'file')}, {human_bytes(found.bytes)}"
    show(f"expired: {files}, needed by nothing {'now' if done else 'then'}; `snapshots catalog gc` deletes what is")
