"""The PySpark IO manager: one partition of an asset is one chunk, committed with its checksums.

`shared_resources` has it and the other resources that all plans share.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field
from pyspark.sql import DataFrame

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.operations.seal import hints_written
from snapshot_assets.catalog.schemas import read_schema
from snapshot_assets.engine.export.chunks import completed_chunks
from snapshot_assets.engine.export.tasks import Outcome
from snapshot_assets.engine.session_start import worker_python_of_others_chosen
from snapshot_assets.errors import PlanError
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.names import parse_table, table_text
from snapshot_assets.format.relations import Table, TableName
from snapshot_assets.pipeline.assets.checks import record_written
from snapshot_assets.pipeline.assets.current import record_changes
from snapshot_assets.pipeline.assets.tables import names_of, report_tables, tables_with_assets, warn_of_misplaced
from snapshot_assets.pipeline.dagster.dagster_internals import (
    asks_to_replace,
    leave_out_events_at_the_end,
    made_from_inputs,
    reads_before_export,
    requiring_resources,
    store_events,
)
from snapshot_assets.pipeline.dagster.failures import showing_failures
from snapshot_assets.pipeline.dagster.metadata import (
    made_from_versions,
    materialization,
    report_chunks,
    schema_metadata,
)
from snapshot_assets.pipeline.dagster.partitions import asset_key, window_of
from snapshot_assets.pipeline.dagster.resources import (
    IO_MANAGER,
    PLAN,
    SNAPSHOTS,
    SPARK,
    TABLE,
    Snapshots,
    snapshots_of,
)
from snapshot_assets.pipeline.dagster.runs import start_of_run
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.plan.plan import Plan

if TYPE_CHECKING:
    from snapshot_assets.engine.export.run import ExportRun, OpenExport


@dataclass(frozen=True)
class ChunkScans:
    """Output of the assets `chunks` and `untimed_tables`: the scans of all the plan's tables, for some chunks.

    Attributes:
        chunks: Chunk ids, in order.
        replace: Whether completed chunks are exported again.
        late: Completed chunks that are exported again after those.
        changed: Chunks of which the tables whose rows changed in the source are exported again after those, if they
            are completed before.
    """

    chunks: tuple[int, ...]
    replace: bool = False
    late: tuple[int, ...] = ()
    changed: tuple[int, ...] = ()


class ChunkConfig(dg.Config):
    """Run config of an asset that writes chunks; your own asset takes it as its parameter `config`."""

    replace: bool = Field(default=False, description="Write completed chunks again, for example for late rows.")


Tables = Mapping[TableName, Table]
Frames = DataFrame | Mapping[str, DataFrame]
_Exported = tuple[Catalog, Tables, int, Generator[Sequence[Outcome], None, None]]
"""The location, the tables, the number of chunks, and their outcomes by commit: iterating over them exports.

