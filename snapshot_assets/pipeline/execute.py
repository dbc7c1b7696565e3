"""Runs a plan's assets in this process, for the command line: the same assets that the UI shows."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as with_changes
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from snapshot_assets import errors
from snapshot_assets.databases.open import kind_of
from snapshot_assets.engine.compact.plan import CompactionPlan
from snapshot_assets.engine.progress import Progress
from snapshot_assets.engine.restore.plan import RestorePlan
from snapshot_assets.errors import InterruptedRunError, SnapshotError
from snapshot_assets.format.relations import TableName
from snapshot_assets.pipeline.assets import plan_definitions
from snapshot_assets.pipeline.dagster_internals import (
    belonging_to_location,
    leave_ctrl_c_to_this_process,
    without_unchosen_telemetry,
)
from snapshot_assets.pipeline.exports import range_of
from snapshot_assets.pipeline.keys import asset_key, op_name
from snapshot_assets.pipeline.maintenance import compact_config
from snapshot_assets.pipeline.resources import SPARK
from snapshot_assets.pipeline.shared import shared_resources
from snapshot_assets.pipeline.spark_session import spark_resource
from snapshot_assets.pipeline.user_folders import dagster_home
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.plan.plan import Plan

_RANGE_START, _RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
CODE_LOCATION = "snapshot_assets.definitions"
"""The code location of the plans in `snapshots.yaml`, to which runs of the command line belong by default."""

CODE_LOCATION_VARIABLE = "SNAPSHOTS_CODE_LOCATION"
"""Names another code location: that of a project which merges the plans into its own definitions."""

_NOT_BY_THE_DAEMON = {"dagster/max_retries": "0"}
"""Dagster's daemon would run a failed run again on the plan of the configuration, without the command's options."""

_NEW_INSTANCE = "telemetry:\n  enabled: false\n"
_CONSOLE = logging.getLogger("snapshot_assets.dagster")
"""Whether Dagster prints a run's events. If not, the command prints a failure once, and the run's log has its trace."""
_WRAPPERS = frozenset(
    ("DagsterExecutionStepExecutionError", "DagsterExecutionLoadInputError", "DagsterExecutionHandleOutputError")
)
"""Dagster's errors around an error of a step's own code."""
_INTERRUPTIONS = frozenset((dg.DagsterExecutionInterruptedError.__name__, KeyboardInterrupt.__name__))
"""What Ctrl-C raises: Dagster's error, or Python's where PySpark has put its own handler in place of Dagster's."""


def open_instance() -> dg.DagsterInstance:
    """Return the instance at `DAGSTER_HOME`, by default one below the user's state folder.

    A new instance has telemetry turned off; an existing one keeps its configuration. Where that does not mention
    telemetry, this process sends none.
    """
    home = dagster_home()
    home.mkdir(parents=True, exist_ok=True)
    if not any(home.iterdir()):
        (home / "dagster.yaml").write_text(_NEW_INSTANCE, encoding="utf-8")
    os.environ["DAGSTER_HOME"] = str(home.resolve())
    return without_unchosen_telemetry(dg.DagsterInstance.get())


