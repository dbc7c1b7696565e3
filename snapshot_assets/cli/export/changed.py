"""`snapshots export changed`, and what `export create --changed` reports."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from snapshot_assets.cli.exit_status import ExitStatus
from snapshot_assets.cli.export import create_request as request
from snapshot_assets.cli.output import only_results_on_stdout, show, show_json, show_table
from snapshot_assets.cli.spark import opened_to_look
from snapshot_assets.format.names import table_text

if TYPE_CHECKING:
    from snapshot_assets.engine.export.changes import Changes
    from snapshot_assets.engine.export.parts import Part


def run(options: argparse.Namespace) -> int:
    """Show which tables of which windows changed in the source since they were exported."""
    configuration, plan = request.plan_of(options)
    with only_results_on_stdout():
        from snapshot_assets.engine.export.changes import chunks_to_look_at, find_changes

        with opened_to_look("looking for changes", options, configuration, plan) as (opened, watch):
            chunks = chunks_to_look_at(opened.catalog.state, plan, datetime.now(UTC))
            changes = find_changes(opened, chunks, watch.stage)
    if options.json:
        show_json(facts(changes))
    else:
        _show(changes, options.plan)
    return ExitStatus.DAMAGED if options.check and changes.changed else ExitStatus.DONE


def facts(changes: Changes) -> dict[str, Any]:
    """Return what was looked at, and what changed with the reason, for `--json`."""
    return {
        "chunks_looked_at": changes.chunks,
        "compared_by_value": changes.compared,
        "changed": [facts_of(part, part.answer.found, reason=part.answer.reason) for part in changes.changed],
    }


def _show(changes: Changes, plan: str | None) -> None:
    """Print what changed, and the call that exports it again; `plan` is None for options in place of a plan."""
    parts = changes.changed
    if parts:
        rows = [row_of(part, part.answer.found, part.answer.reason) for part in parts]
        show_table(("window", "table", "reason", "exported rows", "rows now"), rows)
    show(str(changes))
    if parts:
        call = f"`snapshots export create --plan {plan} --changed`" if plan else "export create with --changed"
        show(f"Run {call} to export them again.")


def facts_of(part: Part, rows: int | None, **result: str) -> dict[str, Any]:
    """Return where a part is, the result about it, and how many rows were exported and are in the source."""
    place = {"chunk": part.chunk, "window": part.window, "table": table_text(part.table)}
    return {**place, **result, "exported_rows": part.exported, "rows": rows}


def row_of(part: Part, rows: int | None, *result: object) -> tuple[object, ...]:
    """Return the same as the row of a table."""
    return (part.window or "untimed", table_text(part.table), *result, part.exported, "" if rows is None else rows)
