"""Dagster's unstable parts: only this module imports private names, or handles warnings of public ones."""

from __future__ import annotations

import os
import uuid
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import dagster as dg

# The UI shows a partition's result only beside its materialization. Way out: AssetCheckResult, if it takes partitions.
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData

# Dagster's own comparison does not see materializations of external assets. Way out: the UI's "unsynced".
from dagster._core.definitions.data_version import (
    DEFAULT_DATA_VERSION,
    SKIP_PARTITION_DATA_VERSION_DEPENDENCY_THRESHOLD,
    DataProvenance,
    DataVersion,
    extract_data_provenance_from_entry,
    extract_data_version_from_entry,
)
from dagster._core.definitions.partitions.context import partition_loading_context

# `execute_in_process` gives a run no code location, and the timeline leaves it out. Way out: runs without a location.
from dagster._core.definitions.repository_definition import SINGLETON_REPOSITORY_NAME

# A step that stored its materializations must not store another one. Way out: an optional output, without downstream.
from dagster._core.definitions.source_asset import SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION

# PostgreSQL takes thousands of events at once ten times as fast. Way out: `context.log_event`, one by one.
from dagster._core.events import DagsterEvent, DagsterEventBatchMetadata

# Events that an IO manager stores lack what their asset was made from. Way out: leave it out, and show it as unsynced.
from dagster._core.execution.plan.execute_step import _build_data_version_tags, _get_input_provenance_data
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteRepositoryOrigin  # see the repository name

# Freshness policies are of assets only, and a comparison materializes none. Way out: those of checks.
from dagster._utils.schedules import get_latest_completed_cron_tick

_FETCHED = 1000
"""Records that are fetched at once; Dagster refuses to fetch more than 10,000."""

_MOST_COMPARED = SKIP_PARTITION_DATA_VERSION_DEPENDENCY_THRESHOLD

StepContext = dg.AssetExecutionContext | dg.AssetCheckExecutionContext | dg.OpExecutionContext
Context = StepContext | dg.OutputContext
"""A step that reports, or its output."""


@contextmanager
def accepting_unstable_parts() -> Iterator[None]:
    """Suppress Dagster's warnings that backfill policies and partitioned checks may change, while definitions are made.

    Users can do nothing about these warnings, which every process of every step would print.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        warnings.simplefilter("ignore", dg.PreviewWarning)
        yield


def quiet_instance(instance: dg.DagsterInstance) -> dg.DagsterInstance:
    """Return an instance that sends no telemetry unless its settings choose to, and captures no output of steps.

    Dagster captures output by processes of its own, which Ctrl-C in a terminal ends with a trace.
    """
    ref = instance.get_ref()
    telemetry = {"telemetry": {"enabled": False}, **ref.settings}
    captured = ref.compute_logs_data._replace(
        module_name="dagster._core.storage.noop_compute_log_manager",
        class_name="NoOpComputeLogManager",
        config_yaml="{}",
    )
    instance.dispose()
    return dg.DagsterInstance.from_ref(ref._replace(settings=telemetry, compute_logs_data=captured))


_BATCH_SIZE = "DAGSTER_EVENT_BATCH_SIZE"
"""Dagster's variable: the most events that are stored at once; without it, each is stored alone."""


NO_EVENTS_AT_THE_END = {SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION: True}
"""Metadata of a step's result for which Dagster stores no materialization, because the step stored them itself."""


def leave_out_events_at_the_end(context: dg.OutputContext) -> None:
    """Let Dagster store no materialization after an IO manager that stored them itself."""
    context._asset_key = None


def store_events(
    context: Context,
    events: Sequence[dg.AssetMaterialization] | Sequence[dg.AssetObservation],
) -> None:
    """Store events of one kind, of one asset, and not when the step ends.

    Dagster's PostgreSQL storage takes a commit's thousands of windows so ten times as fast as one by one. The variable
    stays: one that is taken back while another thread's batch is buffered would lose that batch.
    """
    own, step = _step_of(context)
    batch = str(uuid.uuid4())
    os.environ.setdefault(_BATCH_SIZE, "256")
    for number, event in enumerate(events, 1):
        in_batch = DagsterEventBatchMetadata(batch, is_end=number == len(events))
        kind: Any = DagsterEvent.asset_observation
        if isinstance(event, dg.AssetMaterialization):
            kind = DagsterEvent.asset_materialization
        own._events.append(kind(step, event, in_batch))


def _step_of(context: Any) -> tuple[Any, Any]:
    """Return the context that takes events, and that of its step."""
    own = getattr(context, "op_execution_context", context)
    return own, own.step_context if isinstance(own, dg.OutputContext) else own.get_step_execution_context()


def instance_of(context: Context) -> dg.DagsterInstance:
    """Return the instance that records the run of a step, also from its output."""
    return context.step_context.instance if isinstance(context, dg.OutputContext) else context.instance


