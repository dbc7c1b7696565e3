"""Prints what `snapshots import` did or would do: a verdict of at most ten lines, after every step that failed."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from snapshot_assets.cli.exit_status import ExitStatus, exit_status
from snapshot_assets.cli.output import show, show_json, show_message
from snapshot_assets.engine.restore.damage import left_out, partly_restored
from snapshot_assets.engine.restore.loader import ChunkOutcome
from snapshot_assets.engine.restore.plan import RestorePlan
from snapshot_assets.engine.restore.refusals import missing_facts, missing_lines
from snapshot_assets.engine.restore.row_counts import how_to_load_again, loaded_and_found
from snapshot_assets.engine.restore.run import RestoreRun
from snapshot_assets.engine.restore.steps import FailedStep, KeptStep, Left, incomplete
from snapshot_assets.engine.restore.windows import numbered
from snapshot_assets.errors import RestoreError, SnapshotError
from snapshot_assets.format.kinds import counts_by_kind, counts_text, kind_of_object
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
    status = ExitStatus.DAMAGED if plan.partial else ExitStatus.FAILED if plan.rehearsal.failed else ExitStatus.DONE
    if not options.json:
        show(f"{location} at revision {plan.state.revision} into {alias}: nothing was changed")
        show(f"  would load {counted(len(files), 'file')}, {counted(rows, 'row')}, {human_bytes(size)}")
        if replaced:
            show(f"  would delete the rows of {numbered(replaced)} first")
        for left in left_out(plan):
            show(f"  would leave out {left}")
        for line in _plan_lines(plan, verbose=options.verbose):
            show(f"  {line}")
        return status
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
        "would_fail": {str(each.statement.key): each.message for each in plan.rehearsal.failed},
        "not_rehearsed": [
            {"because": reason, "count": len(keys), "statements": list(map(str, keys))}
            for reason, keys in plan.rehearsal.untried.items()
        ],
        "missing": missing_facts(plan.lacking),
        "left_out_by_damage": [each.facts for each in left_out(plan)],
        **kept_facts(plan),
        **_lost_facts(plan),
    }
    show_json(report)
    return status


def _plan_lines(plan: RestorePlan, *, verbose: bool) -> Iterator[str]:
    """Yield what a restore would make and leave; with `verbose`, a line for each object instead of a kind."""
    steps = plan.to_create()
    if verbose:
        yield from (f"would make {step.name}" for step in steps)
    elif steps:
        yield f"would make {counts_text(counts_by_kind(step.kind for step in steps))}; --verbose names them"
    yield from left_lines(plan, verbose=verbose)
    for reason, keys in plan.rehearsal.untried.items():
        yield f"not rehearsed: {counted(len(keys), 'statement')}, because {reason}"
    for failed in plan.rehearsal.failed:
        yield f"would fail: {failed.statement.key}: {failed.message}"
    if plan.lacking:
        yield "the target lacks what only these need; the statements are the snapshot's text, so read them first:"
        yield from missing_lines(plan.lacking).splitlines()


def report(options: argparse.Namespace, location: str, run: RestoreRun, work: ImportWork) -> int:
    """Print what an import has done; returns the exit status.

    Raises:
        RestoreError: Tables hold fewer rows than were loaded, or more, which only `--into-nonempty` allows.
    """
    plan = run.current()
    different = {name: both for name, both in work.counts.items() if both[0] != both[1] and name not in plan.absent}
    if any(found < loaded or not plan.record.into_nonempty for loaded, found in different.values()):
        some = "; ".join(f"{name}: {loaded_and_found(*both)}" for name, both in different.items())
        raise RestoreError(
            f"The target's row counts differ from what was loaded: {some}. {how_to_load_again(plan)}",
            tables=sorted(map(table_text, different)),
        )
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
        "made": counts_by_kind(step.kind for step in plan.steps.made()),
        "failed": [each.facts for each in failed],
        "left_out": [step.name for step in plan.steps.left_out()],
        "tables_not_made": sorted(map(table_text, plan.absent)),
        **kept_facts(plan),
        **_lost_facts(plan),
    }
    if error is not None:
        show_message(f"snapshots: {error}")
        facts["error"] = {"kind": type(error).__name__, "exit_status": exit_status(error), "message": str(error)}
    if options.json:
        show_json(facts)
    else:
        nothing = work.run_id is None and not run.changed and not failed
        for line in _report_lines(plan, failed, facts, different=bool(different), nothing=nothing):
            show(line)
        # A repeated import with --verbose names what the first one only counted.
        for line in left_lines(plan, verbose=options.verbose) if options.verbose or not nothing else ():
            show(f"  {line}")
    return exit_status(error) if error is not None else ExitStatus.DONE


def _report_lines(
    plan: RestorePlan, failed: Sequence[FailedStep], facts: Mapping[str, Any], *, different: bool, nothing: bool
) -> Iterator[str]:
    """Yield the steps that failed, with the statements to run by hand, the verdict, and what was made.

    `nothing` if nothing was done, and `different` if tables hold rows of others too.
    """
    for each in failed:
        yield f"could not be made: {each.object}"
        yield f"  message: {each.message}"
        yield from (f"  run by hand: {sql};" for sql in each.statements)
    yield from _verdict(facts, different=different, nothing=nothing)
    if nothing:
        return
    if made := plan.steps.made():
        yield f"  made: {counts_text(counts_by_kind(step.kind for step in made))}"
    if failed:
        yield f"  could not be made: {counts_text(counts_by_kind(each.kind for each in failed))}; see above"
    if plan.absent:
        names = sorted(map(str, plan.absent))
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        yield f"  rows are not loaded of tables that could not be made: {', '.join(names[:_NAMED])}{more}"


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


_NAMED = 3

_NOT_COMPARED = "parts of what the target had, left as they are there and not compared with the snapshot"

_NOT_MADE = "not made, because tables that the target had refused them"


def kept_facts(plan: RestorePlan) -> dict[str, Any]:
    """Return what JSON says of what the target had and no import made, and of what was left out because of it."""
    kept, parts, refused = _kept(plan)
    return {
        "kept": [each.object for each in kept],
        "kept_by_kind": counts_by_kind(each.kind for each in kept),
        "differs": {each.object: each.message for each in kept if each.message},
        "not_compared": {each.object: each.message for each in parts},
        "not_compared_by_kind": counts_by_kind(each.kind for each in parts),
        "not_made": {each.object: each.message for each in refused},
        "not_made_by_kind": counts_by_kind(each.kind for each in refused),
    }


def _kept(plan: RestorePlan) -> tuple[list[KeptStep], list[KeptStep], list[KeptStep]]:
    """Return what the target had, what belongs to that and was left as it is there, and what a table refused."""
    every = plan.steps.kept(plan.foreseen)
    kept, parts, refused = (
        [each for each in every if each.why is why] for why in (Left.THERE, Left.PART, Left.REFUSED)
    )
    return kept, parts, refused


def left_lines(plan: RestorePlan, *, verbose: bool) -> Iterator[str]:
    """Yield what is left as the target had it, what was left out because of it, and what is not carried over.

    By kind; with `verbose`, a line for each object instead.
    """
    kept, parts, refused = _kept(plan)
    if differing := [each.object for each in kept if each.message]:
        more = "" if verbose or len(differing) <= _NAMED else f" and {len(differing) - _NAMED} more"
        names = ", ".join(differing if verbose else differing[:_NAMED])
        yield f"differs from the snapshot, and is left as the target has it: {names}{more}"
    if verbose:
        yield from (f"left as the target has it: {each.object}" for each in kept)
        yield from (f"neither made nor compared: {each.object}: {each.message}" for each in parts)
        yield from (f"not made: {each.object}: {each.message}" for each in refused)
        yield from (f"not carried over: {sentence}" for sentence in plan.lost)
        return
    for what, steps in (("left as the target has it", kept), (_NOT_COMPARED, parts), (_NOT_MADE, refused)):
        if steps:
            counts = counts_text(counts_by_kind(each.kind for each in steps))
            yield f"{what}: {counts}; --verbose names them"
    if without := plan.steps.left_out():
        counts = counts_text(counts_by_kind(step.kind for step in without))
        may_ask = plan.same_kind and not plan.settings.filters.code
        remedy = "; --with-code makes functions of the snapshot" if may_ask else ""
        yield f"left out until the target has what they need: {counts}{remedy}"
    if lost := plan.lost_for_ever:
        yield f"not carried over: {counts_text(counts_by_kind(map(kind_of_object, lost)))}; --verbose names them"


def lost_lines(plan: RestorePlan) -> Iterator[str]:
    """Yield what a restore does not carry over, before it loads rows: the first sentences of each kind."""
    by_kind: dict[str, list[str]] = {}
    for sentence in plan.lost_for_ever:
        by_kind.setdefault(kind_of_object(sentence), []).append(sentence)
    for kind, sentences in by_kind.items():
        more = len(sentences) - _NAMED
        yield from (f"not carried over: {sentence}" for sentence in sentences[:_NAMED])
        if more > 0:
            yield f"not carried over: {counts_text({kind: more})} more; --dry-run --verbose names them"


def _lost_facts(plan: RestorePlan) -> dict[str, Any]:
    """Return what a restore cannot carry over, by kind and by object, and its warnings.

    The counts do not have the views of `left_out`, which a later run may make.
    """
    counts = counts_by_kind(map(kind_of_object, plan.lost_for_ever))
    return {"lost_by_kind": counts, "lost": list(plan.lost), "warnings": list(plan.warnings)}
