"""`snapshots catalog compact`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.cli.location import open_catalog
from snapshot_assets.cli.output import (
    counted,
    human_bytes,
    only_results_on_stdout,
    show,
    show_json,
    show_message,
    show_table,
)
from snapshot_assets.engine.compact.plan import (
    TARGET_BYTES,
    CompactionPlan,
    Group,
    Wanted,
    plan_compaction,
)
from snapshot_assets.format.names import parse_table, table_text
from snapshot_assets.format.units import parse_file_size
from snapshot_assets.plan.configuration import ad_hoc_configuration

_NO_SOURCE = "duckdb:///dev/null"
"""A plan needs a source; a compaction does not read it."""


def run(options: argparse.Namespace) -> int:
    """Compact a snapshot by the same job as a plan. Spark starts only if there is something to merge."""
    wanted = Wanted(
        target_size=parse_file_size(options.target_size) if options.target_size else TARGET_BYTES,
        chunks=tuple(options.chunk),
        tables=tuple(map(parse_table, options.table)),
        dedupe=options.dedupe,
    )
    catalog = open_catalog(options, writing=not options.dry_run)
    plan = plan_compaction(catalog.store, catalog.state, wanted)
    if options.dry_run or not plan.groups:
        return _report_plan(options, catalog.store.uri, plan)
    with only_results_on_stdout():
        outcomes, run_id = compact(options, plan)
    return _report(options, Catalog.open(catalog.store), outcomes, run_id)


def compact(options: argparse.Namespace, compaction: CompactionPlan) -> tuple[Sequence[Any], str]:
    """Run the job of a compaction on the location of `--snapshot`.

    Args:
        options: The call.
        compaction: The plan to execute.

    Returns:
        Each chunk's outcome, and the run's id.
    """
    fields = {
        "to": options.snapshot,
        "source": _NO_SOURCE,
        "schema_only": True,
        "single_writer": options.single_writer,
    }
    configuration = ad_hoc_configuration(options.config, fields)
    # Dagster and Spark are imported only here, when data is about to move.
    from snapshot_assets.cli.progress import progress
    from snapshot_assets.pipeline.execute import open_instance, run_compaction

    instance = open_instance()
    show_message(f"Runs are recorded in {instance.root_directory}")
    outcomes: list[Any] = []
    with progress("compacting", len(compaction.chunks)) as advance:

        def note(outcome: Any) -> None:
            outcomes.append(outcome)
            advance(sum(file.rows for file in outcome.files), outcome.bytes_after)

        plan = configuration.plans[-1]
        run_id = run_compaction(configuration, plan, compaction, instance=instance, on_compacted=note)
    return outcomes, run_id


def _report_plan(options: argparse.Namespace, uri: str, plan: CompactionPlan) -> int:
    if options.json:
        report = {"uri": uri, "dry_run": options.dry_run, "run_id": None, "revision": plan.token.revision}
        sizes = {"files_before": plan.files_before, "files_after": plan.files_after, "bytes_before": plan.bytes_before}
        show_json(report | sizes | {"groups": groups_json(plan.groups)})
    elif not plan.groups:
        show("nothing to compact")
    else:
        show_groups(plan.groups)
        show(f"{counted(plan.files_before, 'file')} would be merged into about {plan.files_after}")
    return 0


def groups_json(groups: Iterable[Group]) -> list[dict[str, Any]]:
    """Return what would be compacted, for JSON."""
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


def show_groups(groups: Iterable[Group]) -> None:
    """Print what would be compacted."""
    rows = [
        (each["chunk"], each["table"], each["files"], each["bytes"], ", ".join(each["reasons"]))
        for each in groups_json(groups)
    ]
    show_table(("Chunk", "Table", "Files", "Bytes", "Because of"), rows)


def _report(options: argparse.Namespace, catalog: Catalog, outcomes: Sequence[Any], run_id: str) -> int:
    from snapshot_assets.engine.compact.run import totals_of  # the job has imported it

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
        f"{report['files_after']}, {human_bytes(report['bytes_after'])}; {report['rows_deleted']:,} deleted rows and "
        f"{report['rows_duplicate']:,} duplicates left out"
    )
    return 0