def store_results(context: Context, results: Iterable[dg.AssetCheckEvaluation]) -> None:
    """Store results of checks, except those of checks that the run of a step executes.

    Dagster has no way to store several at once.
    """
    own, step = _step_of(context)
    executed = {check for data in step.job_def.asset_layer.data for check in data.assets_def.check_keys}
    for result in results:
        if result.asset_check_key not in executed:
            own._events.append(DagsterEvent.asset_check_evaluation(step, result))


def made_from_inputs(context: dg.OutputContext) -> dict[str, str]:
    """Return the tags by which Dagster says what an output was made from: its code, and the versions of its inputs."""
    step = context.step_context
    if not step.is_external_input_asset_version_info_loaded:
        return {}
    code = step.job_def.asset_layer.get(context.asset_key).code_version or step.run_id
    inputs = _get_input_provenance_data(context.asset_key, step)
    tags = _build_data_version_tags(dg.DataVersion(""), code, inputs, data_version_is_user_provided=False)
    del tags["dagster/data_version"]
    return tags


def changed_inputs(
    context: StepContext, key: dg.AssetKey, partitions: Iterable[str]
) -> Iterator[tuple[dg.EventLogRecord | None, set[dg.AssetKey], set[dg.AssetKey]]]:
    """Yield for partitions of an asset the newest materialization, and which upstream assets have other versions since.

    Last come those whose versions are not compared, because Dagster recorded none, or because they are of 100 or more
    partitions; the asset itself, if it has no upstream asset.
    """
    layer: Any = context.job_def.asset_layer.asset_graph
    graph = getattr(layer, "source_asset_graph", layer)  # a job's own graph lacks what is upstream of it
    for partition in partitions:
        record = context.instance.get_latest_data_version_record(key, False, partition)
        made = extract_data_provenance_from_entry(record.event_log_entry) if record else None
        changed, unknown = set[dg.AssetKey](), set[dg.AssetKey]()
        for parent in graph.get(key).parent_keys or {key}:
            read: list[str | None] = [None]
            if parent != key and graph.get(parent).is_partitioned:
                with partition_loading_context(dynamic_partitions_store=context.instance):
                    found = graph.get_parent_partition_keys_for_child(partition, parent, key)
                    read = list(found.partitions_subset.get_partition_keys())
            known = made is not None and made.input_data_versions.get(parent, DEFAULT_DATA_VERSION)
            if not known or known == DEFAULT_DATA_VERSION or not made or not 0 < len(read) < _MOST_COMPARED:
                unknown.add(parent)
            elif any(_has_other_version(context.instance, made, parent, each) for each in read):
                changed.add(parent)
        yield record, changed, unknown


def _has_other_version(
    instance: dg.DagsterInstance, made: DataProvenance, parent: dg.AssetKey, partition: str | None
) -> bool:
    """Return whether an event after those that were read gave an upstream asset another version."""
    cursor = made.input_storage_ids[parent]

    def version(is_observed: bool, **bounds: int | None) -> DataVersion | None:
        record = instance.get_latest_data_version_record(parent, is_observed, partition, **bounds)
        return extract_data_version_from_entry(record.event_log_entry) if record else None

    newer = version(False, after_cursor=cursor) or version(True, after_cursor=cursor)
    before = cursor + 1 if cursor is not None else None
    older = version(False, before_cursor=before) or version(True, before_cursor=before)
    return newer is not None and newer != older


@dataclass(frozen=True)
class CheckResult:
    """The result of a check for one partition, or for an asset without partitions."""

    partition: str | None
    passed: bool
    metadata: Mapping[str, Any]
    description: str | None
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR


def check_events(
    instance: dg.DagsterInstance, check: dg.AssetCheckKey, results: Sequence[CheckResult]
) -> list[dg.AssetCheckEvaluation]:
    """Return the events of a check's results, each about the newest materialization, by queries of all at once.

    The worst are last, because the overview of a check shows its newest result. Without its materialization, Dagster
    does not treat a partition's result as current, and the UI does not show it.
    """
    partitions = {result.partition for result in results}
    keys = {partition for partition in partitions if partition is not None}
    kind = dg.DagsterEventType.ASSET_MATERIALIZATION
    ids = list(instance.get_latest_storage_id_by_partition(check.asset_key, kind, keys).values()) if keys else []
    newest: dict[str | None, dg.EventLogRecord] = {}
    for first in range(0, len(ids), _FETCHED):
        some = ids[first : first + _FETCHED]
        wanted = dg.AssetRecordsFilter(check.asset_key, storage_ids=some)
        records = instance.fetch_materializations(wanted, limit=len(some)).records
        newest |= {record.partition_key: record for record in records}
    if None in partitions:
        newest |= zip((None,), instance.fetch_materializations(check.asset_key, limit=1).records, strict=False)
    targets = {
        partition: AssetCheckEvaluationTargetMaterializationData(
            storage_id=record.storage_id, run_id=record.run_id, timestamp=record.timestamp
        )
        for partition, record in newest.items()
    }
    return [
        dg.AssetCheckEvaluation(
            asset_key=check.asset_key,
            check_name=check.name,
            partition=result.partition,
            passed=result.passed,
            metadata=result.metadata,
            description=result.description,
            severity=result.severity,
            target_materialization_data=targets.get(result.partition),
        )
        for result in sorted(results, key=lambda each: (each.passed, each.severity.value), reverse=True)
    ]


