"""`snapshots import`: checks the call before anything is opened, restores, and reports."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.cli.export.create_request import named_or_described, parse_range
from snapshot_assets.cli.output import only_results_on_stdout, show, show_json, show_message
from snapshot_assets.cli.spark import start_spark_early
from snapshot_assets.databases.source import DatabaseAddress
from snapshot_assets.databases.target import RestoreRecord
from snapshot_assets.engine.restore.loader import ChunkOutcome
from snapshot_assets.engine.restore.pin import unpin
from snapshot_assets.engine.restore.plan import RestorePlan
from snapshot_assets.engine.restore.row_counts import how_to_load_again
from snapshot_assets.engine.restore.run import RestoreRun
from snapshot_assets.engine.restore.settings import Filters, RestoreSettings
from snapshot_assets.engine.restore.spark_loader import is_spark, open_restore_target
from snapshot_assets.engine.restore.windows import numbered
from snapshot_assets.engine.runner import InlineRunner
from snapshot_assets.errors import PlanError, RestoreError, SnapshotError
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.names import parse_table, table_text
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.units import human_bytes
from snapshot_assets.format.windows import Window
from snapshot_assets.plan.ad_hoc import NO_SOURCE
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.plan.plan import MAX_PARALLELISM, Plan
from snapshot_assets.storage.base import ObjectStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class _Request:
    """A call of `snapshots import`, with a plan of the configuration or one made from the call."""

    configuration: Configuration
    named: Plan
    address: DatabaseAddress
    settings: RestoreSettings
    parallelism: int

    @property
    def store(self) -> ObjectStore:
        return self.configuration.store(self.named)

    def plan(self, state: State, windows: Sequence[Window]) -> Plan:
        """Return the plan whose asset `restored` has the windows of the restored revision as partitions, if any."""
        header = state.header
        assert header is not None
        kept = ("name", "source", "to", "target", "spark", "import_slots")
        fields: dict[str, Any] = {name: getattr(self.named, name) for name in kept}
        if windows:
            fields |= {
                "start_time": header.start,
                "end_time": header.end,
                "chunk_time_window": timedelta(microseconds=header.chunk_time_window),
                "parallelism": self.parallelism,
            }
        return Plan(**fields, schema_only=not windows, storage=self.configuration.store_options(self.named))


def _request_of(options: argparse.Namespace) -> _Request:
    """Return the request of a call, which is checked; nothing is opened."""
    given = {field: value for field, value in (("to", options.location), ("target", options.target)) if value}
    needed = {"to": "--from URI", "target": "--target T"}
    # A plan without windows must be `schema_only`.
    configuration, plan = named_or_described(options, given, needed, source=NO_SOURCE, schema_only=True)
    if plan.target is None:
        raise PlanError(
            f"plan {plan.name!r} has no target; write one in the configuration, or give --from {plan.to} --target T."
        )
    chosen = parse_range(options.time_range, "--time-range")
    filters = Filters(
        schemas=tuple(options.schemas),
        tables=tuple(map(parse_table, options.tables)),
        start=chosen.start if chosen else None,
        end=chosen.end if chosen else None,
        expressions=not options.no_expressions,
    )
    return _Request(
        configuration=configuration,
        named=plan,
        address=configuration.source(plan.target),
        settings=RestoreSettings(filters, options.at, options.into_nonempty, options.replace),
        parallelism=_parallelism(options, plan),
    )


def _parallelism(options: argparse.Namespace, plan: Plan) -> int:
    given: int | None = options.parallelism
    if given is not None and not 1 <= given <= MAX_PARALLELISM:
        raise PlanError(f"--parallelism is {given}; expected a number from 1 to {MAX_PARALLELISM}.")
    return given or plan.parallelism


def run(options: argparse.Namespace) -> int:
    """Restore a snapshot, resume an import that was cut off, or print what an import would do."""
    request = _request_of(options)
    if options.forget_ledger:
        return _forget(options, request)
    session = partial(_session, request)
    run = RestoreRun(request.store, request.address, InlineRunner(), request.settings, session=session)
    plan = run.prepare(depth="full" if options.dry_run else "quick", rehearse=options.dry_run)
    if plan.ledger.loaded:
        run.check_rows(plan, added=True)
    if options.dry_run:
        return _show_plan(options, request, plan)
    if plan.finished and run.finish():
        return _report(options, request, plan, [], None, {})
    with only_results_on_stdout():
        if plan.loads and not is_spark(request.address):
            start_spark_early(request.configuration, request.named)
        outcomes, run_id = _restore(options, request, plan)
    plan = run.current()
    if not plan.finished:
        lacking = [chunk.chunk for chunk in plan.chunks if plan.missing(chunk)]
        raise RestoreError(
            f"Run {run_id} succeeded, but the import is not finished: {numbered(lacking) if lacking else 'its end'} is"
            " still to come. Another process may be loading it; run again to continue.",
            chunks=lacking,
        )
    return _report(options, request, plan, outcomes, run_id, run.check_counts())


def _session(request: _Request) -> SparkSession:
    """Return the session that reaches a Spark catalog; the import's assets then run in it too."""
    from snapshot_assets.engine.session_start import start_session

    with only_results_on_stdout():
        return start_session(request.configuration.spark_settings(request.named))


