"""The job `<plan>_export`: all assets of a plan in one run; the asset `copy` of a query; the schedules of both.

One run reads one state of the database, where the database supports that, so the seal records `consistency: run`.
"""

# Dagster reads the annotations of assets, ops and schedules, so they must not be postponed here.
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import dagster as dg
from pydantic import Field

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.operations.seal import SealDepth
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.engine.export.copy import Copied, copy
from snapshot_assets.engine.export.start_snapshot import open_windows_text
from snapshot_assets.engine.export.tasks import Outcome
from snapshot_assets.errors import PlanError
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.units import counted, time_text
from snapshot_assets.format.windows import window_at
from snapshot_assets.pipeline.assets.conditions import fresh, is_automated
from snapshot_assets.pipeline.assets.io_manager import ChunkConfig, ChunkScans
from snapshot_assets.pipeline.assets.replicas import replica_store
from snapshot_assets.pipeline.dagster.dagster_internals import NO_EVENTS_AT_THE_END, accepting_unstable_parts
from snapshot_assets.pipeline.dagster.failures import showing_failed_ticks, showing_failures
from snapshot_assets.pipeline.dagster.metadata import (
    first_rows,
    made_from_versions,
    report_chunks,
    seal_metadata,
    with_sizes,
)
from snapshot_assets.pipeline.dagster.partitions import (
    asset_key,
    chunks_of_run,
    closing_cron,
    exported_assets,
    key_of,
    op_name,
    partitions_of,
    plan_asset,
    schedule_status,
    window_of,
)
from snapshot_assets.pipeline.dagster.resources import SNAPSHOTS, snapshots_of
from snapshot_assets.pipeline.dagster.runs import why_to_wait
from snapshot_assets.plan.plan import Plan
from snapshot_assets.plan.windows import windows_of

_TO_CATCH_UP = timedelta(days=30)
"""How long after the end of its range a plan still has a schedule, for windows that are missing."""

MANY_WINDOWS = 2000
"""Windows of one run above which it warns: Dagster stores an event for each."""


class ExportConfig(ChunkConfig):
    """Run config of `chunks`, and of `copy` if the query has windows."""

    windows: str = Field(
        default="due",
        description="Windows of a run without partitions: `due` for those that are closed and not exported, or the "
        "partition keys `first...last`.",
    )
    late_windows: int = Field(
        default=0, ge=0, description="How many of the newest exported windows are exported again, for late rows."
    )
    changed: bool | None = Field(
        default=None,
        description="Whether the tables of exported windows whose rows changed in the source are exported again; by"
        " default, in runs of what is due, with `late_windows: changed`.",
    )


class ManifestConfig(dg.Config):
    """Run config of `manifest`."""

    verify: str = Field(
        default="", description="What is hashed: `new` or `full`; by default what the plan's `seal_verify` says."
    )
    require_complete: bool | None = Field(
        default=None,
        description="Whether a missing window is an error; otherwise the run does not seal. By default it is, unless"
        " the run exports windows, too: others may follow.",
    )
    create_due_tag: bool | None = Field(
        default=None,
        description="Whether the tag that the plan's rule has due is created; by default with `automation: true`.",
    )

    def depth(self) -> SealDepth | None:
        """Return what a seal hashes; None for what the plan says.

        Raises:
            PlanError: `verify` is neither `new` nor `full`.
        """
        if self.verify not in ("", "new", "full"):
            raise PlanError(f"verify {self.verify!r} is invalid; write new or full, or leave it out.")
        return cast(SealDepth, self.verify) if self.verify else None


