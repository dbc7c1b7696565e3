"""`snapshots export create`."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from typing import Any

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.derived import damaged_documents
from snapshot_assets.catalog.state import State
from snapshot_assets.cli import request
from snapshot_assets.cli.output import human_bytes, only_results_on_stdout, say, show, show_json
from snapshot_assets.configuration import Configuration
from snapshot_assets.engine.begin import requested_range
from snapshot_assets.engine.export import Outcome
from snapshot_assets.format.units import time_text
from snapshot_assets.format.windows import TimeRange
from snapshot_assets.plan import Plan
from snapshot_assets.storage.base import ObjectStore


def run(options: argparse.Namespace) -> int:
    """Create a snapshot, or go on with the one that is there."""
    configuration, plan = request.plan_of(options)
    replace = request.parse_range(options.replace, "--replace")
    alias = configuration.source(plan.source).alias
    store = configuration.store(plan)
    state = Catalog.open(store).state
    request.check_location(plan, state, alias, replace=replace is not None, force=options.force)
    if request.nothing_to_do(plan, state) and not options.force and replace is None:
        damaged = damaged_documents(store, state)
        if not damaged:
            return _report(options, store, state, [], None)
        say(f"{' '.join(fault.message for fault in damaged)} What the source still tells is written again.")
    with only_results_on_stdout():
        outcomes, run_id = _export(configuration, plan, state, replace, force=options.force)
    return _report(options, store, Catalog.open(store).state, outcomes, run_id)


def _export(
    configuration: Configuration, plan: Plan, state: State, replace: TimeRange | None, *, force: bool
) -> tuple[Sequence[Outcome], str]:
    resolved = request.prepared(configuration, plan, state, force=force)
    # Dagster and Spark are imported only here, when data is about to move.
    from snapshot_assets.cli.progress import progress
    from snapshot_assets.pipeline.execute import open_instance, run_plan
    from snapshot_assets.pipeline.partitions import key_of, windows_of

    windows = windows_of(resolved)
    replaced = request.windows_to_replace(windows, replace) if replace else ()
    todo = request.windows_to_export(resolved, state, windows, force=force)
    runs = [(todo, False)] if not replaced else [(replaced, True)]
    if replaced and not request.nothing_to_do(plan, state):
        runs.insert(0, (todo, False))  # a replace leaves a snapshot that can be sealed, so it must be whole
    outcomes: list[Outcome] = []
    run_id = ""
    instance = open_instance()
    say(f"Runs are recorded in {instance.root_directory}")
    for chosen, again in runs:
        with progress("exporting", len(chosen) + (not again and not plan.schema_only)) as advance:

            def note(outcome: Outcome, advance: Any = advance) -> None:
                outcomes.append(outcome)
                advance(outcome.rows, outcome.bytes)

            run_id = run_plan(
                configuration.with_plan(resolved),
                resolved,
                [key_of(window) for window in chosen],
                instance=instance,
                requested=requested_range(plan),
                force=force,
                replace=again,
                on_outcome=note,
            )
    return outcomes, run_id


def _report(
    options: argparse.Namespace, store: ObjectStore, state: State, outcomes: Sequence[Outcome], run_id: str | None
) -> int:
    seal = state.newest_seal
    counts = Counter(outcome.status for outcome in outcomes)
    files = [known.file for known in state.live_files()]
    report: dict[str, Any] = {
        "location": store.uri,
        "run_id": run_id,
        "snapshot_id": state.snapshot_id,
        "revision": state.revision,
        "checksum": seal.seal.checksum if seal else None,
        "sealed_at": time_text(seal.committed_at) if seal else None,
        "chunks": len(state.expected_chunks()),
        "outcomes": dict(sorted(counts.items())),
        "rows": sum(file.rows for file in files),
        "bytes": sum(file.bytes for file in files),
        "files": len(files),
    }
    if options.json:
        show_json(report)
        return 0
    show(f"{store.uri}: {f'sealed by run {run_id}' if run_id else 'complete already; nothing was exported'}")
    show(
        f"  {report['chunks']} chunks, {report['files']} files, {report['rows']:,} rows, {human_bytes(report['bytes'])}"
        + (f" ({', '.join(f'{count} {status}' for status, count in sorted(counts.items()))})" if counts else "")
    )
    show(f"  revision {report['revision']}, checksum {report['checksum']}")
    return 0