def _forget(options: argparse.Namespace, request: _Request) -> int:
    with open_restore_target(request.address, partial(_session, request)) as target:
        imports = target.imports()
        if options.dry_run:
            return _show_forgetting(options, request, imports)
        left = _unpin(request, imports)
        target.forget()
    if options.json:
        show_json({"target": request.address.alias, "forgotten": len(imports), "tags_left": left})
        return 0
    show(f"{request.address.alias}: {len(imports)} imports forgotten; tables and rows were left as they are")
    for tag in left:
        show(f"  still pinned: {tag}")
    return 0


def _show_forgetting(options: argparse.Namespace, request: _Request, imports: Sequence[RestoreRecord]) -> int:
    if options.json:
        show_json({"target": request.address.alias, "would_forget": [record.id for record in imports]})
        return 0
    show(f"{request.address.alias}: {len(imports)} imports would be forgotten; nothing was changed")
    for record in imports:
        show(f"  {record.id}: revision {record.revision} of {record.location}")
    return 0


def _unpin(request: _Request, imports: Sequence[RestoreRecord]) -> list[str]:
    """Delete the tags of imports that are forgotten; returns those that may still exist, with their locations."""
    try:
        state = read_state(request.store)
        here = [record for record in imports if record.location_id == state.location_id]
        kept = unpin(request.store, [record.tag for record in here if record.tag in state.tags])
    except SnapshotError as error:  # the ledger can be forgotten though its location is gone or out of reach
        show_message(f"{request.store.uri} cannot be read: {error}")
        here, kept = [], []
    left = [record for record in imports if record.tag in kept or (record not in here and not record.finished)]
    return [f"{record.tag} of {record.location}" for record in left]


def _restore(options: argparse.Namespace, request: _Request, plan: RestorePlan) -> tuple[Sequence[ChunkOutcome], str]:
    # Dagster is imported only here, when data is about to move.
    from snapshot_assets.cli.progress import progress
    from snapshot_assets.pipeline.execute import open_instance, run_restore
    from snapshot_assets.pipeline.partitions import key_of

    instance = open_instance()
    show_message(f"Runs are recorded in {instance.root_directory}")
    windows = [plan.state.window(chunk.chunk) for chunk in plan.chunks if chunk.chunk != UNTIMED_CHUNK]
    outcomes: list[ChunkOutcome] = []
    with progress("importing", len(plan.chunks), outcomes, options.progress) as watch:
        run_id = run_restore(
            request.configuration,
            request.plan(plan.state, windows),
            [key_of(window) for window in windows],
            instance=instance,
            restore_plan=plan,
            progress=watch,
        )
    return outcomes, run_id