def chosen_chunks(context: dg.AssetExecutionContext, plan: Plan, config: ExportConfig) -> ChunkScans:
    """Return the chunks of a run: of its partitions if it has any, else of its run config.

    Raises:
        PlanError: `windows` names no window of the plan, or changes are looked for in a query.
    """
    if config.changed and plan.kind == "query":
        raise PlanError("changed: true has no effect on a copy; copy windows again with replace or late_windows.")
    snapshots, windows, exported = snapshots_of(context), chunks_of_run(context, plan), list[int]()
    closed = windows_of(plan, snapshots.started)
    due = windows is None and config.windows == "due"
    changed: tuple[int, ...] = ()
    follows = due and plan.late_windows == "changed" if config.changed is None else config.changed
    if due or config.late_windows or follows:
        state = snapshots.export_run(plan.name).read_catalog().state
        exported = [window.id for window in closed if state.completed(window.id)]
        if follows:
            from snapshot_assets.engine.export.changes import chunks_to_look_at  # Arrow, which definitions do not load

            looked_at = chunks_to_look_at(state, plan, snapshots.started)
            changed = tuple(chunk for chunk in looked_at if chunk != UNTIMED_CHUNK)
    if due:
        windows = sorted({window.id for window in closed} - set(exported))
    elif windows is None:
        first, dots, last = config.windows.partition("...")
        if not dots:
            raise PlanError(f"windows {config.windows!r} is neither `due` nor a range of partition keys, first...last.")
        windows = list(range(window_of(plan, first).id, window_of(plan, last).id + 1))
    if len(windows) > MANY_WINDOWS:
        context.log.warning(
            f"This run {'copies' if plan.kind == 'query' else 'exports'} {counted(len(windows), 'window')}. Dagster"
            " stores an event for each. For small windows, that takes longer than their rows: use a longer"
            f" chunk_time_window, or runs of at most {MANY_WINDOWS:,} windows (chunks_per_run)."
        )
    chosen = set(windows)
    if text := open_windows_text((each for each in closed if each.id in chosen), snapshots.started):
        context.log.warning(text)
    late = tuple(exported[-config.late_windows :]) if config.late_windows else ()
    return ChunkScans(tuple(windows), config.replace, late, changed)


def export_job(plan: Plan) -> Any:
    """Return the job `<plan>_export`. Without partitions it exports what is due; a backfill gives it partitions."""
    manifest = asset_key(plan, "manifest")
    chosen = dg.AssetSelection.assets(*exported_assets(plan)).without_checks()
    return dg.define_asset_job(
        f"{plan.name}_export",
        selection=chosen | dg.AssetSelection.checks_for_assets(manifest),
        executor_def=dg.in_process_executor,  # steps share the state of the source, and one Spark session
        description=f"Exports the windows of {plan.name} that are due, or those of its partitions, and seals the"
        " snapshot if it is complete: all in one run, which reads one state of the source where that is supported."
        + (f" Then replicates it to {plan.replicate_to}." if plan.replicate_to else ""),
    )


