"""Builds the Dagster definitions of a configuration: each plan's are named after it. Nothing here connects."""

# Dagster reads the annotations of assets and checks, so they must not be postponed here.
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import dropwhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.pins.tags import create_due_tag
from snapshot_assets.catalog.state.totals import missing_text, outside_text
from snapshot_assets.databases.contract import Access
from snapshot_assets.engine.export.restore_needs import restore_warnings
from snapshot_assets.engine.export.start_snapshot import skipped_text
from snapshot_assets.errors import PlanError
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.pipeline.assets.checks import (
    FOUND_BY_SEAL,
    chunk_checks,
    failed_chunks,
    manifest_checks,
    record_report,
    recording_damage,
    suspects_all,
)
from snapshot_assets.pipeline.assets.conditions import (
    automation_sensor,
    fresh,
    when_closed,
    when_missing,
    when_updated,
    when_windows_are,
)
from snapshot_assets.pipeline.assets.current import current_checks
from snapshot_assets.pipeline.assets.io_manager import ChunkConfig, ChunkScans, shared_resources
from snapshot_assets.pipeline.assets.replicas import replica_asset
from snapshot_assets.pipeline.assets.restored import restored_asset, restored_checks
from snapshot_assets.pipeline.assets.tables import database_spec, names_of, table_specs
from snapshot_assets.pipeline.assets.tags import show_tags, tag_asset, tag_job, tag_sensor
from snapshot_assets.pipeline.automation.comparison import equality_checks, lateness_check
from snapshot_assets.pipeline.automation.exports import (
    ExportConfig,
    ManifestConfig,
    chosen_chunks,
    copy_definitions,
    export_job,
    export_schedules,
)
from snapshot_assets.pipeline.automation.jobs import plan_jobs, plan_schedules
from snapshot_assets.pipeline.automation.restores import restore_job, restore_sensor
from snapshot_assets.pipeline.automation.verification import replica_check
from snapshot_assets.pipeline.dagster.dagster_internals import accepting_unstable_parts, runs_asset
from snapshot_assets.pipeline.dagster.failures import showing_failures
from snapshot_assets.pipeline.dagster.metadata import schema_metadata, seal_metadata
from snapshot_assets.pipeline.dagster.partitions import asset_key, chunk_assets, partitions_of, plan_asset
from snapshot_assets.pipeline.dagster.resources import IO_MANAGER, PLAN, SNAPSHOTS, SPARK, Snapshots, snapshots_of
from snapshot_assets.plan.configuration import Configuration, UnsetOptions
from snapshot_assets.plan.plan import Plan
from snapshot_assets.plan.windows import require_range
from snapshot_assets.storage.location import parse_location

if TYPE_CHECKING:
    from dagster_aws.s3 import S3Resource  # loads dagster_aws's other services, too, which takes 50 MB

_SETTINGS = tuple(
    name
    for name in (each.name for each in fields(Snapshots))
    if not name.startswith("_") and name not in ("configuration", "run_id", "session", "spark_key", "s3")
)

_OWN_NAMES = ("manifest", "tag", "restored", "target", "replica")
"""Names of a plan's assets that a user's own asset, its source, cannot have."""

_HASHED = {
    "new": "Hashes the files that no seal has verified, or if there are none, up to 1 GiB of the others, another part"
    " each day.",
    "full": "Hashes all files.",
}
"""What `manifest` hashes, by the plan's `seal_verify`."""