def _show_plan(options: argparse.Namespace, request: _Request, plan: RestorePlan) -> int:
    """Print what an import would create and load."""
    files = [each.file for load in plan.loads for each in load.plans]
    replaced = [load.chunk.chunk for load in plan.loads if load.replace]
    rows, size = sum(file.rows for file in files), sum(file.bytes for file in files)
    report = {
        "location": request.store.uri,
        "target": request.address.alias,
        "revision": plan.state.revision,
        "checksum": plan.source.checksum,
        "resumes": plan.record.id if plan.resumed else None,
        "finished": plan.finished,
        "makes": [each.makes for each in plan.to_create()],
        "types": {
            table_text(table.table_name): {column.name: column.type for column in table.columns}
            for table in plan.definition.tables
        },
        "replaces": replaced,
        "files": len(files),
        "rows_of_files": rows,
        "bytes": size,
        "would_fail": {each.statement.makes: each.message for each in plan.failing},
        "lost": list(plan.lost),
    }
    status = 1 if plan.failing else 0
    if options.json:
        show_json(report)
        return status
    show(f"{request.store.uri} at revision {plan.state.revision} into {request.address.alias}: nothing was changed")
    show(f"  would load {len(files)} files, {rows:,} rows, {human_bytes(size)}")
    if replaced:
        show(f"  would delete the rows of {numbered(replaced)} first")
    for each in plan.to_create():
        show(f"  would make {each.makes}")
    for failed in plan.failing:
        show(f"  would fail after the rows: {failed.statement.makes}: {failed.message}")
    _show_lost(plan)
    return status


def _show_lost(plan: RestorePlan) -> None:
    for sentence in plan.lost:
        show(f"  not carried over: {sentence}")


def _refuse_differing(plan: RestorePlan, counts: dict[TableName, tuple[int, int]]) -> bool:
    """Return whether tables hold other rows than were loaded, which only `--into-nonempty` allows."""
    different = {name: both for name, both in counts.items() if both[0] != both[1]}
    if different and not plan.record.into_nonempty:
        some = "; ".join(
            f"{name}: {loaded} were loaded, {found} are there" for name, (loaded, found) in different.items()
        )
        raise RestoreError(
            f"The target's row counts differ from what was loaded: {some}. Another writer changes these tables, or"
            f" one of their triggers or rules changes rows. {how_to_load_again(plan)}",
            tables=sorted(map(str, different)),
        )
    return bool(different)


def _report(
    options: argparse.Namespace,
    request: _Request,
    plan: RestorePlan,
    outcomes: Sequence[ChunkOutcome],
    run_id: str | None,
    counts: dict[TableName, tuple[int, int]],
) -> int:
    different = _refuse_differing(plan, counts)
    report: dict[str, Any] = {
        "location": request.store.uri,
        "target": request.address.alias,
        "run_id": run_id,
        "import": plan.record.id,
        "revision": plan.state.revision,
        "checksum": plan.source.checksum,
        "outcomes": dict(sorted(Counter(outcome.status for outcome in outcomes).items())),
        "rows_loaded": sum(outcome.rows for outcome in outcomes),
        "bytes": sum(outcome.bytes for outcome in outcomes),
        "tables": {table_text(name): found for name, (_, found) in sorted(counts.items())},
        "lost": list(plan.lost),
    }
    if options.json:
        show_json(report)
        return 0
    if run_id is None:
        show(f"{request.address.alias}: revision {report['revision']} was restored before; nothing was done")
        return 0
    show(f"{request.address.alias}: revision {report['revision']} of {request.store.uri} restored by run {run_id}")
    show(
        f"  {len(outcomes)} chunks, {report['rows_loaded']:,} rows loaded now, {human_bytes(report['bytes'])}"
        f" ({', '.join(f'{count} {status}' for status, count in report['outcomes'].items())})"
    )
    compared = "rows of others among them" if different else "as many as were loaded"
    show(f"  {len(counts)} tables hold {sum(found for _, found in counts.values()):,} rows, {compared}")
    _show_lost(plan)
    return 0
