"""`snapshots catalog rollback`."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from snapshot_assets.catalog.operations.rollback import RollbackPlan, execute_rollback, plan_rollback
from snapshot_assets.catalog.rules.rollback import Reversal
from snapshot_assets.catalog.state.versions import resolve_version
from snapshot_assets.cli.confirm import execute_confirmed
from snapshot_assets.cli.location import open_catalog
from snapshot_assets.cli.output import counted, show, show_json
from snapshot_assets.cli.unreferenced import released_json, show_released
from snapshot_assets.format.names import table_text
from snapshot_assets.format.predicate_text import predicate_text
from snapshot_assets.format.predicates import predicate_json
from snapshot_assets.format.relations import TableName


def run(options: argparse.Namespace) -> int:
    """Roll back after a confirmation."""
    catalog = open_catalog(options, writing=not options.dry_run)
    uri, revision = catalog.store.uri, resolve_version(options.version, catalog.state)
    plan = plan_rollback(catalog, revision, undelete=options.undelete, discard_newer=options.discard_newer)
    question = f"{uri}: the newest state becomes that of revision {revision}: {_summary(plan.reversal)}."
    return execute_confirmed(
        options,
        plan,
        partial(execute_rollback, catalog),
        partial(_report, options, uri),
        question=question if plan.reversal.actions else "",
        refusal="Nothing was rolled back.",
    )


def _summary(reversal: Reversal) -> str:
    phrases = [
        f"{counted(len(reversal.leaving), 'file')} will leave it",
        f"{counted(len(reversal.returning), 'file')} will return",
    ]
    if reversal.undeleted:
        phrases.append(f"{counted(len(reversal.undeleted), 'deletion')} will be undone")
    if reversal.expired:
        phrases.append(f"{counted(len(reversal.expired), 'newer revision')} will expire")
    return ", ".join(phrases)


def _report(options: argparse.Namespace, uri: str, plan: RollbackPlan, done: bool) -> None:
    reversal = plan.reversal
    needed = bool(reversal.actions) and not (done and plan.revision is None)  # another writer may have done it first
    if options.json:
        show_json(_as_json(options, uri, plan, needed))
    elif not needed:
        show(f"the newest state is that of revision {reversal.revision} already; nothing to do")
    elif not done:
        _show(plan)
    else:
        show(f"rolled back to revision {reversal.revision}, as of revision {plan.revision}")


def _show(plan: RollbackPlan) -> None:
    reversal = plan.reversal
    for sign, paths in (("-", reversal.leaving), ("+", reversal.returning)):
        for path in paths:
            show(f"{sign} {path}")
    for revision, each in sorted(reversal.undeleted.items()):
        table = table_text(TableName(each.schema, each.table))
        show(f"back: rows of {table} where {predicate_text(each.predicate)}, deleted at revision {revision}")
    if reversal.expired:
        show(f"expires: {', '.join(map(str, reversal.expired))}")
    show(f"to revision {reversal.revision}, from {reversal.head}: {_summary(reversal)}")
    show_released(plan.released, done=False)


def _as_json(options: argparse.Namespace, uri: str, plan: RollbackPlan, needed: bool) -> dict[str, Any]:
    reversal = plan.reversal
    return {
        "uri": uri,
        "dry_run": options.dry_run,
        "to": reversal.revision,
        "from": reversal.head,
        "needed": needed,
        "revision": plan.revision,
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
    } | released_json(plan.released)
