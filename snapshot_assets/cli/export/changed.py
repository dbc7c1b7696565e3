"""`snapshots export changed`, and what `export create --changed` reports."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.cli.exit_status import ExitStatus
from snapshot_assets.cli.export import create_request as request
from snapshot_assets.cli.output import only_results_on_stdout, show, show_json, show_table
from snapshot_assets.cli.spark import opened_to_look
from snapshot_assets.errors import PlanError
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.names import table_text
from snapshot_assets.format.windows import partition_key

if TYPE_CHECKING:
    from snapshot_assets.engine.export.changes import Changes
    from snapshot_assets.engine.export.parts import Part


def run(options: argparse.Namespace) -> int:
    """Show which tables of which windows changed in the source since they were exported."""
    configuration, plan = request.plan_of(options)
    if plan.schema_only:
        raise PlanError("A schema-only snapshot has no rows that could change.")
    with only_results_on_stdout():
        from snapshot_assets.engine.export.changes import chunks_to_look_at, find_changes

        with opened_to_look("looking for changes", options, configuration, plan) as (opened, watch):
            state = opened.catalog.state
            changes = find_changes(opened, chunks_to_look_at(state, plan, datetime.now(UTC)), watch.stage)
    if options.json:
        show_json(facts(changes, state))
    else:
        _show(changes, state, options.plan)
    return ExitStatus.DAMAGED if options.check and changes.changed else ExitStatus.DONE


def facts(changes: Changes, state: State) -> dict[str, Any]:
    """Return what was looked at, and what changed with the reason, for `--json`."""
    return {
        "chunks_looked_at": changes.chunks,
        "compared_by_value": changes.compared,
        "changed": [
            {
                "chunk": part.chunk,
                "window": window_key(state, part.chunk),
                "table": table_text(part.table),
                "reason": part.answer.reason,
                "exported_rows": part.exported,
                "rows": part.answer.found,
            }
            for part in changes.changed
        ],
    }


def _show(changes: Changes, state: State, plan: str | None) -> None:
    """Print what changed, and the call that exports it again; `plan` is None for options in place of a plan."""
    parts = changes.changed
    if parts:
        rows = [row_of(state, part, part.answer.found, part.answer.reason) for part in parts]
        show_table(("window", "table", "reason", "exported rows", "rows now"), rows)
    show(str(changes))
    if parts:
        call = f"`snapshots export create --plan {plan} --changed`" if plan else "export create with --changed"
        show(f"Run {call} to export them again.")


def row_of(state: State, part: Part, found: int | None, *told: object) -> tuple[object, ...]:
    """Return a part as the row of a table: where it is, what is told of it, and how many rows there were and are."""
    place = window_key(state, part.chunk) or "untimed", table_text(part.table)
    return (*place, *told, part.exported, "" if found is None else found)


def window_key(state: State, chunk: int) -> str | None:
    """Return the key of a chunk's partition; None for chunk 0."""
    return partition_key(state.window(chunk)) if chunk != UNTIMED_CHUNK else None
