"""`snapshots export create`."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.rules import check_same_plan
from snapshot_assets.catalog.state import State
from snapshot_assets.cli.output import human_bytes, say, show, show_json
from snapshot_assets.configuration import Configuration, ad_hoc_configuration, load_configuration
from snapshot_assets.databases.open import open_database
from snapshot_assets.engine.begin import RequestedRange, exported_schema, header_of, requested_range, resolve_range
from snapshot_assets.engine.export import Outcome
from snapshot_assets.errors import PlanError
from snapshot_assets.format.units import parse_time, time_text
from snapshot_assets.format.windows import TimeRange, Window
from snapshot_assets.plan import Plan
from snapshot_assets.storage.base import ObjectStore

_OPTIONS = (
    "source",
    "to",
    "name",
    "catalog",
    "schemas",
    "tables",
    "start_time",
    "end_time",
    "chunk_time_window",
    "format",
    "schema_only",
    "parallelism",
    "max_file_size",
)
_OVERRIDES = ("parallelism", "max_file_size")


def run(options: argparse.Namespace) -> int:
    """Create a snapshot, or go on with the one that is there."""
    configuration, plan = _plan(options)
    store = configuration.store(plan)
    state = Catalog.open(store).state
    requested = requested_range(plan)
    plan = _resolved(configuration, plan, state, requested, force=options.force)
    configuration = configuration.with_plan(plan)
    windows = _windows(plan, options.replace)
    if _nothing_to_do(plan, state) and not options.force and not options.replace:
        return _report(options, store, state, [], "complete already; nothing was exported")
    return _run(options, configuration, plan, store, requested, windows)


def _run(
    options: argparse.Namespace,
    configuration: Configuration,
    plan: Plan,
    store: ObjectStore,
    requested: RequestedRange,
    windows: Sequence[Window],
) -> int:
    # Dagster and Spark are imported only here, when data is about to move.
    from snapshot_assets.cli.progress import export_progress
    from snapshot_assets.pipeline.execute import open_instance, run_plan
    from snapshot_assets.pipeline.partitions import key_of

    outcomes: list[Outcome] = []
    instance = open_instance()
    say(f"Runs are recorded in {instance.root_directory}")
    with export_progress(len(windows) + (not options.replace)) as advance:

        def note(outcome: Outcome) -> None:
            outcomes.append(outcome)
            advance(outcome)

        run_id = run_plan(
            configuration,
            plan,
            [key_of(window) for window in windows],
            instance=instance,
            requested=requested,
            force=options.force,
            replace=bool(options.replace),
            on_outcome=note,
        )
    return _report(options, store, Catalog.open(store).state, outcomes, f"sealed by run {run_id}")


def _plan(options: argparse.Namespace) -> tuple[Configuration, Plan]:
    given = {name: getattr(options, name) for name in _OPTIONS if getattr(options, name) is not None}
    if options.plan is None:
        missing = [f"--{name}" for name in ("source", "to") if name not in given]
        if missing:
            raise PlanError(f"{' and '.join(missing)} missing; give --plan NAME, or --source S --to URI.")
        configuration = ad_hoc_configuration(options.config, given)
        return configuration, configuration.plans[-1]
    clashing = sorted(f"--{name.replace('_', '-')}" for name in given if name not in _OVERRIDES)
    if clashing:
        raise PlanError(f"{', '.join(clashing)} cannot be given beside --plan; change the plan in the configuration.")
    configuration = load_configuration(options.config)
    plan = configuration.plan(options.plan)
    if given:
        plan = plan.changed(**given)
        configuration = configuration.with_plan(plan)
    return configuration, plan


def _resolved(
    configuration: Configuration, plan: Plan, state: State, requested: RequestedRange, *, force: bool
) -> Plan:
    """Settle open ends once, from the snapshot that is there, else from the source; refuse another plan's snapshot."""
    now = datetime.now(UTC)
    existing = state.header if state.begun and not force else None
    if plan.schema_only or plan.kind == "continuous":
        return plan
    if existing is None and plan.start_time is None:
        database = open_database(configuration.source(plan.source))
        try:
            schema = exported_schema(plan, database.extract(plan.selection))
            bounds = database.time_bounds(tuple(t for t in schema.tables if t.time_index), plan.time_zone)
        finally:
            database.close()
        return resolve_range(plan, None, TimeRange(*bounds) if bounds else None, now)
    resolved = resolve_range(plan, existing, None, now)
    if existing is not None:
        alias = configuration.source(plan.source).alias
        check_same_plan(existing, header_of(resolved, existing.schemas, alias, requested, now))
    return resolved


def _windows(plan: Plan, replace: str | None) -> Sequence[Window]:
    from snapshot_assets.pipeline.partitions import windows_of

    if plan.schema_only:
        return []
    windows = windows_of(plan)
    if replace is None:
        return windows
    start, slash, end = replace.partition("/")
    if not slash:
        raise PlanError(f"--replace {replace!r} is not START/END; write two RFC 3339 times with a slash between.")
    first, last = parse_time(start), parse_time(end)
    chosen = [window for window in windows if window.start < last and first < window.end]
    if not chosen:
        raise PlanError(f"--replace {replace}: no window of the plan overlaps it.")
    return chosen


def _nothing_to_do(plan: Plan, state: State) -> bool:
    return plan.kind == "once" and state.begun and state.sealed and not state.missing()


def _report(
    options: argparse.Namespace, store: ObjectStore, state: State, outcomes: Sequence[Outcome], verdict: str
) -> int:
    seal = state.newest_seal
    counts = Counter(outcome.status for outcome in outcomes)
    files = [known.file for known in state.live_files()]
    report: dict[str, Any] = {
        "location": store.uri,
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
    show(f"{store.uri}: {verdict}")
    show(
        f"  {report['chunks']} chunks, {report['files']} files, {report['rows']:,} rows, {human_bytes(report['bytes'])}"
        + (f" ({', '.join(f'{count} {status}' for status, count in sorted(counts.items()))})" if counts else "")
    )
    show(f"  revision {report['revision']}, checksum {report['checksum']}")
    return 0
