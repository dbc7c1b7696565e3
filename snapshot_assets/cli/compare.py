"""`snapshots compare`: prove that the location holds what the database holds."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from snapshot_assets.catalog.state.versions import resolve_version
from snapshot_assets.catalog.verify.objects import Rotation
from snapshot_assets.cli.exit_status import ExitStatus
from snapshot_assets.cli.export import create_request as request
from snapshot_assets.cli.export.changed import facts_of, row_of
from snapshot_assets.cli.output import only_results_on_stdout, show, show_json, show_table
from snapshot_assets.cli.spark import opened_to_look
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
    with only_results_on_stdout():
        from snapshot_assets.engine.export.compare import Choice, Comparison, compare

        with opened_to_look("comparing", options, configuration, plan) as (opened, watch):
            compared = compare(opened, Choice(tables, span, rotation, at), watch.stage)
    if options.json:
        show_json(_facts(compared))
    else:
        _show(compared)
    return ExitStatus.DAMAGED if compared.counts[Comparison.DIFFERENT] else ExitStatus.DONE


def _facts(compared: Compared) -> dict[str, Any]:
    """Return the counts, and the parts that are not equal, for `--json`."""
    return {
        "revision": compared.state.revision,
        "compared": len(compared.parts),
        "compared_before": compared.passed,
        "started_at": time_text(compared.started),
        "counts": dict(compared.counts),
        "deleted_rows": compared.deleted,
        "chunks_not_exported": compared.missing,
        "sample_days": compared.within,
        "unequal": [
            {
                **facts_of(each.part, each.found, comparison=each.comparison, reason=each.reason),
                "deleted_rows": each.deleted,
                "differences": [asdict(row) for row in each.rows],
                "more_differences": each.more,
                "error": each.error or None,
            }
            for each in compared.unequal
        ],
    }


def _show(compared: Compared) -> None:
    if compared.unequal:
        columns = ("window", "table", "compared", "reason", "exported rows", "rows now")
        rows = [row_of(each.part, each.found, each.comparison, each.reason) for each in compared.unequal]
        show_table(columns, rows)
    for each in compared.unequal:
        if each.rows or each.error:
            show(f"{each.part.window or 'untimed'} {table_text(each.part.table)}:")
        if each.error:
            show(f"  {each.error}")
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
