"""`snapshots import`: checks the call before anything is opened, restores, and reports."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.cli.export.create_request import named_or_described
from snapshot_assets.cli.import_options import parallelism_of, settings_of
from snapshot_assets.cli.import_report import ImportWork, report, show_plan
from snapshot_assets.cli.location import given_uri
from snapshot_assets.cli.output import only_results_on_stdout, show, show_json, show_message
from snapshot_assets.cli.spark import refuse_unreachable_spark, start_spark_early
from snapshot_assets.databases.open import open_target
from snapshot_assets.databases.source import DatabaseAddress
from snapshot_assets.databases.target import RestoreRecord
from snapshot_assets.engine.restore.pin import unpin
from snapshot_assets.engine.restore.plan import RestorePlan
from snapshot_assets.engine.restore.run import RestoreRun
from snapshot_assets.engine.restore.settings import RestoreSettings
from snapshot_assets.engine.restore.windows import numbered
from snapshot_assets.engine.runner import InlineRunner
from snapshot_assets.errors import PartlyRestoredError, PlanError, RestoreError, SchemaIncompleteError, SnapshotError
from snapshot_assets.format.counts import counted
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.windows import Window
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.plan.plan import Plan
from snapshot_assets.plan.unset import NO_SOURCE
from snapshot_assets.storage.base import ObjectStore

if TYPE_CHECKING:
    from snapshot_assets.engine.progress import Progress


@dataclass(frozen=True)
class _Request:
    """A call of `snapshots import`, with a plan of the configuration or one made from the call."""

    configuration: Configuration
    named: Plan
    address: DatabaseAddress
    settings: RestoreSettings
    parallelism: int | None

    @property
    def store(self) -> ObjectStore:
        return self.configuration.store(self.named)

    def plan(self, state: State, windows: Sequence[Window]) -> Plan:
        """Return the plan whose asset `restored` has the windows of the restored revision as partitions, if any."""
        header = state.header
        assert header is not None
        kept = ("name", "to", "target", "spark", "import_slots")
        fields: dict[str, Any] = {name: getattr(self.named, name) for name in kept} | {"source": NO_SOURCE}
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
    given = {field: value for field, value in (("to", given_uri(options)), ("target", options.target)) if value}
    needed = {"to": "--from URI", "target": "--target T"}
    # A plan without windows must be `schema_only`.
    configuration, plan = named_or_described(options, given, needed, source=NO_SOURCE, schema_only=True)
    if plan.target is None:
        raise PlanError(f"plan {plan.name!r} has no target; give --target T, or write target in the configuration.")
    configuration.target_kind(plan)
    return _Request(
        configuration=configuration,
        named=plan,
        address=configuration.source(plan.target),
        settings=settings_of(options, plan),
        parallelism=parallelism_of(options, plan),
    )


def run(options: argparse.Namespace) -> int:
    """Restore a snapshot, resume an import that was cut off, or print what an import would do."""
    request = _request_of(options)
    if options.forget_ledger:
        return _forget(options, request)
    run = RestoreRun(request.store, request.address, InlineRunner(), request.settings)
    plan = run.prepare(depth="full" if options.dry_run else "quick", rehearse=options.dry_run)
    for warning in plan.warnings:
        show_message(f"warning: {warning}")
    if plan.ledger.loaded:
        run.check_rows(plan, added=True)
    if options.dry_run:
        return show_plan(options, request.store.uri, request.address.alias, plan)
    work = ImportWork()
    if plan.finished:
        with suppress(SchemaIncompleteError):  # the report has the steps
            run.finish()
        return report(options, request.store.uri, run, work)
    with only_results_on_stdout():
        if plan.loads:
            refuse_unreachable_spark(request.configuration, request.named)
            start_spark_early(request.configuration, request.named)
        from snapshot_assets.cli.progress import progress  # only here, when data is about to move

        with progress("importing", len(plan.chunks), work.outcomes, options.progress) as watch:
            _restore(options, request, plan, work, watch)
            run.stage = watch.stage
            _check(run, work)
    return report(options, request.store.uri, run, work)


def _check(run: RestoreRun, work: ImportWork) -> None:
    """Check that the import is finished, and count the rows of its tables."""
    run.found_damaged({path: fault for each in work.outcomes for path, fault in each.damaged.items()})
    plan = run.current()
    if not plan.ended and not plan.partial:
        lacking = [chunk.chunk for chunk in plan.chunks if plan.missing(chunk)]
        raise RestoreError(
            f"Run {work.run_id} succeeded, but the import is not finished:"
            f" {numbered(lacking) if lacking else 'its end'} is still to come. Run again to continue.",
            chunks=lacking,
        )
    work.counts = run.check_counts()


def _forget(options: argparse.Namespace, request: _Request) -> int:
    with closing(open_target(request.address)) as target:
        imports = target.imports()
        if options.dry_run:
            return _show_forgetting(options, request, imports)
        left = _unpin(request, imports)
        target.forget()
    if options.json:
        show_json({"target": request.address.alias, "forgotten": len(imports), "tags_left": left})
        return 0
    show(f"{request.address.alias}: {counted(len(imports), 'import')} forgotten; tables and rows were left as they are")
    for tag in left:
        show(f"  still pinned: {tag}")
    return 0


def _show_forgetting(options: argparse.Namespace, request: _Request, imports: Sequence[RestoreRecord]) -> int:
    if options.json:
        show_json({"target": request.address.alias, "would_forget": [record.id for record in imports]})
        return 0
    show(f"{request.address.alias}: {counted(len(imports), 'import')} would be forgotten; nothing was changed")
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


def _restore(
    options: argparse.Namespace, request: _Request, plan: RestorePlan, work: ImportWork, watch: Progress
) -> None:
    # Dagster is imported only here, when data is about to move.
    from snapshot_assets.cli.recorded_runs import open_recording_instance
    from snapshot_assets.pipeline.execute import run_restore
    from snapshot_assets.pipeline.partitions import key_of

    instance = open_recording_instance(options)
    windows = [plan.state.window(chunk.chunk) for chunk in plan.chunks if chunk.chunk != UNTIMED_CHUNK]
    try:
        work.run_id = run_restore(
            request.configuration,
            request.plan(plan.state, windows),
            [key_of(window) for window in windows],
            instance=instance,
            restore_plan=plan,
            progress=watch,
        )
    except (SchemaIncompleteError, PartlyRestoredError) as error:  # the report has what is not there
        work.run_id = error.attributes["run"]