If the source is not needed, the tables are those of the newest schema.
"""


class SnapshotIOManager(dg.ConfigurableIOManager):
    """Writes an asset's output as chunks of a plan's snapshot, and loads chunks back as DataFrames.

    Features:

    - takes scans (from this package's own assets), a Spark `DataFrame`, or a dict of them by `schema.table`
    - supports one partition, a range in one run, and a backfill
    - leaves completed chunks as they are, unless the run config has `replace: true`
    - attaches rows, bytes, files and checksums to each partition

    The plan of DataFrames has their asset as its source: `source: asset:daily_delays`. A DataFrame becomes the
    table `<plan's name>.<asset's name>`. In a run of several partitions, return a dict by partition key. It requires
    the resources `snapshots` and the Spark session's.

    Example:
        .. code-block:: python

            @dg.asset(
                partitions_def=partitions_of(plan),
                io_manager_key="snapshot_io_manager",
            )
            def daily_delays(context, config: ChunkConfig, pyspark: LazyPySparkResource) -> DataFrame:
                return pyspark.spark_session.table("delays").where(...)
    """

    spark_key: str = Field(default=SPARK, description="Resource key of the Spark session.")

    def get_resource_definition(self) -> Any:
        """Return the definition, which requires `snapshots` and the Spark session."""
        return requiring_resources(super().get_resource_definition(), {SNAPSHOTS, self.spark_key})

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[SnapshotIOManager]:
        """Choose the interpreter of Spark's workers before the asset starts a session of the user's own resource."""
        spark = getattr(context.resources, self.spark_key)
        with worker_python_of_others_chosen(getattr(spark, "spark_config", {})):
            yield self

    def handle_output(self, context: dg.OutputContext, obj: ChunkScans | Frames | Mapping[str, Frames]) -> None:
        """Write and commit chunks, and report each once it is committed.

        If some fail, the run fails after the others are committed.
        """
        snapshots, scanned = snapshots_of(context), isinstance(obj, ChunkScans)
        with showing_failures():
            plan = snapshots.configuration.plan(_plan_of(context, snapshots.configuration))
            names = names_of(plan, snapshots.configuration)
            run = snapshots.export_run(plan.name)
            if isinstance(obj, ChunkScans):
                catalog, tables, chunks, exported = _export_scans(context, run, obj)
            else:
                catalog, tables, chunks, exported = _export_frames(context, run, obj)
        if scanned:
            made_from = made_from_versions({asset_key(plan, "schema"): catalog.state.snapshot_id})
        else:
            made_from = made_from_inputs(context)
        key = context.asset_key
        warn_of_misplaced(context, key, plan, tables, names)
        with showing_failures(), hints_written(catalog, context.log.warning):
            counting = snapshots.counting("exporting", chunks, context.log.info)
            with counting as progress, closing(exported):
                for outcomes in exported:
                    for present in (each for each in outcomes if not scanned and each.status == "present"):
                        context.log.warning(
                            f"Chunk {present.chunk} of {catalog.store.uri} is completed, so the DataFrames returned for"
                            " it were not written. Set `replace: true` in the asset's run config (ChunkConfig) to write"
                            " them in its place."
                        )
                    done = [outcome for outcome in outcomes if outcome.error is None]
                    text = progress.committed(done)
                    report_chunks(context, key, plan, done, catalog.state, made_from)
                    record_written(context, key, plan, outcomes)
                    report_tables(context, plan, done, tables, names)
                    if text:
                        context.log.info(text)
        leave_out_events_at_the_end(context)

    def load_input(self, context: dg.InputContext) -> DataFrame | dict[str, DataFrame]:
        """Return the rows of the upstream partitions as DataFrames by `schema.table`, or as one DataFrame.

        Raises:
            dagster.Failure: A chunk is not completed, or a file has another checksum; or the run exports a table
                without waiting for it.
        """
        from snapshot_assets.engine.reading.read import load_frames

        snapshots = snapshots_of(context)
        with showing_failures():
            assert context.upstream_output is not None
            run = snapshots.export_run(_plan_of(context.upstream_output, snapshots.configuration))
            named = _metadata_of(context.upstream_output, TABLE)
            exporting = asset_key(run.plan, "chunks" if context.has_asset_partitions else "untimed_tables")
            if named and reads_before_export(context, exporting):  # rows from before the run would be read
                raise PlanError(
                    f"This run exports {exporting.to_user_string()}, and reads {context.asset_key.to_user_string()}"
                    f" without waiting for it. Add deps=[{list(exporting.path)}] to the asset that reads it, or"
                    " materialise it in a run of its own."
                )
            keys = context.asset_partition_keys if context.has_asset_partitions else []
            chunks = [window_of(run.plan, key).id for key in keys] or [UNTIMED_CHUNK]
            table = None if named is None else parse_table(named)
            spark = snapshots.spark(run.plan.name)
            frames = load_frames(spark, run.store, Catalog.open(run.store).state, chunks, table)
        by_name = {table_text(name): frame for name, frame in frames.items()}
        return next(iter(by_name.values())) if len(by_name) == 1 else by_name


def _plan_of(output: dg.OutputContext, configuration: Configuration) -> str:
    """Return the plan of an asset: the one that has it as its source, else the one that its metadata names.

    Raises:
        PlanError: There is none.
    """
    path = tuple(output.asset_key.path)
    filled = next((plan.name for plan in configuration.plans if plan.source_asset == path), None)
    if name := filled or _metadata_of(output, PLAN):
        return name
    raise PlanError(
        f"{output.asset_key.to_user_string()} is the source of no plan; give it a plan of its own, with"
        f" `source: asset:{'/'.join(path)}`."
    )


def _metadata_of(output: dg.OutputContext, name: str) -> str | None:
    """Return an entry of the metadata of an output's asset; None without it."""
    value = (output.definition_metadata or {}).get(name)
    if isinstance(value, dg.TextMetadataValue):
        value = value.value
    return None if value is None else str(value)


def _export_scans(context: dg.OutputContext, run: ExportRun, scans: ChunkScans) -> _Exported:
    catalog = run.read_catalog()
    looked_at = [chunk for chunk in scans.changed if catalog.state.completed(chunk)]
    if not (scans.replace or scans.late or looked_at) and all(catalog.state.completed(chunk) for chunk in scans.chunks):
        damaged, present = completed_chunks(catalog.store, catalog.state, scans.chunks)
        if not damaged:
            # The source is not needed.
            return catalog, _committed_tables(run.plan, catalog), len(present), (each for each in [present])
    export = snapshots_of(context).open_export(run.plan.name, catalog)
    first = export.commits(scans.chunks, replace_completed=scans.replace)
    late = export.commits(scans.late, replace_completed=True)
    changed = _changed(context, export, looked_at) if looked_at else ()
    schema = asset_key(run.plan, "schema")
    if context.step_context.instance.get_latest_materialization_event(schema) is None:  # this run began the snapshot
        version = export.catalog.state.snapshot_id
        store_events(context, [materialization(schema, schema_metadata(export), version=version)])
    tables = {table.table_name: table for table in export.schema.tables}
    every = (outcomes for commits in (first, late, changed) for outcomes in commits)
    return export.catalog, tables, len(scans.chunks) + len(scans.late), every


def _changed(context: dg.OutputContext, export: OpenExport, chunks: Sequence[int]) -> Iterator[Sequence[Outcome]]:
    """Look for changes in chunks once the others are exported, and export their changed tables again.

    Yields no outcome of a chunk that was only compared: its files are the same, and so is its materialization.
    """
    from snapshot_assets.engine.export.changes import find_changes  # Arrow, which definitions do not load

    snapshots, exported = snapshots_of(context), set[int]()
    changes = find_changes(export, chunks, snapshots.stage)
    context.log.info(f"{changes}.")
    changed = {part.chunk for part in changes.changed}
    snapshots.count_more(len(changed))
    try:
        for outcomes in export.commits(list(changes.only), replace_completed=True, only=changes.only):
            exported |= {each.chunk for each in outcomes if each.error is None}
            yield [each for each in outcomes if each.chunk in changed]
    finally:
        record_changes(context, context.asset_key, export.run.plan, changes, exported)


def _export_frames(context: dg.OutputContext, run: ExportRun, obj: Frames | Mapping[str, Frames]) -> _Exported:
    """Export the DataFrames of chunks that are not completed, or are damaged, or of all to replace them.

    The others are not described either: what is not written leaves no trace.
    """
    chunks = _frame_chunks(context, run.plan, obj)
    catalog, replace = run.read_catalog(), asks_to_replace(context)
    present = [] if replace else completed_chunks(catalog.store, catalog.state, list(chunks))[1]
    intact = {outcome.chunk for outcome in present}
    written = {chunk: frames for chunk, frames in chunks.items() if chunk not in intact}
    commits: Iterable[Sequence[Outcome]] = [present] if present else []
    if written:
        started = run.open_frames(written)
        catalog, commits = started.catalog, chain(commits, started.commits(list(written), replace_completed=replace))
        tables: Tables = {table.table_name: table for table in started.schema.tables}
    else:
        tables = _committed_tables(run.plan, catalog)
    return catalog, tables, len(chunks), (outcomes for outcomes in commits)


def _committed_tables(plan: Plan, catalog: Catalog) -> Tables:
    """Return the tables of the newest schema, for the events of tables; a rebuilt location may have none."""
    state = catalog.state
    if state.schema_id not in state.schemas or not tables_with_assets(plan):
        return {}
    schema = read_schema(catalog.store, state.schemas[state.schema_id])
    return {table.table_name: table for table in schema.tables}


def _frame_chunks(context: dg.OutputContext, plan: Plan, obj: Any) -> dict[int, dict[TableName, DataFrame]]:
    """Return the tables of each of the run's windows, in the windows' order.

    Raises:
        PlanError: The asset is not the plan's source, which exports and resumes all its chunks, or returned no frames.
    """
    asset, path = context.asset_key.to_user_string(), context.asset_key.path
    if plan.source_asset != tuple(path):
        raise PlanError(
            f"{asset} returned DataFrames for plan {plan.name!r}, whose source is {plan.source}. A"
            f" snapshot has one source: give the asset a plan of its own, with `source: asset:{'/'.join(path)}`."
        )
    if not context.has_asset_partitions:
        raise PlanError(
            f"{asset} has no partitions, and each chunk of plan {plan.name!r} is one. Give it"
            " partitions_def=partitions_of(plan)."
        )
    windows = sorted((window_of(plan, key), key) for key in context.asset_partition_keys)
    keys = {window.id: key for window, key in windows}
    if isinstance(obj, Mapping) and set(obj) == set(keys.values()):  # of one partition, too
        return {chunk: _named(context, plan, obj[key]) for chunk, key in keys.items()}
    if len(keys) > 1:
        raise PlanError(
            f"{asset} runs for {len(keys)} partitions at once; return a dict with one "
            "entry per partition key, or give the asset BackfillPolicy.multi_run(1)."
        )
    return {chunk: _named(context, plan, obj) for chunk in keys}


def _named(context: dg.OutputContext, plan: Plan, obj: Any) -> dict[TableName, DataFrame]:
    own = context.asset_key.path[-1]
    frames = obj if isinstance(obj, Mapping) else {own: obj}
    named: dict[TableName, DataFrame] = {}
    for name, frame in frames.items():
        if not (isinstance(frame, DataFrame) and isinstance(name, str)):
            raise PlanError(
                f"{context.asset_key.to_user_string()} returned {type(frame).__name__} for {name!r}; the snapshot IO "
                "manager takes a Spark DataFrame or a dict of them by table."
            )
        schema, dot, table = name.rpartition(".")
        named[TableName(schema if dot else plan.name, table)] = frame
    return named


def shared_resources(configuration: Callable[[], Configuration], *, spark_key: str, **settings: Any) -> dict[str, Any]:
    """Return the resources that the assets, jobs and schedules of all plans need, by key, apart from Spark.

    Args:
        configuration: Returns the sources, storage options and plans; called in each run.
        spark_key: Resource key of the Spark session.
        **settings: Further attributes of `Snapshots`.
    """

    class SnapshotsResource(dg.ConfigurableResource[Snapshots]):
        """Locations and sources of the snapshot plans."""

        # Dagster copies a resource by its fields, which run config shows, so the configuration, with secrets, is none.
        spark_key: str = Field(description="Resource key of the Spark session.")

        @contextmanager
        def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[Snapshots]:
            """Close at the end of the run what its steps opened."""
            run_id = context.run.run_id if context.run else ""
            given = {"started": start_of_run(context), **settings}
            with closing(Snapshots(configuration(), run_id, spark_key=self.spark_key, **given)) as snapshots:
                yield snapshots

    return {SNAPSHOTS: SnapshotsResource(spark_key=spark_key), IO_MANAGER: SnapshotIOManager(spark_key=spark_key)}