def build_definitions(
    configuration: Configuration,
    *,
    executor: dg.ExecutorDefinition | dg.Executor | None = None,
    resources: Mapping[str, Any] | None = None,
    key_prefix: str | Sequence[str] = (),
    spark_key: str = SPARK,
    s3: "S3Resource | None" = None,
    **settings: Any,
) -> dg.Definitions:
    """Return the definitions of all plans of a configuration; nothing connects.

    They need a resource with a Spark session. If your project has one, or an executor, merge the definitions.

    Args:
        configuration: Sources, storage options and plans.
        executor: Runs the steps; by default the executor of the merged definitions, else Dagster's default.
        resources: Further resources, such as `{"pyspark": spark_resource()}`.
        key_prefix: Parts of the assets' keys before the names of plans that have no `key_prefix` of their own.
        spark_key: Resource key of the Spark session.
        s3: Endpoint and credentials of `s3://` locations without storage options in the configuration.
        **settings: Further attributes of `Snapshots`.

    Raises:
        PlanError: A plan's windows cannot be Dagster partitions, or a variable that is not set has the kind of a
            database.
        TypeError: An argument is unknown.

    Example:
        .. code-block:: python

            alone = build_definitions(
                load_configuration("snapshots.yaml"),
                executor=dg.in_process_executor,
                resources={"pyspark": spark_resource(**{"spark.master": "local[8,4]"})},
                s3=S3Resource(endpoint_url="https://minio.example.com"),
            )
            merged = dg.Definitions.merge(your_definitions, build_definitions(load_configuration()))
    """
    for name in settings:  # before a run starts
        if name == "spark":
            remedy = "pass the Spark session as resources={'pyspark': spark_resource()}"
        elif name not in _SETTINGS:
            remedy = f"it has executor, resources, key_prefix, spark_key, s3, {', '.join(_SETTINGS)}"
        else:
            continue
        raise TypeError(f"build_definitions() has no argument {name!r}; {remedy}.")
    configuration.require_kinds()
    prefixed = configuration.with_key_prefix((key_prefix,) if isinstance(key_prefix, str) else tuple(key_prefix))
    shared = shared_resources(lambda: prefixed, spark_key=spark_key, s3=s3, **settings)
    alone = dg.Definitions(resources=shared | dict(resources or {}), executor=executor)
    return dg.Definitions.merge(alone, plan_definitions(prefixed, spark_key))


def plan_definitions(configuration: Configuration, spark_key: str) -> dg.Definitions:
    """Return the definitions of all plans of a configuration, without the resources that they share.

    Raises:
        PlanError: A plan's windows cannot be Dagster partitions.
    """
    plans = (
        _with_references(_definitions_of(plan, configuration, spark_key), plan, configuration.path)
        for plan in configuration.plans
    )
    return dg.Definitions.merge(*plans)