def export_schedules(plan: Plan, job: Any) -> list[dg.ScheduleDefinition]:
    """Return the schedule that exports or copies what is due: all windows that have closed, also after a downtime.

    There is none for a range that ended long ago, unless the plan configures it.
    """
    configured = plan.dagster.export_cron or plan.dagster.default_status == "running"
    ended = plan.end_time is not None and plan.end_time + _TO_CATCH_UP <= datetime.now(UTC)
    if ended and not configured:
        return []
    does = "Copies" if plan.kind == "query" else "Exports"

    @dg.schedule(
        name=f"{job.name}_schedule",
        job=job,
        cron_schedule=plan.dagster.export_cron or closing_cron(plan),
        execution_timezone="UTC",
        required_resource_keys={SNAPSHOTS},
        default_status=dg.DefaultScheduleStatus.STOPPED if plan.dagster.automation else schedule_status(plan),
        description=f"{does} every closed window of {plan.name} that is missing"
        + (", and what changed in the source," if plan.late_windows == "changed" else ",")
        + " and seals the snapshot.",
    )
    @showing_failed_ticks()
    def schedule(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        if waiting := why_to_wait(context, job.name):
            return dg.SkipReason(waiting)
        if is_automated(context.instance, plan):
            return dg.SkipReason(
                f"The sensor {plan.name}_automation_sensor is on, and requests what is due. Turn one of the two off."
            )
        windows = windows_of(plan)
        if plan.kind == "query" and plan.windowed and not windows:
            return dg.SkipReason(f"No window of {plan.name} has closed yet.{_next(plan, 0)}")
        snapshots = snapshots_of(context)
        state = Catalog.open(snapshots.store(plan.name)).state
        new = not plan.schema_only and any(not state.completed(window.id) for window in windows)
        done = (
            not new and state.has_snapshot and state.sealed and not state.missing() and plan.late_windows != "changed"
        )
        if done and plan.replicate_to is not None and state.newest_seal is not None:  # an earlier run may have failed
            done = Catalog.open(replica_store(snapshots, plan)).state.revision >= state.newest_seal.revision
        if done:
            return dg.SkipReason(f"Every closed window is exported and sealed.{_next(plan, len(windows))}")
        return dg.RunRequest(run_config=_run_config(plan, new=new))

    return [schedule]


def _next(plan: Plan, closed: int) -> str:
    """Return when the window after the closed ones is due, in a sentence; "" for a plan with an end."""
    if plan.range_kind != "continuous" or plan.start_time is None:
        return ""
    following = window_at(plan.start_time, plan.chunk_time_window, closed + 1)
    return f" The next, {key_of(following)}, is due at {time_text(following.end + plan.lag)}."


def _run_config(plan: Plan, *, new: bool) -> dg.RunConfig:
    """Return the configuration of a scheduled run; `new` is whether there are windows to export."""
    late = plan.late_windows
    windows = ExportConfig(changed=True) if late == "changed" else ExportConfig(late_windows=late if new else 0)
    if plan.kind == "query":
        return dg.RunConfig(ops={op_name(plan, "copy"): windows})
    ops: dict[str, dg.Config] = {op_name(plan, "manifest"): ManifestConfig(create_due_tag=True)}
    if not plan.schema_only:
        ops[op_name(plan, "chunks")] = windows
    return dg.RunConfig(ops=ops)


def copy_definitions(plan: Plan, spark_key: str) -> dg.Definitions:
    """Return the definitions of a plan of kind `query`: its asset `copy`, the job `<plan>_copy`, and its schedule.

    The asset is partitioned if the query has windows.
    """

    def windows(context: dg.AssetExecutionContext, config: ExportConfig) -> dg.MaterializeResult[None]:
        with showing_failures():
            metadata = _copy(context, plan, chosen_chunks(context, plan, config))
        context.log_event(dg.AssetObservation(context.asset_key, metadata=metadata))
        return dg.MaterializeResult(metadata=metadata | NO_EVENTS_AT_THE_END)

    def whole(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        with showing_failures():
            return dg.MaterializeResult(metadata=_copy(context, plan, ChunkScans(())))

    with accepting_unstable_parts():
        decorator = plan_asset(
            plan,
            "copy",
            **fresh(plan),
            kinds={"pyspark", plan.format},
            required_resource_keys={SNAPSHOTS, spark_key},
            partitions_def=partitions_of(plan) if plan.windowed else None,
            backfill_policy=dg.BackfillPolicy(max_partitions_per_run=plan.chunks_per_run) if plan.windowed else None,
            metadata={"location": plan.to, "query": _query_text(plan)},
            description=f"Copies a query of `{plan.source}` to `{plan.to}`. The copy is complete once `manifest.json`"
            " says `sealed: true`.",
        )
        asset = decorator(windows if plan.windowed else whole)
    due = " Without partitions, it copies every closed window that is missing." if plan.windowed else ""
    job = dg.define_asset_job(
        f"{plan.name}_copy",
        selection=dg.AssetSelection.assets(asset.key),
        description=f"Copies the query of {plan.name}; for schedules.{due}",
    )
    schedules = export_schedules(plan, job) if plan.scheduled else []
    return dg.Definitions(assets=[asset], jobs=[job], schedules=schedules)


def _copy(context: dg.AssetExecutionContext, plan: Plan, chosen: ChunkScans) -> dict[str, Any]:
    """Copy the chosen windows, or a query without windows; returns the metadata."""
    snapshots = snapshots_of(context)

    def report(outcomes: Sequence[Outcome], state: State) -> None:
        text = progress.committed(outcomes)
        if plan.windowed:
            report_chunks(context, context.asset_key, plan, outcomes, state, made_from_versions({}))
        if text:
            context.log.info(text)

    run = snapshots.export_run(plan.name)
    chunks = len(chosen.chunks) + len(chosen.late) or 1
    with snapshots.counting("copying", chunks, context.log.info) as progress:
        copied = copy(run, chosen.chunks, replace=chosen.replace, late=chosen.late, on_commit=report)
    context.log.info(f"COPY {copied.rows}")
    return copy_metadata(plan, copied, run.store.uri)


def copy_metadata(plan: Plan, copied: Copied, uri: str) -> dict[str, Any]:
    """Return the metadata of a copy's materialization; that of each window is beside it."""
    files = [file for outcome in copied.outcomes for file in outcome.files]
    metadata: dict[str, Any] = {
        "dagster/row_count": copied.rows,
        "bytes": sum(file.bytes for file in files),
        "file_count": len(files),
        "location": dg.MetadataValue.text(uri),
        "format": plan.file_format.text(),
        "query": _query_text(plan),
        "sealed": copied.sealed is not None,
    }
    if not plan.windowed:
        metadata["files"] = first_rows(
            {"path": file.path, "rows": file.rows, "bytes": file.bytes, "sha256": file.sha256} for file in files
        )
    if copied.state.header is not None and copied.state.header.single_file:
        metadata["file"] = dg.MetadataValue.text(f"{uri}/{files[0].path}")
    seal = seal_metadata(copied.sealed, copied.state, uri) if copied.sealed else {}
    return with_sizes(metadata | seal | metadata)  # what the run did first, and not what the seal has of the same name


def _query_text(plan: Plan) -> dg.MarkdownMetadataValue:
    return dg.MetadataValue.md(f"```sql\n{plan.query}\n```")
