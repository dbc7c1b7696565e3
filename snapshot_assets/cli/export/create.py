"""`snapshots export create`."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.manifest import consistency_text
from snapshot_assets.catalog.operations.seal import check_to_seal, damage_error, hints_written
from snapshot_assets.catalog.pins.tags import create_due_tag
from snapshot_assets.catalog.replication.replicate import Replication, replicate
from snapshot_assets.catalog.schemas import read_schema
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.totals import outside_text, refuse_recorded, rows_outside
from snapshot_assets.catalog.verify.faults import Fault
from snapshot_assets.catalog.verify.hints import damaged_documents
from snapshot_assets.catalog.verify.objects import verified_revision
from snapshot_assets.cli.export import create_request as request
from snapshot_assets.cli.export.changed import facts as change_facts
from snapshot_assets.cli.output import only_results_on_stdout, show, show_json, show_message
from snapshot_assets.cli.recorded_runs import Run, run_recorded
from snapshot_assets.cli.spark import (
    opened_export_run,
    refuse_files_elsewhere,
    refuse_unreachable_spark,
    start_spark_early,
)
from snapshot_assets.databases.contract import Access
from snapshot_assets.databases.open import kind_of
from snapshot_assets.engine.export.restore_needs import restore_warnings
from snapshot_assets.engine.export.start_snapshot import next_export, open_windows_text, skipped_text
from snapshot_assets.engine.export.tasks import Outcome
from snapshot_assets.engine.schema_history import history_warnings
from snapshot_assets.errors import PlanError
from snapshot_assets.format.kinds import code_by_kind, kinds_text, uncarried_by_kind
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.units import counted, human_bytes, time_text
from snapshot_assets.format.windows import TimeRange, plan_windows
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.plan.plan import Plan
from snapshot_assets.plan.windows import windows_of
from snapshot_assets.storage.base import ObjectStore

if TYPE_CHECKING:
    from snapshot_assets.engine.export.changes import Changes
    from snapshot_assets.engine.export.run import OpenExport
    from snapshot_assets.engine.progress import Progress
    from snapshot_assets.pipeline.recording import ExportRecorder


def run(options: argparse.Namespace) -> int:
    """Create a snapshot, or resume the existing one."""
    configuration, plan = request.plan_of(options)
    replace = request.parse_range(options.replace, "--replace")
    source = configuration.source(plan.source)
    store = configuration.store(plan)
    state = Catalog.open(store).state
    request.check_location(plan, state, source, replace=replace is not None, force=options.force)
    changed = not options.force and (options.changed or plan.late_windows == "changed")
    if request.nothing_to_do(plan, state) and not options.force and replace is None and not changed:
        hashed, damaged = _checked(plan, store, state)
        if not damaged:
            if plan.fail_on_rows_outside:
                refuse_recorded(state)
            # A snapshot does not record which tables `untimed_tables: skip` left out.
            skip = state.header is not None and state.header.untimed_tables == "skip"
            if plan.replicate_to:  # an earlier run may have sealed and not replicated
                _replicate(plan, store, configuration.replica_store(plan))
            work = _Work(skipped=None if skip else (), replica=plan.replicate_to)
            return _report(options, plan, store, state, work, hashed)
        show_message(f"{' '.join(fault.message for fault in damaged)} They are written again from the source.")
    request.check_replica(configuration, plan, state)
    with only_results_on_stdout():
        settings = configuration.spark_settings(plan)
        if not plan.schema_only:
            refuse_files_elsewhere(settings, plan.name, plan.to, source)
            refuse_unreachable_spark(settings)
        again = options.force or replace is not None
        in_tasks = not plan.schema_only and kind_of(source.uri).access is Access.CONNECTION
        if in_tasks and (again or request.lacks_chunks(plan, state)):
            start_spark_early(settings)
        work = _export(options, configuration, plan, state, replace, changed=changed)
    work.replica, after = plan.replicate_to, Catalog.open(store).state
    work.sealed = after.newest_seal != state.newest_seal
    return _report(options, plan, store, after, work)


@dataclass
class _Work:
    """Results of a call's run, if there was one.

    Attributes:
        skipped: Tables that are not exported because they have no time index; None if they are unknown.
        replica: The location to which the snapshot was replicated; None without one.
        changes: What was looked at for changes; None if the call did not look.
        sealed: Whether the run sealed the snapshot; not if it found nothing to change.
        unshared: Why tasks read states of their own; "" if they read one.
    """

    run_id: str | None = None
    outcomes: list[Outcome] = field(default_factory=list)
    skipped: Sequence[TableName] | None = ()
    replica: str | None = None
    changes: Changes | None = None
    sealed: bool = True
    unshared: str = ""


def _checked(plan: Plan, store: ObjectStore, state: State) -> tuple[int, list[Fault]]:
    """Check a finished snapshot as a seal does; returns the bytes hashed, and the damage that an export repairs."""
    verified = 0 if plan.seal_verify == "full" else verified_revision(state)
    repaired = damaged_documents(store, state)
    report = check_to_seal(store, state, datetime.now(UTC), verified)
    paths = {fault.object for fault in repaired}
    if lasting := [fault for fault in report.faults if fault.object not in paths]:
        raise damage_error(state, lasting, f"The snapshot at {store.uri} is sealed, but it is damaged")
    return report.bytes, repaired


def _export(
    options: argparse.Namespace,
    configuration: Configuration,
    plan: Plan,
    state: State,
    replace: TimeRange | None,
    *,
    changed: bool,
) -> _Work:
    resolved = request.prepared(configuration, plan, state, force=options.force)
    from snapshot_assets.cli.progress import progress  # only here, before data moves
    from snapshot_assets.engine.export.changes import chunks_to_look_at, find_changes

    now = datetime.now(UTC)  # a window that closes from here on belongs to the next run
    parts = _parts(resolved, state, replace, now, force=options.force, changed=changed)
    work = _Work()

    def export(run: Run) -> None:
        work.run_id, kind = run.id, kind_of(configuration.source(plan.source).uri)
        recorder = run.export_recorder(configuration, resolved)
        # `prepared` has read the rows of sources other than Spark.
        own = {"written": plan, "force": options.force, "check_rows": kind.access is Access.SESSION}
        with (
            opened_export_run(run, configuration, resolved, started=now, **own) as export_run,
            export_run.open() as opened,
        ):
            work.skipped, work.unshared = opened.skipped, opened.source.unshared if opened.source else ""
            looked_at = chunks_to_look_at(opened.catalog.state, plan, now) if changed else []
            if recorder is not None:
                recorder.schema(opened)
            with hints_written(opened.catalog, lambda text: show_message(text, "warning")):
                for chunks, again in parts:
                    _commit(opened.commits(chunks, replace_completed=again), opened, run, watch, recorder)
                if changed:
                    work.changes = find_changes(opened, looked_at, watch.stage)
                    only = work.changes.only
                    commits = opened.commits(list(only), replace_completed=True, only=only)
                    _commit(commits, opened, run, watch, recorder)
            if recorder is None:
                opened.seal()
            else:
                recorder.seal(opened)
            rule = plan.retention.tag
            if rule is not None and create_due_tag(opened.catalog, rule.rule) and recorder is not None:
                recorder.tags(opened.catalog)
            if plan.replicate_to is not None:
                replica = configuration.replica_store(plan)
                done = _replicate(plan, opened.catalog.store, replica)
                if recorder is not None:
                    recorder.replicated(done, replica)

    with progress("exporting", sum(len(chunks) for chunks, _ in parts), work.outcomes, options.progress) as watch:
        run_recorded(options, f"{plan.name}_export", watch, export)
    return work


def _replicate(plan: Plan, store: ObjectStore, replica: ObjectStore) -> Replication:
    return replicate(store, replica, delete=plan.replicate_delete, single_writer=plan.single_writer)


def _parts(
    plan: Plan, state: State, replace: TimeRange | None, now: datetime, *, force: bool, changed: bool
) -> list[tuple[list[int], bool]]:
    """Return the chunks to export in order, with whether completed ones are exported again.

    Replaced windows come first: a window may be replaced because it is damaged, and no seal takes place over damage.
    """
    windows, replaced = windows_of(plan, now), list[int]()
    if replace is not None:
        replaced = [each.id for each in windows if each.start < replace.end and replace.start < each.end]
        if not replaced:
            span = f"[{time_text(windows[0].start)}, {time_text(windows[-1].end)})" if windows else "empty"
            raise PlanError(
                f"--replace {time_text(replace.start)}/{time_text(replace.end)}: no window overlaps it; the snapshot's"
                f" range is {span}."
            )
    parts = [(replaced, True)] if replaced else []
    if plan.schema_only or (replaced and request.nothing_to_do(plan, state)):
        return parts
    first = 0
    if plan.kind != "once" and not force and state.header is not None:
        # A run of a `once` plan skips completed windows itself, and so records them in this Dagster instance too.
        first = next((at for at, window in enumerate(windows) if not state.completed(window.id)), len(windows))
    new = [window.id for window in windows[first:] if window.id not in replaced]
    if changed and state.completed(UNTIMED_CHUNK):
        return [*parts, (new, False)]
    again = plan.kind == "continuous"  # its untimed tables are exported by each run
    return [*parts, (new, False), ([UNTIMED_CHUNK], True)] if again else [*parts, ([*new, UNTIMED_CHUNK], False)]


def _commit(
    commits: Generator[Sequence[Outcome], None, None],
    export: OpenExport,
    run: Run,
    watch: Progress,
    recorder: ExportRecorder | None,
) -> None:
    """Commit chunks, and report each transaction."""
    with closing(commits):
        for outcomes in commits:
            text = watch.committed([outcome for outcome in outcomes if outcome.error is None])
            if recorder is not None:
                recorder.chunks(export, outcomes)
            if text:
                run.log(text)


def _report(
    options: argparse.Namespace, plan: Plan, store: ObjectStore, state: State, work: _Work, hashed: int = 0
) -> int:
    """Print the result, or for a finished snapshot how much of it was hashed."""
    report = _facts(plan, store, state, work, hashed)
    if options.json:
        show_json(report)
        return 0
    if report["run_id"]:
        done = "sealed" if work.sealed else "as it was before, found so"
        outcome = f"{done} by run {report['run_id']}"
    elif "exported_until" not in report:
        outcome = "complete already; nothing was exported"
    else:  # complete only up to a time, though the source was not asked
        until = report["exported_until"]
        found = f"complete up to {until}" if until else "no window has closed yet"
        outcome = f"{found}; nothing was exported, and the source was not read"
    show(f"{store.uri}: {outcome}")
    counts = ", ".join(f"{count:,} {status}" for status, count in report["outcomes"].items())
    show(
        f"  {counted(report['chunks'], 'chunk')}, {counted(report['files'], 'file')}, {counted(report['rows'], 'row')},"
        f" {human_bytes(report['bytes'])}" + (f" ({counts})" if counts else "")
    )
    show(f"  revision {report['revision']}, checksum {report['checksum']}")
    show(f"  {consistency_text(state)}")
    if work.run_id is None:
        show(f"  all files are there with their size; {human_bytes(hashed)} of them hashed")
    for note in _notes(report, work):
        show(f"  {note}")
    return 0


def _facts(plan: Plan, store: ObjectStore, state: State, work: _Work, hashed: int) -> dict[str, Any]:
    seal, header = state.newest_seal, state.header
    schema = read_schema(store, state.schemas[state.schema_id])
    files = [each.file for each in state.live_files()]
    warnings = [*history_warnings(store, state), *restore_warnings(schema), *filter(None, [work.unshared])]
    if header is not None and header.kind == "once" and header.start and header.end and not header.schema_only:
        windows = plan_windows(header.start, header.end, timedelta(microseconds=header.chunk_time_window))
        if text := open_windows_text(windows, datetime.now(UTC)):  # a fixed range has windows in the future
            warnings.insert(0, text)
    last = {outcome.chunk: outcome.status for outcome in work.outcomes}
    report: dict[str, Any] = {
        "location": store.uri,
        "run_id": work.run_id,
        "snapshot_id": state.snapshot_id,
        "revision": state.revision,
        "checksum": seal.seal.checksum if seal else None,
        "sealed_at": time_text(seal.committed_at) if seal else None,
        "consistency": seal.seal.consistency if seal else None,
        "chunks": len(state.counted_chunks()),
        "outcomes": dict(sorted(Counter(last.values()).items())),
        "rows": sum(file.rows for file in files),
        "bytes": sum(file.bytes for file in files),
        "files": len(files),
        "rows_outside": [vars(each) for each in rows_outside(state)],
        "code": code_by_kind(schema),
        "not_carried": uncarried_by_kind(schema),
        "not_exported": outside_text(state),
        "hidden": list(header.hidden) if header else [],
        "warnings": warnings,
    }
    if work.changes is not None:
        report |= change_facts(work.changes)
    if work.replica:
        report["replicated_to"] = work.replica
    if plan.kind == "continuous" and not plan.schema_only and header is not None:
        following = next_export(plan, header.end)
        report["exported_until"] = time_text(header.end) if header.end else None
        report["next_window_at"] = time_text(following) if following else None
    if work.skipped is not None:
        report["tables_skipped"] = [table_text(name) for name in work.skipped]
    if work.run_id is None:
        report["hashed_bytes"] = hashed
    return report


def _notes(report: Mapping[str, Any], work: _Work) -> Iterator[str]:
    """Yield when more can be exported, where the snapshot was replicated, and how it differs from the source."""
    if following := report.get("next_window_at"):
        closed = datetime.fromisoformat(following) <= datetime.now(UTC)
        yield f"the next window can be exported {'now' if closed else f'from {following} on'}"
    if work.changes is not None and work.changes.chunks:
        yield str(work.changes)
    if work.replica:
        yield f"replicated to {work.replica}"
    if report["not_exported"]:
        yield report["not_exported"]
    if report["hidden"]:
        yield f"hidden by the plan: {', '.join(report['hidden'])}"
    if work.skipped:
        yield skipped_text(work.skipped)
    if report["code"]:
        yield f"code, restored only with --with-code: {kinds_text(report['code'])}"
    if report["not_carried"]:
        yield f"not in the snapshot: {kinds_text(report['not_carried'])}"
    yield from (f"warning: {sentence}" for sentence in report["warnings"])
