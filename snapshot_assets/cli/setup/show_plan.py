"""`snapshots plan show`: what a plan would export, where, and by what rules. It reads no rows and changes nothing."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.cli.export.create_request import check_location
from snapshot_assets.cli.output import show, show_json, show_table
from snapshot_assets.cli.setup.estimates import EstimatedTable, estimated, opened_source, window_count
from snapshot_assets.engine.export.preflight import checked_schemas
from snapshot_assets.engine.export.start_snapshot import closed_end, resolve_range, skipped_tables
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.units import counted, duration_text, human_bytes, time_text
from snapshot_assets.format.windows import TimeRange
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.plan.location_template import is_template
from snapshot_assets.plan.plan import Plan
from snapshot_assets.plan.read_configuration import Needed, load_configuration
from snapshot_assets.plan.windows import require_range

_APART = ("name", "source", "to", "storage", "spark", "start_time", "end_time", "chunk_time_window")
"""Fields that are no rules, or are shown apart."""
_MAIN_RULES = ("untimed_tables", "null_time", "time_zone", "format", "max_file_size", "seal_verify")
"""Fields that are shown though they have their defaults."""
_RULES_OF_ASSETS = ("time_zone", "format", "max_file_size", "seal_verify")
"""Those of a plan whose source is a Dagster asset."""


@dataclass(frozen=True)
class _Described:
    """A plan with what it would export now.

    Attributes:
        plan: The plan, its range resolved.
        state: The location's state; None if its name is filled in later.
        windows: How many windows have closed by now.
        exported: How many of them are exported.
        end: The end of the last of them.
        skipped: Tables that have no time index, which the plan leaves out.
    """

    plan: Plan
    state: State | None
    windows: int
    exported: int
    end: datetime | None
    tables: Sequence[EstimatedTable] = ()
    skipped: tuple[TableName, ...] = ()
    views: int = 0


def run(options: argparse.Namespace) -> int:
    """Print what a plan would export."""
    configuration = load_configuration(options.config, needed=Needed(options.name, ["source"]))
    found = _described(configuration, configuration.plan(options.name))
    source = configuration.source(found.plan.source).alias
    if options.json:
        show_json({"source": source, **_facts(found)})
    else:
        _show(found, source)
    return 0


def _described(configuration: Configuration, written: Plan) -> _Described:
    state = None if is_template(written.to) else read_state(configuration.store(written))
    header = state.header if state is not None else None
    now = datetime.now(UTC)
    if state is not None:
        check_location(written, state, configuration.source(written.source), replace=False, force=False)
    if written.source_asset:  # its runs alone know its tables
        require_range(written)
        return _with_windows(written, state, now)
    with opened_source(configuration, written) as source:
        extracted, exported = checked_schemas(source, written)
        plan, timed = written, tuple(table for table in exported.tables if table.time_index is not None)
        if written.kind == "once" and not (written.schema_only or (written.start_time and written.end_time)):
            bounds = source.time_bounds(timed, written.time_zone) if header is None else None
            plan = resolve_range(written, header, TimeRange(*bounds) if bounds else None, now)
        found = _with_windows(plan, state, now)
        tables = [
            EstimatedTable(each, 0) if plan.schema_only else estimated(source, plan, each, found.end)
            for each in exported.tables
        ]
    return replace(found, tables=tables, skipped=skipped_tables(plan, extracted), views=len(exported.views))


def _with_windows(plan: Plan, state: State | None, now: datetime) -> _Described:
    """Return a plan whose range is resolved, with its windows."""
    end = closed_end(plan, now) if plan.range_kind == "continuous" else plan.end_time
    windows = window_count(plan, now)
    has_chunks = state is not None and state.header is not None
    done = sum(state.completed(chunk) for chunk in range(1, windows + 1)) if state and has_chunks else 0
    return _Described(plan, state, windows, done, end)


def _facts(found: _Described) -> dict[str, Any]:
    """Return what is shown, for JSON; a size is null if it is unknown."""
    plan = found.plan
    sizes = [each.bytes for each in found.tables]
    known = [size for size in sizes if size is not None]
    in_windows = [each.bytes or 0 for each in found.tables if _windowed(each)]
    return {
        "plan": plan.name,
        "kind": plan.kind,
        "to": plan.to,
        "has_snapshot": bool(found.state and found.state.has_snapshot),
        "windows": {
            "count": found.windows,
            "exported": found.exported,
            "to_export": found.windows - found.exported,
            "length": duration_text(plan.chunk_time_window) if found.windows else None,
            "start": time_text(plan.start_time) if plan.start_time else None,
            "end": time_text(found.end) if found.end else None,
            "bytes_each": sum(in_windows) // found.windows if found.windows and not plan.source_asset else None,
        },
        "tables": [
            {
                "table": table_text(each.table.table_name),
                "time_index": each.table.time_index,
                "columns": len(each.table.columns),
                "bytes": each.bytes,
                "analyzed": each.analyzed,
            }
            for each in found.tables
        ],
        "skipped": [table_text(name) for name in found.skipped],
        "views": found.views,
        "bytes": None if plan.source_asset or len(known) < len(sizes) else sum(known),
        "rules": plan.model_dump(mode="json", exclude=set(_APART)),
    }


def _windowed(each: EstimatedTable) -> bool:
    return each.table.time_index is not None or bool(each.table.options.get("windowed"))


def _show(found: _Described, source: str) -> None:
    facts, plan = _facts(found), found.plan
    there = "which holds a snapshot" if facts["has_snapshot"] else "where no snapshot is yet"
    show(f"{plan.name}: exports {source} to {plan.to}, {there}")
    if windows := facts["windows"]["count"]:
        size = facts["windows"]["bytes_each"]
        each = "" if size is None else f", about {human_bytes(size)} each in the source"
        show(f"  {counted(windows, 'window')} of {facts['windows']['length']}{each}")
        show(f"  range [{facts['windows']['start']}, {facts['windows']['end']})")
        show(f"  {facts['windows']['exported']:,} exported, {facts['windows']['to_export']:,} to export")
    elif plan.range_kind == "continuous":
        show(f"  no window of {duration_text(plan.chunk_time_window)} has closed yet")
    if plan.schema_only:
        show("  the schema and no rows")
    for name in facts["skipped"]:
        show(f"  left out, without a time index: {name}")
    if found.tables:
        rows = []
        for table in found.tables:
            index = table.table.time_index or ("by the query" if _windowed(table) else "none: chunk 0")
            rows.append((table_text(table.table.table_name), index, len(table.table.columns), table.text))
        show_table(("Table", "Time index", "Columns", "Estimated size"), rows)
    if plan.source_asset:
        show(f"  a run of the Dagster asset {'/'.join(plan.source_asset)} exports each; no size is known before")
    else:
        size = "unknown" if facts["bytes"] is None else f"about {human_bytes(facts['bytes'])}"
        show(f"{counted(len(found.tables), 'table')}, {counted(found.views, 'view')}; size in the source: {size}")
    show("Rules:")
    chosen = plan.model_dump(mode="json", exclude=set(_APART), exclude_defaults=True)
    always = {} if plan.kind == "query" or plan.schema_only else facts["rules"]
    main = _RULES_OF_ASSETS if plan.source_asset else _MAIN_RULES
    for name, value in (chosen | {name: always[name] for name in main if name in always}).items():
        show(f"  {name}: {value if isinstance(value, str) else json.dumps(value)}")
    if plan.retention.rule is None:
        show("  nothing expires: retention keeps every sealed revision")
