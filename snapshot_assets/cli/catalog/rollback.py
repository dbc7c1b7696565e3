"""`snapshots catalog rollback`."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from snapshot_assets.catalog.operations.rollback import RolledBack, rollback
from snapshot_assets.catalog.state.versions import resolve_version
from snapshot_assets.cli.catalog.opening import open_catalog
from snapshot_assets.cli.confirm import confirmed
from snapshot_assets.cli.output import counted, say, show, show_json
from snapshot_assets.cli.unreferenced import released_json, show_released
from snapshot_assets.format.names import table_text
from snapshot_assets.format.predicate_text import predicate_text
from snapshot_assets.format.predicates import predicate_json
from snapshot_assets.format.relations import TableName


def run(options: argparse.Namespace) -> int:
    """Roll back after a confirmation that is exactly `yes`; exit status 1 if it was not given."""
    catalog = open_catalog(options, writing=not options.dry_run)
    revision = resolve_version(options.version, catalog.state)
    roll = partial(rollback, catalog, revision, undelete=options.undelete, discard_newer=options.discard_newer)
    found = roll(dry_run=True)
    if options.dry_run:
        return _report(options, catalog.store.uri, found)
    question = f"{catalog.store.uri}: the newest state becomes that of revision {revision}: {_words(found)}."
    if found.reversal.actions and not options.yes and not confirmed(question):
        say("Nothing was rolled back.")
        if options.json:
            _report(options, catalog.store.uri, found)
        return 1
    return _report(options, catalog.store.uri, roll(only=found))


def _words(found: RolledBack) -> str:
    reversal = found.reversal
    phrases = [
        f"{counted(len(reversal.leaving), 'file')} will leave it",
        f"{counted(len(reversal.returning), 'file')} will return",
        *([f"{counted(len(reversal.undeleted), 'deletion')} will be undone"] if reversal.undeleted else []),
        *([f"{counted(len(reversal.expired), 'newer revision')} will expire"] if reversal.expired else []),
    ]
    return ", ".join(phrases)


def _report(options: argparse.Namespace, uri: str, found: RolledBack) -> int:
    reversal = found.reversal
    if options.json:
        show_json(_as_json(options, uri, found))
    elif not reversal.actions:
        show(f"the newest state is that of revision {reversal.revision} already; nothing to do")
    elif found.revision is None:
        _show(found)
    else:
        show(f"rolled back to revision {reversal.revision}, as of revision {found.revision}")
    return 0


def _show(found: RolledBack) -> None:
    reversal = found.reversal
    for sign, paths in (("-", reversal.leaving), ("+", reversal.returning)):
        for path in paths:
            show(f"{sign} {path}")
    for revision, each in sorted(reversal.undeleted.items()):
        table = table_text(TableName(each.schema, each.table))
        show(f"back: rows of {table} where {predicate_text(each.predicate)}, deleted at revision {revision}")
    if reversal.expired:
        show(f"expires: {', '.join(map(str, reversal.expired))}")
    show(f"to revision {reversal.revision}, from {reversal.head}: {_words(found)}")
    show_released(found.released, done=False)


def _as_json(options: argparse.Namespace, uri: str, found: RolledBack) -> dict[str, Any]:
    reversal = found.reversal
    return {
        "uri": uri,
        "dry_run": options.dry_run,
        "to": reversal.revision,
        "from": reversal.head,
        "needed": bool(reversal.actions),
        "revision": found.revision,
        "leaving": list(reversal.leaving),
        "returning": list(reversal.returning),
        "undeleted": [
            {
                "revision": revision,
                "table": table_text(TableName(each.schema, each.table)),
                "where": predicate_json(each.predicate),
            }
            for revision, each in sorted(reversal.undeleted.items())
        ],
        "expired": list(reversal.expired),
    } | released_json(found.released)
