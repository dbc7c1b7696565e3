"""`snapshots import`: checks the call before anything is opened, restores, and reports."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.seals.ssh import Signing
from snapshot_assets.cli.export.create_request import named_or_described, parse_range, require_given
from snapshot_assets.cli.import_report import ImportWork, lost_lines, report, show_plan
from snapshot_assets.cli.location import given_uri, signing_of
from snapshot_assets.cli.options.export_and_import import unquoted
from snapshot_assets.cli.output import only_results_on_stdout, show, show_json, show_message
from snapshot_assets.cli.recorded_runs import Run, run_recorded
from snapshot_assets.cli.spark import (
    place_of_options,
    refuse_files_elsewhere,
    refuse_unreachable_spark,
    spark_runner,
    start_spark_early,
)
from snapshot_assets.databases.convert.renaming import Renaming
from snapshot_assets.databases.open import kind_of, open_target, refuse_as_target
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.databases.protocol.target import RestoreRecord
from snapshot_assets.engine.restore.pin import unpin
from snapshot_assets.engine.restore.run import RestoreRun
from snapshot_assets.engine.restore.settings import Filters, RestoreSettings
from snapshot_assets.engine.runner import InlineRunner
from snapshot_assets.errors import PartlyRestoredError, PlanError, SchemaIncompleteError, SnapshotError, UsageError
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.names import check_pattern, parse_table
from snapshot_assets.format.units import counted
from snapshot_assets.format.windows import partition_key
from snapshot_assets.plan.fields import DatabaseReference, is_asset
from snapshot_assets.plan.plan import MAX_PARALLELISM, Plan
from snapshot_assets.plan.read_configuration import Needed, load_configuration, plan_name
from snapshot_assets.plan.spark_settings import merged_settings
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store

if TYPE_CHECKING:
    from snapshot_assets.engine.progress import Progress


_SIDE = r'((?:"(?:[^"]|"")*"|[^"=])+)'
_PAIR = re.compile(f"{_SIDE}={_SIDE}")


def settings_of(
    options: argparse.Namespace, plan: Plan | None, default_signing: Signing | None = None
) -> RestoreSettings:
    """Return the settings of a call; what it gives precedes what its plan has.

    Raises:
        PlanError: An option is wrong; says which.
    """
    chosen = parse_range(options.time_range, "--time-range")
    own = RestoreSettings() if plan is None else RestoreSettings.of(plan)
    filters = Filters(
        schemas=tuple(options.schemas),
        tables=tuple(map(parse_table, options.tables)),
        exclude_tables=tuple(map(check_pattern, options.exclude_tables)) or own.filters.exclude_tables,
        start=chosen.start if chosen else None,
        end=chosen.end if chosen else None,
        expressions=not options.no_expressions,
        code=options.with_code or (own.filters.code and not options.no_expressions),
        renaming=_renaming(options) or own.filters.renaming,
    )
    return RestoreSettings(
        filters,
        options.at,
        options.into_nonempty,
        options.replace,
        verify_first=options.verify_first or own.verify_first,
        keep_going=options.keep_going,
        signing=signing_of(options, own.signing or default_signing),
    )


def _renaming(options: argparse.Namespace) -> Renaming:
    schemas = [_pair(text, "--map-schema") for text in options.map_schema]
    tables = [_pair(text, "--map-table") for text in options.map_table]
    return Renaming.of(
        [(unquoted(old), unquoted(new)) for old, new in schemas],
        [(parse_table(old), parse_table(new)) for old, new in tables],
    )


def _pair(text: str, option: str) -> tuple[str, str]:
    match = _PAIR.fullmatch(text)
    if match is None:
        example = "public=restored" if option == "--map-schema" else "public.orders=public.orders_of_may"
        raise PlanError(
            f"{option} {text!r} is not OLD=NEW; write one such as {example}, and a name that holds = in double quotes."
        )
    return match[1].strip(), match[2].strip()


@dataclass(frozen=True)
class _Request:
    """A call of `snapshots import`.

    Attributes:
        name: Name of the plan, or one made from the location.
        plan: The plan of the configuration that names the location; None without one.
        store: The location.
        address: The target.
        spark: Settings of the Spark session.
        parallelism: Chunks that are restored in parallel; None for Spark's cores.
    """

    name: str
    plan: Plan | None
    store: ObjectStore
    address: DatabaseAddress
    settings: RestoreSettings
    spark: Mapping[str, str]
    parallelism: int | None


def _request_of(options: argparse.Namespace) -> _Request:
    """Return the request of a call, which is checked; nothing is opened."""
    uri, needed = given_uri(options), {"to": "--from URI", "target": "--target T"}
    given = {field: value for field, value in (("to", uri), ("target", options.target)) if value}
    if options.plan is None:
        require_given(options, given, needed)
        name, plan = plan_name(given["to"]), None
        try:
            target = DatabaseReference.parse(given["target"])
        except UsageError as error:
            raise PlanError(f"--target {error}") from None
        if is_asset(target):
            raise PlanError("--target is a Dagster asset, which can only be a source; write a database.")
        aliases = [target.alias] if target.uri is None else []
        configuration = load_configuration(options.config, needed=Needed(aliases=aliases))
        location = parse_location(given["to"])
        store, spark = open_store(location, configuration.store_options_for(location)), configuration.spark
    else:
        configuration, plan = named_or_described(options, given, needed)
        if plan.target is None:
            raise PlanError(f"plan {plan.name!r} has no target; give --target T, or write target in the configuration.")
        name, target, store = plan.name, plan.target, configuration.store(plan)
        spark = configuration.spark_settings(plan)
    address = configuration.source(target)
    refuse_as_target(f"target {address.alias}", kind_of(address.uri))
    settings = settings_of(options, plan, configuration.signing)
    spark = merged_settings(spark, place_of_options(options))
    parallelism: int | None = options.parallelism
    if parallelism is not None and not 1 <= parallelism <= MAX_PARALLELISM:
        raise PlanError(f"--parallelism is {parallelism}; expected a number from 1 to {MAX_PARALLELISM}.")
    return _Request(
        name=name,
        plan=plan,
        store=store,
        address=address,
        settings=settings,
        spark=spark,
        parallelism=parallelism or (plan.parallelism if plan else None),
    )


def run(options: argparse.Namespace) -> int:
    """Restore a snapshot, resume an import that was cut off, or print what an import would do."""
    request = _request_of(options)
    if options.forget_ledger:
        return _forget(options, request)
    run = RestoreRun(request.store, request.address, InlineRunner(), request.settings)
    with run.target():
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
    for line in lost_lines(plan):
        show_message(line)
    with only_results_on_stdout():
        if plan.loads:
            refuse_unreachable_spark(request.spark)
        refuse_files_elsewhere(request.spark, request.name, request.store.uri, request.address)
        if plan.loads:
            start_spark_early(request.spark)
        from snapshot_assets.cli.progress import progress  # only here, when data is about to move

        with progress("importing", len(plan.chunks), work.outcomes, options.progress) as watch:
            restore = partial(_restore, request, run, work, watch)
            with suppress(SchemaIncompleteError, PartlyRestoredError):  # the report has what is not there
                run_recorded(options, f"{request.name}_restore", watch, restore)
            run.stage = watch.stage
            with run.target():
                _check(run, work)
    return report(options, request.store.uri, run, work)


def _restore(request: _Request, run: RestoreRun, work: ImportWork, watch: Progress, recorded: Run) -> None:
    """Load what is missing in a run, and finish."""
    work.run_id = recorded.id
    with spark_runner(request.spark, recorded, request.store, request.address) as runner:
        run.runner, run.session, run.stage = runner, runner.session, recorded.watch.stage
        run.parallelism, run.slots = request.parallelism, request.plan.import_slots if request.plan else None
        plan = run.begin()
        recording = None
        if recorded.context is not None:
            from snapshot_assets.pipeline.assets.restored import RestoreReport
            from snapshot_assets.pipeline.dagster.partitions import asset_keys

            keys = asset_keys(request.name, request.plan)
            recording = RestoreReport(recorded.context, keys, run, request.plan)
        with recording.of_end() if recording else nullcontext(), closing(run.restore()) as outcomes:
            for outcome in outcomes:
                watch.outcome(outcome)
                if recording is not None and outcome.chunk != UNTIMED_CHUNK:
                    recording.loaded(outcome, partition_key(plan.state.window(outcome.chunk)))
            finished = run.finish()
            if recording is not None:
                recording.finished = finished
        if recording is not None:
            recording.row_counts()


def _check(run: RestoreRun, work: ImportWork) -> None:
    """Check that the import is finished, and count the rows of its tables."""
    run.check_ended()
    work.counts = run.check_counts()


def _forget(options: argparse.Namespace, request: _Request) -> int:
    alias = request.address.alias
    with closing(open_target(request.address)) as target:
        imports = target.imports()
        if not options.dry_run:
            left = _unpin(request, imports)
            target.forget()
    forgotten = counted(len(imports), "import")
    if options.dry_run and options.json:
        show_json({"target": alias, "would_forget": [record.id for record in imports]})
    elif options.dry_run:
        show(f"{alias}: {forgotten} would be forgotten; nothing was changed")
        for record in imports:
            show(f"  {record.id}: revision {record.revision} of {record.location}")
    elif options.json:
        show_json({"target": alias, "forgotten": len(imports), "tags_left": left})
    else:
        show(f"{alias}: {forgotten} forgotten; tables and rows were left as they are")
        for tag in left:
            show(f"  still pinned: {tag}")
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
