"""`snapshots catalog tombstone | rollback`: change the newest state, and leave older ones as they are."""

from __future__ import annotations

import argparse

from snapshot_assets.catalog.operations.delete import RowDeletionPlan, execute_row_deletion, plan_row_deletion
from snapshot_assets.catalog.operations.rollback import RollbackPlan, execute_rollback, plan_rollback
from snapshot_assets.catalog.rules.rollback import Reversal
from snapshot_assets.catalog.state.versions import resolve_version
from snapshot_assets.cli.confirm import execute_confirmed
from snapshot_assets.cli.location import open_catalog
from snapshot_assets.cli.output import show, show_json, show_table
from snapshot_assets.cli.unreferenced import released_json, show_released
from snapshot_assets.format.names import parse_table, table_text
from snapshot_assets.format.predicate_text import predicate_text
from snapshot_assets.format.predicates import predicate_json
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.units import counted


def tombstone(options: argparse.Namespace) -> int:
    """Delete the rows of a predicate after a confirmation."""
    table = parse_table(options.table)
    catalog = open_catalog(options, writing=not options.dry_run, seals=True)
    plan = plan_row_deletion(catalog, table, options.where)
    question = f"{_deletion_summary(plan)} will be deleted; older versions keep them." if plan.files else ""
    return execute_confirmed(options, catalog, plan, execute_row_deletion, _report_deletion, question=question)


def _deletion_summary(plan: RowDeletionPlan) -> str:
    return (
        f"the rows of {table_text(plan.table)} where {predicate_text(plan.predicate)}, "
        f"{plan.whole_rows:,} to {plan.rows:,} of {counted(plan.files, 'file')},"
    )


def _report_deletion(options: argparse.Namespace, uri: str, plan: RowDeletionPlan, done: bool) -> None:
    if options.json:
        facts = {
            "uri": uri,
            "dry_run": options.dry_run,
            "deleted": plan.revision is not None,
            "revision": plan.revision,
            "table": table_text(plan.table),
            "where": predicate_json(plan.predicate),
            "files": plan.files,
            "rows_at_most": plan.rows,
            "whole_files": plan.whole_files,
            "rows_at_least": plan.whole_rows,
            "matches": [
                {"path": match.file.path, "rows": match.file.rows, "whole": match.certain} for match in plan.matches
            ],
        }
        show_json(facts)
    elif not plan.files:
        show(f"no file may hold such a row of {table_text(plan.table)}; nothing to delete")
    elif not done:
        matches = [
            (each.file.path, each.file.rows, "all" if each.certain else "some, or none") for each in plan.matches
        ]
        show_table(("File", "Rows", "Deleted"), matches)
        show(f"{_deletion_summary(plan)} would be deleted")
    elif plan.revision is None:
        show(f"{_deletion_summary(plan)} were deleted before; nothing to do")
    else:
        show(f"{_deletion_summary(plan)} are deleted as of revision {plan.revision}")


def rollback(options: argparse.Namespace) -> int:
    """Roll back after a confirmation."""
    catalog = open_catalog(options, writing=not options.dry_run, seals=True)
    revision = resolve_version(options.version, catalog.state)
    plan = plan_rollback(catalog, revision, undelete=options.undelete, discard_newer=options.discard_newer)
    question = f"the newest state becomes that of revision {revision}: {_rollback_summary(plan.reversal)}."
    return execute_confirmed(
        options,
        catalog,
        plan,
        execute_rollback,
        _report_rollback,
        question=question if plan.reversal.actions else "",
        refusal="Nothing was rolled back.",
    )


def _rollback_summary(reversal: Reversal) -> str:
    phrases = [
        f"{counted(len(reversal.leaving), 'file')} will leave it",
        f"{counted(len(reversal.returning), 'file')} will return",
    ]
    if reversal.undeleted:
        phrases.append(f"{counted(len(reversal.undeleted), 'deletion')} will be undone")
    if reversal.expired:
        phrases.append(f"{counted(len(reversal.expired), 'newer revision')} will expire")
    return ", ".join(phrases)


def _report_rollback(options: argparse.Namespace, uri: str, plan: RollbackPlan, done: bool) -> None:
    reversal = plan.reversal
    needed = bool(reversal.actions) and not (done and plan.revision is None)  # another writer may have done it first
    undeleted = [
        (revision, TableName(each.schema, each.table), each.predicate)
        for revision, each in sorted(reversal.undeleted.items())
    ]
    if options.json:
        facts = {
            "uri": uri,
            "dry_run": options.dry_run,
            "to": reversal.revision,
            "from": reversal.head,
            "needed": needed,
            "revision": plan.revision,
            "leaving": list(reversal.leaving),
            "returning": list(reversal.returning),
            "undeleted": [
                {"revision": revision, "table": table_text(table), "where": predicate_json(where)}
                for revision, table, where in undeleted
            ],
            "expired": list(reversal.expired),
        }
        show_json(facts | released_json(plan.released))
    elif not needed:
        show(f"the newest state is that of revision {reversal.revision} already; nothing to do")
    elif done:
        show(f"rolled back to revision {reversal.revision}, as of revision {plan.revision}")
    else:
        for path in reversal.leaving:
            show(f"- {path}")
        for path in reversal.returning:
            show(f"+ {path}")
        for revision, table, where in undeleted:
            show(f"back: rows of {table_text(table)} where {predicate_text(where)}, deleted at revision {revision}")
        if reversal.expired:
            show(f"expires: {', '.join(map(str, reversal.expired))}")
        show(f"to revision {reversal.revision}, from {reversal.head}: {_rollback_summary(reversal)}")
        show_released(plan.released, done=False)
