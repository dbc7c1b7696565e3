"""`snapshots catalog prune`."""

from __future__ import annotations

import argparse
from functools import partial

from snapshot_assets.catalog.operations.prune_log import Pruning, prune
from snapshot_assets.cli.catalog.opening import grace_of, open_catalog
from snapshot_assets.cli.confirm import confirmed
from snapshot_assets.cli.output import say, show, show_json
from snapshot_assets.cli.unreferenced import released_json, show_objects, show_reasons, sizes


def run(options: argparse.Namespace) -> int:
    """Prune a log after a confirmation that is exactly `yes`; exit status 1 if it was not given."""
    catalog = open_catalog(options, writing=not options.dry_run)
    pruned = partial(prune, catalog, grace=grace_of(options), unsafe=options.unsafe)
    found = pruned(dry_run=True)
    if options.dry_run:
        return _report(options, catalog.store.uri, found, done=False)
    if found.deleted and not options.yes:
        what = f"{sizes(found.released)}, of the log before revision {found.kept}"
        if not confirmed(f"{catalog.store.uri}: {what} will be deleted for ever; retained revisions stay readable."):
            say("Nothing was deleted.")
            if options.json:
                _report(options, catalog.store.uri, found, done=False)
            return 1
    return _report(options, catalog.store.uri, pruned(only=found), done=True)


def _report(options: argparse.Namespace, uri: str, found: Pruning, *, done: bool) -> int:
    if options.json:
        facts = {"uri": uri, "dry_run": options.dry_run, "deleted": done, "kept": found.kept}
        show_json(facts | released_json(found.released))
    else:
        _show(found, done)
    return 0


def _show(found: Pruning, done: bool) -> None:
    if not found.kept:
        show("nothing to prune: two checkpoints stay, and there are fewer; `snapshots catalog checkpoint` writes one")
        return
    if not found.deleted:
        show(f"nothing to prune: nothing that lies before revision {found.kept} is older than the grace period")
        return
    if not done:
        show_objects(found.released)
    show_reasons(found.released)
    verb = "deleted" if done else "would be deleted"
    show(f"{sizes(found.released)}, {verb}; the log is whole from {found.kept} on")
