"""`snapshots copy`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.cli.export.create_request import given_fields, named_or_described
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
from snapshot_assets.engine.export.tasks import Outcome
from snapshot_assets.errors import PlanError
from snapshot_assets.format.units import counted, human_bytes
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.plan.location_template import resolve_location
from snapshot_assets.plan.plan import Plan
from snapshot_assets.plan.windows import windows_of

if TYPE_CHECKING:
    from snapshot_assets.engine.export.copy import Copied
    from snapshot_assets.engine.progress import Progress


def run(options: argparse.Namespace) -> int:
    """Copy a query's rows to an empty location, and print their number, and the path of a single file."""
    needed = {"query": "QUERY", "source": "--source S", "to": "--to URI"}
    configuration, plan = named_or_described(options, given_fields(options), needed, kind="query")
    if plan.kind != "query":
        raise PlanError(f"plan {plan.name!r} is of kind {plan.kind}; `snapshots copy` runs plans of kind: query.")
    configuration = configuration.with_plan(plan)
    with only_results_on_stdout():
        settings, source = configuration.spark_settings(plan), configuration.source(plan.source)
        refuse_unreachable_spark(settings)
        refuse_files_elsewhere(settings, plan.name, plan.to, source)
        if kind_of(source.uri).access is Access.CONNECTION:
            start_spark_early(settings)
        report = _copy(options, configuration, plan)
    if options.json:
        show_json(report)
        return 0
    show(f"COPY {report['rows']}")
    if report["file"] is not None:
        show(report["file"])
    show_message(
        f"{report['location']}: {counted(report['files'], 'file')}, {human_bytes(report['bytes'])}"
        + (f", sealed at revision {report['revision']}" if report["sealed"] else ", windows are missing")
    )
    return 0


def _copy(options: argparse.Namespace, configuration: Configuration, plan: Plan) -> dict[str, Any]:
    # Spark is imported only here, before data moves.
    from snapshot_assets.cli.progress import progress

    outcomes: list[Outcome] = []
    now = datetime.now(UTC)
    chunks = len(windows_of(plan, now)) if plan.windowed else 1
    with progress("copying", chunks, outcomes, options.progress) as watch:
        work = partial(_run, options, configuration, plan, now, watch)
        uri, copied = run_recorded(options, f"{plan.name}_copy", watch, work)
    files = [file for outcome in outcomes for file in outcome.files]
    single, seal = copied.state.header is not None and copied.state.header.single_file, copied.sealed
    return {
        "location": uri,
        "rows": sum(file.rows for file in files),
        "bytes": sum(file.bytes for file in files),
        "files": len(files),
        "file": f"{uri}/{files[0].path}" if single else None,
        "sealed": seal is not None,
        "revision": seal.seal.revision if seal else None,
        "checksum": seal.seal.seal.checksum if seal else None,
    }


def _run(
    options: argparse.Namespace,
    configuration: Configuration,
    plan: Plan,
    now: datetime,
    watch: Progress,
    run: Run,
) -> tuple[str, Copied]:
    """Copy in a run; returns the location's URI, and the copy."""
    from snapshot_assets.engine.export.copy import copy

    located = plan.changed(to=resolve_location(plan.to, now=now, plan=plan.name, run_id=run.id))
    recorder = run.export_recorder(configuration, located)

    def report(outcomes: Sequence[Outcome], state: State) -> None:
        text = watch.committed(outcomes)
        if recorder is not None:
            recorder.copied_windows(outcomes, state)
        if text:
            run.log(text)

    windows = [window.id for window in windows_of(plan, now)] if plan.windowed else []
    with opened_export_run(run, configuration, located, started=now) as export_run:
        copied = copy(export_run, windows, overwrite=options.overwrite, on_commit=report)
        uri = export_run.store.uri
    if recorder is not None:
        recorder.copied(copied, uri)
    return uri, copied