def run_plan(
    configuration: Configuration,
    plan: Plan,
    keys: Sequence[str],
    *,
    instance: dg.DagsterInstance,
    written: Plan,
    force: bool = False,
    replace: bool = False,
    require_complete: bool = True,
    started: datetime | None = None,
    progress: Progress,
    on_skipped: Callable[[Sequence[TableName]], None],
) -> str:
    """Run a plan's job `<plan>_export`; returns the run's id.

    Args:
        configuration: The sources and storage options; contains the plan.
        plan: The plan, its range resolved.
        keys: Partition keys of the windows to export: one contiguous range in order, or empty.
        instance: The Dagster instance that records the run.
        written: The plan as the user wrote it, which may omit its ends.
        force: Start a new snapshot.
        replace: Export completed windows again.
        require_complete: Whether a missing window is an error; otherwise the run does not seal.
        started: When the windows were chosen; those that close later are not missing. None for the present.
        progress: Counts what the run does.
        on_skipped: Called with the tables that are not exported because they have no time index, if any.

    Raises:
        SnapshotError: The error of the run.
    """
    definitions = _definitions(
        configuration,
        plan,
        written={plan.name: written},
        force=frozenset({plan.name} if force else ()),
        checked=frozenset(() if kind_of(configuration.source(plan.source).uri) == "spark" else {plan.name}),
        started=started or datetime.now(UTC),
        progress=progress,
        on_skipped=on_skipped,
    )
    job = definitions.resolve_job_def(f"{plan.name}_export")
    config: dict[str, Any] = {
        op_name(plan, "manifest"): {"config": {"require_complete": require_complete, "create_due_tag": True}}
    }
    if keys:
        windows = {"windows": range_of(keys[0], keys[-1]), "replace": replace}
        config[op_name(plan, "chunks")] = {"config": windows}
    chosen = {asset_key(plan, name) for name in _assets(plan, keys, replace)}
    part = job.get_subset(asset_selection=chosen, asset_check_selection=set())  # the manifest reads all that is new
    return _execute(part, instance, config).run_id


def run_copy(
    configuration: Configuration,
    plan: Plan,
    keys: Sequence[str],
    *,
    instance: dg.DagsterInstance,
    overwrite: bool,
    started: datetime,
    progress: Progress,
) -> Mapping[str, dg.MetadataValue[Any]]:
    """Run the job `<plan>_copy` of a plan of kind `query`; returns its metadata. See also `run_plan`.

    Args:
        configuration: The sources and storage options; contains the plan.
        plan: The plan.
        keys: Partition keys of the windows to copy; empty for a query without windows.
        instance: The Dagster instance that records the run.
        overwrite: Whether a copy that is there is deleted first.
        started: When the windows were chosen.
        progress: Counts what the run does.
    """
    definitions = _definitions(configuration, plan, overwrite=overwrite, started=started, progress=progress)
    result = _execute(definitions.resolve_job_def(f"{plan.name}_copy"), instance, {}, _of_range(keys))
    [output] = [event for event in result.all_events if event.is_successful_output]
    return output.step_output_data.metadata


def run_restore(
    configuration: Configuration,
    plan: Plan,
    keys: Sequence[str],
    *,
    instance: dg.DagsterInstance,
    restore_plan: RestorePlan,
    progress: Progress,
) -> str:
    """Run a plan's job `<plan>_restore`, with its checks; returns the run's id. See also `run_plan`.

    Args:
        configuration: The target and storage options.
        plan: A plan with a target, whose windows are those of the restored revision.
        keys: Partition keys of the windows to restore.
        instance: The Dagster instance that records the run.
        restore_plan: The plan to execute.
        progress: Counts what the run does.
    """
    definitions = _definitions(configuration, plan, restores={plan.name: restore_plan}, progress=progress)
    return _execute(definitions.resolve_job_def(f"{plan.name}_restore"), instance, {}, _of_range(keys)).run_id


def run_verification(configuration: Configuration, plan: Plan, *, instance: dg.DagsterInstance) -> str:
    """Read all files by a plan's job `<plan>_verify`; returns the run's id. See also `run_plan`."""
    config = {f"{plan.name}_verify_location": {"config": {"depth": "full"}}}
    job = _definitions(configuration, plan).resolve_job_def(f"{plan.name}_verify")
    return _execute(job, instance, config).run_id


def run_compaction(
    configuration: Configuration,
    plan: Plan,
    compaction: CompactionPlan,
    *,
    instance: dg.DagsterInstance,
    progress: Progress,
) -> str:
    """Compact by a plan's job `<plan>_maintenance`; returns the run's id. See also `run_plan`.

    Args:
        configuration: The storage options.
        plan: A plan of the location.
        compaction: The plan that the job executes.
        instance: The Dagster instance that records the run.
        progress: Counts what the run does.
    """
    definitions = _definitions(configuration, plan, compactions={plan.name: compaction}, progress=progress)
    config = {f"{plan.name}_maintain": {"config": compact_config(compaction.options)}}
    return _execute(definitions.resolve_job_def(f"{plan.name}_maintenance"), instance, config).run_id


