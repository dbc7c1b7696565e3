"""`snapshots catalog compact` and `snapshots savepoint create`, which compacts first."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.pins.listing import list_savepoints
from snapshot_assets.catalog.pins.objects import sealed_head
from snapshot_assets.cli.location import open_catalog, place_of
from snapshot_assets.cli.output import only_results_on_stdout, plain, show, show_json, show_table
from snapshot_assets.cli.recorded_runs import Run, run_recorded
from snapshot_assets.cli.spark import place_of_options, refuse_files_elsewhere, refuse_unreachable_spark, spark_runner
from snapshot_assets.engine.compact.options import TARGET_BYTES, CompactionOptions
from snapshot_assets.engine.compact.plan import CompactionPlan, Group, compact_and_pin, compactions, plan_compaction
from snapshot_assets.format.names import parse_table, table_text
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.units import counted, human_bytes, parse_file_size
from snapshot_assets.plan.read_configuration import Needed, load_configuration, plan_name
from snapshot_assets.plan.spark_settings import merged_settings

if TYPE_CHECKING:
    from snapshot_assets.engine.compact.run import Compacted


def run(options: argparse.Namespace) -> int:
    """Compact a snapshot. Spark starts only if there is something to merge."""
    compaction = CompactionOptions(
        target_size=parse_file_size(options.target_size) if options.target_size else TARGET_BYTES,
        chunks=tuple(options.chunk),
        tables=tuple(map(parse_table, options.table)),
        dedupe=options.dedupe,
    )
    catalog = open_catalog(options, writing=not options.dry_run, seals=True)
    plan = plan_compaction(catalog.store, catalog.state, compaction)
    if options.dry_run or not plan.groups:
        return _report_plan(options, catalog.store.uri, plan)
    outcomes, run_id = _compact(options, catalog, plan)
    return _report(options, Catalog.open(catalog.store), outcomes, run_id)


def _compact(options: argparse.Namespace, catalog: Catalog, plan: CompactionPlan) -> tuple[list[Compacted], str]:
    """Execute a plan; returns each chunk's outcome, and the run's id."""
    place = place_of(options)
    name = place.plan.name if place.plan else plan_name(catalog.store.uri)
    configured = load_configuration(options.config, needed=Needed()).spark
    own = merged_settings(place.plan.spark if place.plan else {}, place_of_options(options))
    settings = merged_settings(configured, own)
    refuse_unreachable_spark(settings)
    refuse_files_elsewhere(settings, name, catalog.store.uri)
    from snapshot_assets.cli.progress import progress  # only here, when data is about to move

    outcomes: list[Compacted] = []

    def work(run: Run) -> str:
        from snapshot_assets.engine.compact.run import CompactRun
        from snapshot_assets.engine.session import parallel_chunks

        with spark_runner(settings, run, catalog.store) as runner:
            compacting = CompactRun(catalog, runner, run.id, lambda: parallel_chunks(runner.session()))
            with closing(compacting.execute(plan)) as done:
                for outcome in done:
                    watch.outcome(outcome)
        if run.context is not None:
            from snapshot_assets.pipeline.dagster.metadata import compaction_metadata

            run.context.add_output_metadata(compaction_metadata(outcomes))
        return run.id

    with only_results_on_stdout(), progress("compacting", len(plan.chunks), outcomes, options.progress) as watch:
        return outcomes, run_recorded(options, f"{name}_maintenance", watch, work)


def _report_plan(options: argparse.Namespace, uri: str, plan: CompactionPlan) -> int:
    if options.json:
        report = {"uri": uri, "dry_run": options.dry_run, "run_id": None, "revision": plan.token.revision}
        sizes = {"files_before": plan.files_before, "files_after": plan.files_after, "bytes_before": plan.bytes_before}
        show_json(report | sizes | {"groups": _groups_json(plan.groups)})
    elif not plan.groups:
        show("nothing to compact")
    else:
        _show_groups(plan.groups)
        before, after = counted(plan.files_before, "file"), counted(plan.files_after, "file")
        show(f"{before} would be {'rewritten' if plan.files_before == 1 else 'merged'} as about {after}")
    return 0


def _groups_json(groups: Iterable[Group]) -> list[dict[str, Any]]:
    return [
        {
            "chunk": group.chunk,
            "table": table_text(group.table.table_name),
            "files": len(group.files),
            "rows": group.rows,
            "bytes": group.bytes,
            "reasons": list(group.reasons),
        }
        for group in groups
    ]


def _show_groups(groups: Iterable[Group]) -> None:
    rows = [
        (each["chunk"], each["table"], each["files"], human_bytes(each["bytes"]), ", ".join(each["reasons"]))
        for each in _groups_json(groups)
    ]
    show_table(("Chunk", "Table", "Files", "Size", "Because of"), rows)


def _report(options: argparse.Namespace, catalog: Catalog, outcomes: Sequence[Any], run_id: str) -> int:
    from snapshot_assets.engine.compact.run import totals_of  # the compaction has imported it

    report: dict[str, Any] = {
        "uri": catalog.store.uri,
        "dry_run": False,
        "run_id": run_id,
        "revision": catalog.state.revision,
        "chunks": len(outcomes),
        **totals_of(outcomes),
    }
    if options.json:
        show_json(report)
        return 0
    show(f"{report['uri']}: {counted(len(outcomes), 'chunk')} compacted by run {run_id}, revision {report['revision']}")
    show(
        f"  {counted(report['files_before'], 'file')}, {human_bytes(report['bytes_before'])}, became "
        f"{report['files_after']:,}, {human_bytes(report['bytes_after'])};"
        f" {counted(report['rows_deleted'], 'deleted row')} and "
        f"{counted(report['rows_duplicate'], 'duplicate')} left out"
    )
    return 0


def create_savepoint(options: argparse.Namespace) -> int:
    """Compact everything, then pin it. Spark starts only if there is something to compact."""
    catalog = open_catalog(options, writing=not options.dry_run, seals=True)
    if options.dry_run:
        return _report_savepoint_plan(options, catalog)
    runs: list[str] = []
    outcomes: list[Any] = []

    def compact_all(plan: CompactionPlan) -> None:
        compacted, run_id = _compact(options, catalog, plan)
        outcomes.extend(compacted)
        runs.append(run_id)

    savepoint = compact_and_pin(catalog, compact_all).pin
    chunks = len(outcomes)
    if options.json:
        [listed] = [each for each in list_savepoints(catalog.state) if each.savepoint_id == savepoint.id]
        show_json({"uri": catalog.store.uri, "run_ids": runs, "chunks_compacted": chunks} | plain(asdict(listed)))
    else:
        done = f"{counted(chunks, 'chunk')} compacted by run {', '.join(runs)}" if runs else "nothing to compact"
        show(f"{catalog.store.uri}: savepoint {savepoint.id} keeps revision {savepoint.revision}; {done}")
    return 0


def _report_savepoint_plan(options: argparse.Namespace, catalog: Catalog) -> int:
    """Print what would be compacted, and what would be pinned: the newest seal, or the result of the compaction."""
    sealed = sealed_head(catalog.state)
    found: dict[tuple[int, TableName], Group] = {}
    for plan in compactions(catalog.store, catalog.state):
        for group in plan.groups:
            key = group.chunk, group.table.table_name
            if key not in found or found[key].kept:  # else an earlier compaction takes the group whole
                found[key] = group
    groups = [found[key] for key in sorted(found)]
    number, revision = catalog.state.pins.last_savepoint + 1, None if groups else sealed
    if options.json:
        facts = {"uri": catalog.store.uri, "dry_run": True, "savepoint_id": number, "saved_snapshot_id": revision}
        show_json(facts | {"groups": _groups_json(groups)})
        return 0
    if groups:
        _show_groups(groups)
        size = human_bytes(sum(group.bytes for group in groups))
        show(f"{counted(sum(len(group.files) for group in groups), 'file')}, {size}, would be rewritten")
    what = "the result" if revision is None else f"revision {revision}; nothing to compact"
    show(f"{catalog.store.uri}: savepoint {number} would keep {what}")
    return 0