def _with_references(definitions: dg.Definitions, plan: Plan, path: Path | None) -> dg.Definitions:
    """Return the definitions of a plan whose assets refer to the plan in a configuration's file, if there is one.

    They refer to its line, unless plans are written in another way than one per line.
    """
    if path is None or not path.is_file():  # a component has the references that Dagster gives it
        return definitions
    begins = re.compile(rf"\s+[\"']?{re.escape(plan.name)}[\"']?\s*:")
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    below_plans = dropwhile(lambda numbered: not numbered[1].startswith("plans:"), lines)  # a source may have its name
    line = next((number for number, text in below_plans if begins.match(text)), None)
    with accepting_unstable_parts():
        reference = dg.LocalFileCodeReference(
            file_path=str(path.resolve()), line_number=line, label=f"plan {plan.name}"
        )
        metadata = {"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=[reference])}
        return definitions.map_asset_specs(func=lambda spec: spec.merge_attributes(metadata=metadata))


def _definitions_of(plan: Plan, configuration: Configuration, spark_key: str) -> dg.Definitions:
    """Return all definitions of a plan, which has no resources of its own."""
    require_range(plan)
    if plan.kind == "query":
        return copy_definitions(plan, spark_key)
    target = configuration.target_kind(plan)
    configuration.target_kind(plan, "scratch")
    if plan.source_asset and dg.AssetKey(plan.source_asset) in {asset_key(plan, name) for name in _OWN_NAMES}:
        raise PlanError(f"plan {plan.name!r}: {plan.source} is an asset of the plan itself; name the asset of your own")
    source = configuration.kind(plan.source)
    comparable = not plan.schema_only and (source is None or source.access is Access.CONNECTION)
    if plan.dagster.compare_cron and source is not None and not comparable:
        raise PlanError(
            f"plan {plan.name!r}: {plan.source} is a {source.title}, which cannot be compared; remove compare_cron"
        )
    locked = _locked(plan, configuration)
    if plan.dagster.extend_locks_cron and not locked:
        raise PlanError(
            f"plan {plan.name!r}: extend_locks_cron needs the storage option lock; write it, or remove this"
        )
    jobs = plan_jobs(plan, spark_key, comparable=comparable, locked=locked)
    schedules = plan_schedules(plan, jobs)
    tagging = [tag_job(plan)] if plan.retention.tag else []
    restoring = [restore_job(plan)] if plan.target else []
    sensors: list[dg.SensorDefinition] = [tag_sensor(plan, job) for job in tagging]
    sensors += [automation_sensor(plan)] if plan.dagster.automation else []
    sensors += [restore_sensor(plan, job) for job in restoring if plan.dagster.restore_on]
    specs = table_specs(plan, names_of(plan, configuration))
    specs += [database_spec(plan, "target", target)] if plan.target else []
    with accepting_unstable_parts():
        assets, checks = [_manifest(plan), tag_asset(plan)], [*manifest_checks(plan), *chunk_checks(plan)]
        if plan.target:
            assets.append(restored_asset(plan, target, spark_key))
        if plan.replicate_to:
            assets.append(replica_asset(plan))
            checks.append(replica_check(plan))
        if comparable:
            checks += equality_checks(plan, spark_key)
        if plan.dagster.compare_cron:
            checks.append(lateness_check(plan))
        if plan.target and not plan.schema_only:
            checks += restored_checks(plan, spark_key)
        checks += current_checks(plan, spark_key)
        exporting = []
        if not plan.source_asset:
            assets.append(_schema(plan, spark_key))
            if not plan.schema_only:
                assets += _chunk_assets(plan, spark_key)
            specs.append(database_spec(plan, "source", source))
            exporting = [export_job(plan)]
            schedules += export_schedules(plan, exporting[0])
    return dg.Definitions(
        assets=[*assets, *specs],
        asset_checks=checks,
        jobs=[*exporting, *jobs, *tagging, *restoring],
        schedules=schedules,
        sensors=sensors,
    )


def _locked(plan: Plan, configuration: Configuration) -> list[str]:
    """Return the URIs of a plan's location and replica whose storage has the option `lock`."""
    options = {plan.to: configuration.written_store_options(plan)}
    if plan.replicate_to:
        options[plan.replicate_to] = configuration.storage.of(parse_location(plan.replicate_to))
    unset = plan.dagster.extend_locks_cron is not None  # where variables are missing, the schedule alone tells
    return [
        uri
        for uri, given in options.items()
        if given is not None and (given.lock is not None or (unset and isinstance(given, UnsetOptions)))
    ]


def _schema(plan: Plan, spark_key: str) -> dg.AssetsDefinition:
    @plan_asset(
        plan,
        "schema",
        **when_missing(plan),
        kinds={"json"},
        required_resource_keys={SNAPSHOTS, spark_key},
        deps=[asset_key(plan, "source")],
        backfill_policy=dg.BackfillPolicy.single_run(),
        description=f"Tables and views of `{plan.source}` as JSON documents. Materialising it starts the snapshot.",
    )
    def schema(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        snapshots = snapshots_of(context)
        with showing_failures():
            export = snapshots.open_export(plan.name, check_rows=True)
        if export.skipped:
            context.log.info(skipped_text(export.skipped))
        for sentence in (*restore_warnings(export.schema), *filter(None, [export.unshared])):
            context.log.warning(sentence)
        version = dg.DataVersion(export.catalog.state.snapshot_id)  # chunks belong to one snapshot
        return dg.MaterializeResult(metadata=schema_metadata(export), data_version=version)

    return schema


def _chunk_assets(plan: Plan, spark_key: str) -> list[dg.AssetsDefinition]:
    """Return the assets `chunks` and `untimed_tables`, whose output the IO manager writes as chunks."""
    shared: dict[str, Any] = {
        "kinds": {"pyspark", plan.format},
        "required_resource_keys": {SNAPSHOTS, spark_key},
        "deps": [asset_key(plan, "schema")],
        "io_manager_key": IO_MANAGER,
        "metadata": {"location": plan.to, "dagster/uri": plan.to, PLAN: plan.name},
    }

    @plan_asset(
        plan,
        "chunks",
        **when_closed(plan),
        **shared,
        partitions_def=partitions_of(plan),
        backfill_policy=dg.BackfillPolicy(max_partitions_per_run=plan.chunks_per_run),
        description=f"One chunk of `{plan.to}` per window: all timed tables' rows of `{plan.source}` in it.",
    )
    def chunks(context: dg.AssetExecutionContext, config: ExportConfig) -> ChunkScans:
        with showing_failures():
            return chosen_chunks(context, plan, config)

    @plan_asset(
        plan,
        "untimed_tables",
        **when_windows_are(plan),
        **shared,
        backfill_policy=dg.BackfillPolicy.single_run(),
        description="Chunk 0: tables without a time index, and rows whose time is NULL or infinite.",
    )
    def untimed_tables(config: ChunkConfig) -> ChunkScans:
        if plan.late_windows == "changed":
            return ChunkScans((UNTIMED_CHUNK,), config.replace, changed=(UNTIMED_CHUNK,))
        return ChunkScans((UNTIMED_CHUNK,), config.replace or plan.kind == "continuous")

    return [chunks, untimed_tables]


def _manifest(plan: Plan) -> dg.AssetsDefinition:
    every_window = dg.AllPartitionMapping()
    upstream = [
        dg.AssetDep(asset_key(plan, name), partition_mapping=every_window if name == "chunks" else None)
        for name in (["schema"] if plan.schema_only else chunk_assets(plan))
    ]

    @plan_asset(
        plan,
        "manifest",
        **when_updated(plan),
        **fresh(plan),
        kinds={"json"},
        required_resource_keys={SNAPSHOTS},
        deps=upstream,
        backfill_policy=dg.BackfillPolicy.single_run(),
        output_required=False,
        metadata={"dagster/uri": plan.to},
        description=f"Checks that every file exists with its size. {_HASHED[plan.seal_verify]} Then seals the snapshot"
        " and writes `manifest.json` and `SHA256SUMS`.",
    )
    def manifest(context: dg.AssetExecutionContext, config: ManifestConfig) -> Iterator[dg.MaterializeResult[None]]:
        snapshots = snapshots_of(context)
        with showing_failures():
            required = config.require_complete
            if required is None:
                required = not runs_asset(context, asset_key(plan, "chunks"))
            store = snapshots.store(plan.name)
            state = Catalog.open(store).state
            if not required and (missing := state.missing()):
                context.log.warning(f"Not sealed: {missing_text(state)}, such as chunk {missing[0]}.")
                return
            depth = config.depth()
            if suspects_all(context.instance, plan, store, state):
                depth = "full"
            chunks = len(state.counted_chunks())
            with recording_damage(context, plan, store), snapshots.counting("sealing", chunks, context.log.info):
                sealed = snapshots.seal(plan.name, depth, failed_chunks(context.instance, plan))
            tags = plan.dagster.automation if config.create_due_tag is None else config.create_due_tag
            if tags and (tag := plan.retention.tag) is not None:
                catalog = Catalog.open_for_writing(store, single_writer=plan.single_writer)
                if create_due_tag(catalog, tag.rule):
                    show_tags(context, plan, catalog.state, store.uri)
            state = Catalog.open(store).state
        if outside := outside_text(state):
            context.log.info(outside)
        from snapshot_assets.engine.schema_history import history_warnings

        for sentence in history_warnings(store, state):
            context.log.warning(sentence)
        version = dg.DataVersion(sealed.seal.seal.checksum)
        yield dg.MaterializeResult(metadata=seal_metadata(sealed, state, plan.to), data_version=version)
        record_report(context, plan, state, sealed.report, FOUND_BY_SEAL)  # of the materialization, which is stored now

    return manifest
