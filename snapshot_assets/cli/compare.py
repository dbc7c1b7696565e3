"""`snapshots compare`: prove that the location holds what the database holds."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.versions import resolve_version
from snapshot_assets.catalog.verify.objects import Rotation
from snapshot_assets.cli.exit_status import ExitStatus
from snapshot_assets.cli.export import create_request as request
from snapshot_assets.cli.export.changed import row_of, window_key
from snapshot_assets.cli.output import only_results_on_stdout, show, show_json, show_table
from snapshot_assets.cli.spark import opened_to_look
from snapshot_assets.errors import PlanError
from snapshot_assets.format.names import parse_table, table_text
from snapshot_assets.format.units import parse_share, time_text

if TYPE_CHECKING:
    from snapshot_assets.engine.export.compare import Compared
    from snapshot_assets.engine.files.row_differences import RowDifference


def run(options: argparse.Namespace) -> int:
    """Compare a snapshot with its source; exit status 3 if they differ though the source did not change."""
    span = request.parse_range(options.time_range, "--time-range")
    rotation = options.sample and Rotation.of_share(parse_share(options.sample), datetime.now(UTC))
    tables = tuple(map(parse_table, options.compared))
    at = None if options.at is None else partial(resolve_version, options.at)
    configuration, plan = request.plan_of(options)
    if plan.schema_only:
        raise PlanError("A schema-only snapshot has no rows to compare.")
    with only_results_on_stdout():
        from snapshot_assets.engine.export.compare import Choice, Comparison, compare

        with opened_to_look("comparing", options, configuration, plan) as (opened, watch):
            choice = Choice(tables, span, rotation, at)
            compared, state = compare(opened, choice, watch.stage), choice.state(opened.catalog.state)
    if options.json:
        show_json(_facts(compared, state))
    else:
        _show(compared, state)
    return ExitStatus.DAMAGED if compared.counts[Comparison.DIFFERENT] else ExitStatus.DONE


def _facts(compared: Compared, state: State) -> dict[str, Any]:
    """Return the counts, and the parts that are not equal, for `--json`."""
    return {
        "revision": state.revision,
        "compared": len(compared.parts),
        "compared_before": compared.passed,
        "started_at": time_text(compared.started),
        "counts": dict(compared.counts),
        "deleted_rows": compared.deleted,
        "chunks_not_exported": compared.missing,
        "sample_days": compared.within,
        "unequal": [
            {
                "chunk": each.part.chunk,
                "window": window_key(state, each.part.chunk),
                "table": table_text(each.part.table),
                "comparison": each.comparison,
                "reason": each.reason,
                "exported_rows": each.part.exported,
                "rows": each.found,
                "deleted_rows": each.deleted,
                "differences": [asdict(row) for row in each.rows],
                "more_differences": each.more,
                "damage": each.damage or None,
            }
            for each in compared.unequal
        ],
    }


def _show(compared: Compared, state: State) -> None:
    if compared.unequal:
        columns = ("window", "table", "compared", "reason", "exported rows", "rows now")
        rows = [row_of(state, each.part, each.found, each.comparison, each.reason) for each in compared.unequal]
        show_table(columns, rows)
    for each in compared.unequal:
        if each.rows or each.damage:
            show(f"{window_key(state, each.part.chunk) or 'untimed'} {table_text(each.part.table)}:")
        if each.damage:
            show(f"  {each.damage}")
        for row in each.rows:
            show(f"  {_text(row)}")
        if each.more:
            show("  and more rows")
    show(str(compared))


def _text(row: RowDifference) -> str:
    """Return a differing row as one line; values of masked columns are in neither side."""
    if row.snapshot is not None and row.source is not None:
        return f"{_values(row.key)}: " + "; ".join(_changed(row, row.snapshot, row.source))
    side, values = ("source", row.source) if row.snapshot is None else ("snapshot", row.snapshot)
    times = f" {row.times:,} times" if row.times > 1 else ""
    return f"only in the {side}{times}: {_values(values or {})}"


def _changed(row: RowDifference, snapshot: Mapping[str, str], source: Mapping[str, str]) -> Iterator[str]:
    for name in row.columns:
        if name in snapshot:
            yield f"{name} is {snapshot[name]} in the snapshot, {source[name]} in the source"
        else:
            yield f"{name} differs (masked)"


def _values(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
