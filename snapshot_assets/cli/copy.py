"""`snapshots copy`."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import Any

from snapshot_assets.cli.export.create_request import given_fields, named_or_described
from snapshot_assets.cli.output import only_results_on_stdout, show, show_json, show_message
from snapshot_assets.cli.spark import refuse_unreachable_spark, start_spark_early
from snapshot_assets.databases.open import kind_of
from snapshot_assets.engine.export.chunks import Outcome
from snapshot_assets.errors import PlanError
from snapshot_assets.format.counts import counted
from snapshot_assets.format.units import human_bytes
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.plan.plan import Plan


def run(options: argparse.Namespace) -> int:
    """Copy a query's rows to an empty location, and print their number, and the path of a single file."""
    configuration, plan = _plan_of(options)
    with only_results_on_stdout():
        refuse_unreachable_spark(configuration, plan)
        if kind_of(configuration.source(plan.source).uri) != "spark":
            start_spark_early(configuration, plan)
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


def _plan_of(options: argparse.Namespace) -> tuple[Configuration, Plan]:
    given = given_fields(options)
    needed = {"query": "QUERY", "source": "--source S", "to": "--to URI"}
    configuration, plan = named_or_described(options, given, needed, kind="query")
    if plan.kind != "query":
        raise PlanError(f"plan {plan.name!r} is of kind {plan.kind}; `snapshots copy` runs plans of kind: query.")
    return configuration.with_plan(plan), plan


def _copy(options: argparse.Namespace, configuration: Configuration, plan: Plan) -> dict[str, Any]:
    # Dagster and Spark are imported only here, before data moves.
    from snapshot_assets.cli.progress import progress
    from snapshot_assets.cli.recorded_runs import open_recording_instance
    from snapshot_assets.pipeline.execute import run_copy
    from snapshot_assets.pipeline.partitions import key_of, windows_of

    now = datetime.now(UTC)
    windows = windows_of(plan, now) if plan.windowed else ()
    outcomes: list[Outcome] = []
    with progress("copying", len(windows) or 1, outcomes, options.progress) as watch:
        done = run_copy(
            configuration,
            plan,
            [key_of(window) for window in windows],
            instance=open_recording_instance(options),
            overwrite=options.overwrite,
            started=now,
            progress=watch,
        )
    values = {name: value.value for name, value in done.items() if hasattr(value, "value")}
    return {
        "location": values["location"],
        "rows": sum(outcome.rows for outcome in outcomes),
        "bytes": sum(outcome.bytes for outcome in outcomes),
        "files": sum(len(outcome.files) for outcome in outcomes),
        "file": values.get("file"),
        "sealed": values["sealed"],
        "revision": int(values["revision"]) if "revision" in values else None,
        "checksum": values.get("snapshot_checksum"),
    }
