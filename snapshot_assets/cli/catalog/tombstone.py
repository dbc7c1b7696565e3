"""`snapshots catalog tombstone`."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from snapshot_assets.catalog.operations.delete_rows import RowDeletionPlan, execute_row_deletion, plan_row_deletion
from snapshot_assets.cli.confirm import execute_confirmed
from snapshot_assets.cli.location import open_catalog
from snapshot_assets.cli.output import counted, show, show_json, show_table
from snapshot_assets.format.names import parse_table, table_text
from snapshot_assets.format.predicate_text import predicate_text
from snapshot_assets.format.predicates import predicate_json


def run(options: argparse.Namespace) -> int:
    """Delete the rows of a predicate after a confirmation."""
    table = parse_table(options.table)
    catalog = open_catalog(options, writing=not options.dry_run)
    uri, plan = catalog.store.uri, plan_row_deletion(catalog, table, options.where)
    return execute_confirmed(
        options,
        plan,
        partial(execute_row_deletion, catalog),
        partial(_report, options, uri),
        question=f"{uri}: {_summary(plan)} will be deleted; older versions keep them." if plan.files else "",
    )


def _summary(plan: RowDeletionPlan) -> str:
    return (
        f"the rows of {table_text(plan.table)} where {predicate_text(plan.predicate)}, "
        f"{plan.whole_rows:,} to {plan.rows:,} of {counted(plan.files, 'file')},"
    )


def _report(options: argparse.Namespace, uri: str, plan: RowDeletionPlan, done: bool) -> None:
    if options.json:
        show_json(_as_json(options, uri, plan))
    elif not plan.files:
        show(f"no file may hold such a row of {table_text(plan.table)}; nothing to delete")
    elif not done:
        _show_files(plan)
        show(f"{_summary(plan)} would be deleted")
    elif plan.revision is None:
        show(f"{_summary(plan)} were deleted before; nothing to do")
    else:
        show(f"{_summary(plan)} are deleted as of revision {plan.revision}")


def _as_json(options: argparse.Namespace, uri: str, plan: RowDeletionPlan) -> dict[str, Any]:
    return {
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


def _show_files(plan: RowDeletionPlan) -> None:
    rows = [(match.file.path, match.file.rows, "all" if match.certain else "some, or none") for match in plan.matches]
    show_table(("File", "Rows", "Deleted"), rows)