def _definitions(configuration: Configuration, plan: Plan, **settings: Any) -> dg.Definitions:
    """Return the definitions of a plan. Variables of databases that a run does not open need not be set."""
    alone = with_changes(configuration, plans=(plan,))
    shared = shared_resources(lambda: alone, spark_key=SPARK, **settings)
    return dg.Definitions.merge(
        dg.Definitions(resources=shared | {SPARK: spark_resource()}), plan_definitions(alone, SPARK)
    )


def _of_range(keys: Sequence[str]) -> dict[str, str]:
    """Return the tags of a run of a range of partitions."""
    return {_RANGE_START: keys[0], _RANGE_END: keys[-1]} if keys else {}


def _execute(
    job: dg.JobDefinition,
    instance: dg.DagsterInstance,
    ops: dict[str, Any],
    tags: Mapping[str, str] | None = None,
) -> dg.ExecuteInProcessResult:
    """Execute a job with the run config of its ops; raises its error."""
    leave_ctrl_c_to_this_process()
    run_id = str(uuid.uuid4())
    own = belonging_to_location(instance, run_id, os.environ.get(CODE_LOCATION_VARIABLE) or CODE_LOCATION)
    result = job.execute_in_process(
        instance=instance,
        run_config=_console() | {"ops": ops},
        raise_on_error=False,
        run_id=run_id,
        tags=own | _NOT_BY_THE_DAEMON | dict(tags or {}),
    )
    if not result.success:
        raise _failure(result)
    return result


def _console() -> dict[str, Any]:
    level = "INFO" if _CONSOLE.isEnabledFor(logging.INFO) else "CRITICAL"
    return {"loggers": {"console": {"config": {"log_level": level}}}}


def _assets(plan: Plan, keys: Sequence[str], replace: bool) -> list[str]:
    replica = ["replica"] if plan.replicate_to else []
    if plan.schema_only:
        return ["schema", "manifest", *replica]
    return ["schema", *(["chunks"] if keys else []), *([] if replace else ["untimed_tables"]), "manifest", *replica]


def _failure(result: dg.ExecuteInProcessResult) -> SnapshotError:
    """Return the first failed step's error in its own class, which determines the exit status."""
    for event in result.all_events:
        if event.is_job_failure and event.job_failure_data.error is not None:  # before any step
            return _unforeseen("The run", event.job_failure_data.error, result.run_id)
        if event.is_step_failure:
            data = event.step_failure_data
            user = data.user_failure_data
            if user is None:
                return _unforeseen(event.step_key, data.error, result.run_id)
            named = user.metadata.get("error")
            kind = getattr(errors, str(named.value) if named else "", SnapshotError)
            causes = user.metadata.get("causes")
            attributes = {"causes": causes.value} if causes else {}
            return kind(user.description or f"{event.step_key} failed.", run=result.run_id, **attributes)
    return SnapshotError(f"Dagster run {result.run_id} failed.", run=result.run_id)


def _unforeseen(step: str | None, error: Any, run: str) -> SnapshotError:
    """Return an error that no asset or check turned into a failure, without Dagster's errors around it."""
    while error is not None and error.cause is not None and error.cls_name in _WRAPPERS:
        error = error.cause
    name = error.cls_name or "" if error is not None else ""
    if name in _INTERRUPTIONS:
        return InterruptedRunError(
            "The run was interrupted. Committed chunks stay; run the same command again to resume.",
            run=run,
        )
    kind = getattr(errors, name, SnapshotError)
    cause = error.message.strip().removeprefix(f"{errors.__name__}.{name}: ") if error is not None else "unknown"
    return kind(f"{step} failed: {cause}", run=run)