def passing_partitions(
    instance: dg.DagsterInstance, check: dg.AssetCheckKey, *, current: bool = True
) -> set[str | None]:
    """Return the partitions for which the UI shows that a check passed; None for no partition.

    Args:
        instance: The instance.
        check: The check.
        current: Whether the result has to be about the newest materialization.
    """
    infos = instance.event_log_storage.get_asset_check_partition_info([check])
    return {info.partition_key for info in infos if (info.is_current or not current) and _ended(info) == "SUCCEEDED"}


def failed_partitions(instance: dg.DagsterInstance, *checks: dg.AssetCheckKey) -> set[str | None]:
    """Return the partitions for which the newest result of a check is that it failed; None for no partition."""
    infos = instance.event_log_storage.get_asset_check_partition_info(list(checks))
    return {info.partition_key for info in infos if _ended(info) == "FAILED"}


def _ended(info: Any) -> str:
    """Return how a check ended last; "" if it never did."""
    return "" if info.latest_execution_status is None else str(info.latest_execution_status.value)


def last_tick(cron: str, before: datetime) -> datetime:
    """Return when a cron schedule in UTC ticked last before an instant."""
    return get_latest_completed_cron_tick(cron, before, "UTC")


def runs_asset(context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext, key: dg.AssetKey) -> bool:
    """Return whether the run of a step materializes an asset, too."""
    return key in context.job_def.asset_layer.selected_asset_keys


def reads_before_export(context: dg.InputContext, exporting: dg.AssetKey) -> bool:
    """Return whether a run executes an asset, and the step that has an input does not wait for it.

    Args:
        context: The input, whose own asset is not executable: Dagster orders no steps by it.
        exporting: The asset that materializes it.
    """
    layer = context.step_context.job_def.asset_layer
    executed, graph = layer.selected_asset_keys, layer.asset_graph
    waiting = [output.properties.asset_key for output in context.step_context.step.step_outputs]
    seen: set[dg.AssetKey] = set()
    while exporting in executed and (keys := [key for key in waiting if key is not None and key not in seen]):
        seen.update(keys)
        parents = {parent for key in keys for parent in graph.get(key).parent_keys}
        if exporting in parents:
            return False
        waiting = [parent for parent in parents & executed if graph.get(parent).is_executable]
    return exporting in executed


def asks_to_replace(context: dg.OutputContext) -> bool:
    """Return whether the run config of an output's asset has `replace: true`; see `ChunkConfig`."""
    config = context.step_context.op_config
    return isinstance(config, dict) and config.get("replace") is True


def requiring_resources(definition: dg.IOManagerDefinition, keys: Set[str]) -> dg.IOManagerDefinition:
    """Let the definition of a configurable IO manager require resources of a run by their keys.

    Dagster's own way is to nest resources, which copies them: each copy would have its own Spark session.
    """
    definition._required_resource_keys = frozenset(keys)
    return definition


def belonging_to_location(instance: dg.DagsterInstance, run_id: str, location: str) -> dict[str, str]:
    """Let a run that this process is about to execute belong to a code location, as if it was launched there.

    `execute_in_process` gives a run no code location, and Dagster's timeline leaves out such runs.

    Returns:
        Tags to create the run with.
    """
    origin = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin(location), SINGLETON_REPOSITORY_NAME)
    moved: list[bool] = []

    def move(_: Any) -> None:
        run = instance.get_run_by_id(run_id) if not moved else None
        if run is not None:
            instance.run_storage.replace_job_origin(run, origin.get_job_origin(run.job_name))
            moved.append(True)

    instance.add_event_listener(run_id, move)  # called as soon as the run is created
    return {".dagster/repository": origin.get_label()}


def start_event_cursors(instance: dg.DagsterInstance) -> None:
    """Let the daemon of a new instance handle events from the first on."""
    from dagster._daemon.auto_run_reexecution.event_log_consumer import _create_cursor_key  # loads the daemon's modules

    events = (dg.DagsterEventType.RUN_FAILURE, dg.DagsterEventType.RUN_SUCCESS)
    instance.daemon_cursor_storage.set_cursor_values({_create_cursor_key(event): "0" for event in events})
