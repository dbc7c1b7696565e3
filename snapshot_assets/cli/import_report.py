"""Prints what `snapshots import` did or would do: a verdict of at most ten lines, after every step that failed."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from snapshot_assets.cli.exit_status import ExitStatus, exit_status
from snapshot_assets.cli.output import show, show_json, show_message
from snapshot_assets.engine.restore.loader import ChunkOutcome
from snapshot_assets.engine.restore.plan import RestorePlan
from snapshot_assets.engine.restore.refusals import missing_facts
from snapshot_assets.engine.restore.report import (
    failed_lines,
    failing_lines,
    kept_facts,
    kept_lines,
    left_out,
    lost_facts,
    lost_lines,
    made_lines,
    partly_restored,
    schema_facts,
    step_lines,
    untried_lines,
)
from snapshot_assets.engine.restore.row_counts import how_to_load_again, loaded_and_found
from snapshot_assets.engine.restore.run import RestoreRun
from snapshot_assets.engine.restore.steps import incomplete
from snapshot_assets.engine.restore.windows import numbered
from snapshot_assets.errors import RestoreError, SnapshotError
from snapshot_assets.format.kinds import counts_by_kind
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.units import counted, human_bytes, noun


@dataclass
class ImportWork:
    """Results of a call's Dagster run, if there was one, and the rows of each table: as loaded, and as counted."""

    run_id: str | None = None
    outcomes: list[ChunkOutcome] = field(default_factory=list)
    counts: dict[TableName, tuple[int, int]] = field(default_factory=dict)


def show_plan(options: argparse.Namespace, location: str, alias: str, plan: RestorePlan) -> int:
    """Print what an import would create and load."""
    files = [each.file for load in plan.loads for each in load.plans]
    replaced = [load.chunk.chunk for load in plan.loads if load.replace]
    rows, size = sum(file.rows for file in files), sum(file.bytes for file in files)
    report = {
        "location": location,
        "target": alias,
        "revision": plan.state.revision,
        "checksum": plan.source.checksum,
        "resumes": plan.record.id if plan.resumed else None,
        "finished": plan.finished,
        "makes": [step.name for step in plan.to_create()],
        "makes_by_kind": counts_by_kind(step.kind for step in plan.to_create()),
        "types": {
            table_text(table.table_name): {column.name: column.type for column in table.columns}
            for table in plan.definition.tables
        },
        "replaces": replaced,
        "files": len(files),
        "rows_of_files": rows,
        "bytes": size,
        "would_fail": {str(each.statement.key): each.message for each in plan.failing},
        "not_rehearsed": [
            {"because": reason, "count": len(keys), "statements": list(map(str, keys))}
            for reason, keys in plan.rehearsal.untried.items()
        ],
        "missing": missing_facts(plan.lacking),
        "left_out_by_damage": [each.facts for each in left_out(plan)],
        **kept_facts(plan),
        **lost_facts(plan),
    }
    status = ExitStatus.DAMAGED if plan.partial else ExitStatus.FAILED if plan.failing else ExitStatus.DONE
    if options.json:
        show_json(report)
        return status
    show(f"{location} at revision {plan.state.revision} into {alias}: nothing was changed")
    show(f"  would load {counted(len(files), 'file')}, {counted(rows, 'row')}, {human_bytes(size)}")
    if replaced:
        show(f"  would delete the rows of {numbered(replaced)} first")
    for left in left_out(plan):
        show(f"  would leave out {left}")
    verbose = options.verbose
    lines = (*step_lines(plan, verbose=verbose), *_left_lines(plan, verbose=verbose))
    for line in (*lines, *untried_lines(plan), *failing_lines(plan)):
        show(f"  {line}")
    return status


def _refuse_differing(plan: RestorePlan, counts: dict[TableName, tuple[int, int]]) -> bool:
    """Return whether tables hold other rows than were loaded, which only `--into-nonempty` allows."""
    different = {name: both for name, both in counts.items() if both[0] != both[1] and name not in plan.absent}
    if different and not plan.record.into_nonempty:
        some = "; ".join(f"{name}: {loaded_and_found(*both)}" for name, both in different.items())
        raise RestoreError(
            f"The target's row counts differ from what was loaded: {some}. {how_to_load_again(plan)}",
            tables=sorted(map(table_text, different)),
        )
    return bool(different)


def report(options: argparse.Namespace, location: str, run: RestoreRun, work: ImportWork) -> int:
    """Print what an import has done; returns the exit status."""
    plan = run.current()
    different = _refuse_differing(plan, work.counts)
    failed = run.failed_steps()
    error: SnapshotError | None = incomplete(failed, plan.absent) if failed else None
    if plan.partial:
        error = partly_restored(plan, failed)
    facts: dict[str, Any] = {
        "location": location,
        "target": run.address.alias,
        "run_id": work.run_id,
        "import": plan.record.id,
        "revision": plan.state.revision,
        "checksum": plan.source.checksum,
        "outcomes": dict(sorted(Counter(outcome.status for outcome in work.outcomes).items())),
        "rows_loaded": sum(outcome.rows for outcome in work.outcomes),
        "bytes": sum(outcome.bytes for outcome in work.outcomes),
        "tables": {table_text(name): found for name, (_, found) in sorted(work.counts.items())},
        "left_out_by_damage": [each.facts for each in left_out(plan)],
        **schema_facts(plan, failed),
    }
    if error is not None:
        show_message(f"snapshots: {error}")
        facts["error"] = {"kind": type(error).__name__, "exit_status": exit_status(error), "message": str(error)}
    if options.json:
        show_json(facts)
    else:
        for line in failed_lines(failed):
            show(line)
        nothing = work.run_id is None and not run.changed and not failed
        for line in _verdict(facts, different=different, nothing=nothing):
            show(line)
        made = () if nothing else made_lines(plan, failed)
        # A repeated import with --verbose names what the first one only counted.
        left = () if nothing and not options.verbose else _left_lines(plan, verbose=options.verbose)
        for line in (*made, *left):
            show(f"  {line}")
    return exit_status(error) if error is not None else ExitStatus.DONE


def _left_lines(plan: RestorePlan, *, verbose: bool) -> Iterator[str]:
    """Yield what is left as the target had it, and what is not carried over; a line each with `verbose`."""
    yield from kept_lines(plan, verbose=verbose)
    yield from lost_lines(plan, verbose=verbose)


def _verdict(facts: Mapping[str, Any], *, different: bool, nothing: bool) -> Iterator[str]:
    """Yield what was loaded; `nothing` if nothing was done, and `different` if tables hold rows of others too."""
    target, run_id = f"{facts['target']}: revision {facts['revision']}", facts["run_id"]
    if run_id is None:
        yield f"{target} was restored before{'; nothing was done' if nothing else '; all rows are there'}"
        return
    yield f"{target} of {facts['location']} restored by run {run_id}"
    statuses = ", ".join(f"{count:,} {status.replace('_', ' ')}" for status, count in facts["outcomes"].items())
    loaded = f"{counted(facts['rows_loaded'], 'row')} loaded now, {human_bytes(facts['bytes'])}"
    yield f"  {counted(sum(facts['outcomes'].values()), 'chunk')}, {loaded} ({statuses})"
    compared = "rows of others among them" if different else "as many as were loaded"
    there = set(facts["tables"]) - set(facts["tables_not_made"])
    hold = f"{counted(len(there), 'table')} {noun(len(there), 'holds', 'hold')}"
    yield f"  {hold} {counted(sum(facts['tables'].values()), 'row')}, {compared}"
