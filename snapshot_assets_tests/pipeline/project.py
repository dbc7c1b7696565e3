"""A small project for tests: six days of readings in DuckDB, the third without any, and a plan that exports them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.format.units import time_text
from snapshot_assets.pipeline.build import build_definitions
from snapshot_assets.pipeline.dagster.partitions import partitions_of
from snapshot_assets.pipeline.dagster.resources import SPARK
from snapshot_assets.pipeline.dagster.spark_session import spark_resource
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.plan.plan import Plan

ROOT = Path(__file__).resolve().parents[2]
_PLANS = """
sources:
  readings: duckdb://${{CONFIG_DIR}}/source.duckdb
plans:
  demo:
    source: readings
    to: file://${{CONFIG_DIR}}/snapshots
    start_time: 2013-01-01T00:00:00Z
    end_time: {end}
    chunk_time_window: 1d
"""
START = datetime(2013, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
ROWS = (24, 24, 0, 24, 24, 24)
"""Rows of table `readings` on each day."""

Make = Callable[..., "Project"]
"""Makes a project with fields of its plan."""

QUIET = {"loggers": {"console": {"config": {"log_level": "ERROR"}}}}
"""Run config that prints errors only."""

RANGE_TAGS = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")


def make_source(path: Path) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("CREATE TABLE sensors (id INTEGER PRIMARY KEY, name VARCHAR NOT NULL)")
        connection.execute("INSERT INTO sensors VALUES (1, 'roof'), (2, 'cellar')")
        connection.execute("CREATE TABLE readings (moment TIMESTAMPTZ NOT NULL, sensor INTEGER, value DOUBLE)")
        for day, rows in enumerate(ROWS):
            connection.execute(
                "INSERT INTO readings"
                " SELECT $start + to_hours(n::INT), n % 2 + 1, $day * 100 + n FROM range($rows) AS r(n)",
                {"start": START + day * DAY, "day": day, "rows": rows},
            )


def write_project(folder: Path, *, days: int) -> Path:
    """Write a source, `snapshots.yaml` with a plan of the first days, and `DAGSTER_HOME`, which is returned."""
    make_source(folder / "source.duckdb")
    (folder / "snapshots.yaml").write_text(_PLANS.format(end=time_text(START + days * DAY)))
    home = folder / "dagster"
    home.mkdir()
    (home / "dagster.yaml").write_text((ROOT / "dagster.yaml").read_text())
    return home


@dataclass
class Project:
    """A source, a plan and a Dagster instance, and runs of the plan's assets."""

    folder: Path
    instance: dg.DagsterInstance
    plan: Plan
    sources: dict[str, str]
    more_plans: list[Plan] = field(default_factory=list)
    user_assets: list[dg.AssetsDefinition] = field(default_factory=list)
    resources: dict[str, object] = field(default_factory=dict)

    @property
    def database(self) -> Path:
        return self.folder / "source.duckdb"

    @property
    def target(self) -> Path:
        """The file of alias `copy`, which a plan may name as its target."""
        return self.folder / "copy.duckdb"

    @property
    def location(self) -> Path:
        return self.folder / "snapshots"

    @property
    def keys(self) -> Sequence[str]:
        return partitions_of(self.plan).get_partition_keys()

    def key(self, asset: str) -> dg.AssetKey:
        return dg.AssetKey([self.plan.name, asset])

    def definitions(self) -> dg.Definitions:
        sources = {alias: DatabaseAddress(alias, uri) for alias, uri in self.sources.items()}
        built = build_definitions(
            Configuration(sources, plans=(self.plan, *self.more_plans)),
            executor=dg.in_process_executor,
            resources={SPARK: spark_resource()},
        )
        return dg.Definitions.merge(built, dg.Definitions(assets=self.user_assets, resources=self.resources))

    def run(
        self,
        *assets: str,
        keys: Sequence[str] = (),
        single: str | None = None,
        config: dict[str, Any] | None = None,
        with_checks: bool = True,
    ) -> dg.ExecuteInProcessResult:
        """Run assets of the plan for a range of keys (as a backfill of one run does), or for a single one."""
        selection: dg.AssetSelection = dg.AssetSelection.assets(*(self.key(name) for name in assets))
        if not with_checks:
            selection = selection.without_checks()
        return self._execute(selection, keys, single, config or {})

    def run_checks(self, asset: str, keys: Sequence[str]) -> dg.ExecuteInProcessResult:
        """Run the checks of an asset, and not the asset."""
        return self._execute(
            dg.AssetSelection.assets(self.key(asset)) - dg.AssetSelection.assets(self.key(asset)).without_checks(),
            keys,
            None,
            {},
        )

    def _execute(
        self, selection: dg.AssetSelection, keys: Sequence[str], single: str | None, config: dict[str, Any]
    ) -> dg.ExecuteInProcessResult:
        jobs = dg.Definitions(jobs=[dg.define_asset_job("run", selection)])
        return (
            dg.Definitions.merge(self.definitions(), jobs)
            .resolve_job_def("run")
            .execute_in_process(
                instance=self.instance,
                partition_key=single,
                tags=dict(zip(RANGE_TAGS, (keys[0], keys[-1]), strict=True)) if keys else {},
                run_config={
                    "ops": {f"{self.plan.name}__{name}": {"config": given} for name, given in config.items()},
                }
                | QUIET,
                raise_on_error=False,
            )
        )

    def state(self) -> State:
        store = Configuration().store(self.plan)
        return Catalog.open(store).state

    def materialized(self, asset: str = "chunks") -> dict[str | None, dict[str, Any]]:
        """Return the metadata of each partition's newest materialization."""
        records = self.instance.fetch_materializations(self.key(asset), limit=1000).records
        newest: dict[str | None, dict[str, Any]] = {}
        for record in records:
            assert record.asset_materialization is not None
            metadata = {name: value.value for name, value in record.asset_materialization.metadata.items()}
            newest.setdefault(record.partition_key, metadata)
        return newest

    def observed(self, asset: str) -> dict[str, Any]:
        """Return the metadata of an asset's newest observation."""
        [record] = self.instance.fetch_observations(self.key(asset), limit=1).records
        assert record.asset_observation is not None
        return {name: value.value for name, value in record.asset_observation.metadata.items()}

    def log(self) -> list[str]:
        """Return what was written to the logs of all runs."""
        runs = [run.run_id for run in self.instance.get_runs()]
        return [log.user_message for run in runs for log in self.instance.all_logs(run)]

    def checks(self, asset: str, check: str) -> dict[str | None, bool]:
        """Return whether the newest result of each partition passed."""
        return {key: evaluation.passed for key, evaluation in self._evaluations(asset, check).items()}

    def faults(self, asset: str, check: str, partition: str | None) -> str:
        """Return the table of faults that a partition's newest result shows."""
        return str(self._evaluations(asset, check)[partition].metadata["first_faults"])

    def check_metadata(self, asset: str, check: str, partition: str) -> dict[str, Any]:
        """Return what a partition's newest result shows."""
        metadata = self._evaluations(asset, check)[partition].metadata
        return {name: value.value for name, value in metadata.items()}

    def check(self, asset: str, check: str) -> dg.AssetCheckEvaluation:
        """Return the newest result of a check without partitions."""
        return self._evaluations(asset, check)[None]

    def data_file(self, chunk: int) -> Path:
        """Return the first file of a chunk."""
        return self.location / next(self.state().live_files(chunk)).file.path

    def copy_location(self, into: Project) -> None:
        """Copy the snapshots to another project's location."""
        shutil.copytree(self.location, into.location)

    def _evaluations(self, asset: str, check: str) -> dict[str | None, dg.AssetCheckEvaluation]:
        key = dg.AssetCheckKey(self.key(asset), check)
        newest: dict[str | None, dg.AssetCheckEvaluation] = {}
        for record in self.instance.event_log_storage.get_asset_check_execution_history(key, limit=1000):
            event = record.event.dagster_event if record.event is not None else None
            if event is not None and event.event_type == dg.DagsterEventType.ASSET_CHECK_EVALUATION:  # else planned
                newest.setdefault(record.partition, event.asset_check_evaluation_data)
        return newest

    def failure(self, result: dg.ExecuteInProcessResult) -> dg.Failure:
        """Return the failure by which an asset describes what went wrong."""
        [step] = [event for event in result.all_events if event.is_step_failure]
        return step.step_failure_data.user_failure_data

    def break_chunk(self, chunk: int) -> None:
        """Put a file where the chunk's folder has to be, so that nothing can be written there."""
        (self.location / "data").mkdir(parents=True, exist_ok=True)
        (self.location / "data" / str(chunk)).write_bytes(b"in the way")

    def mend_chunk(self, chunk: int) -> None:
        (self.location / "data" / str(chunk)).unlink()


def flip(path: Path) -> None:
    """Change one byte in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def run_job(project: Project, name: str, ops: dict[str, Any], **options: Any) -> dg.ExecuteInProcessResult:
    """Run a job of the plan, with the run config of its ops."""
    config = {"ops": ops} | QUIET
    job = project.definitions().resolve_job_def(name)
    return job.execute_in_process(instance=project.instance, run_config=config, **options)


def job(project: Project, name: str, op: str, **config: Any) -> dict[str, Any]:
    """Run a job of the plan and return the metadata of its one op, as the instance has recorded it."""
    result = run_job(project, name, {op: {"config": config}} if config else {})
    records = project.instance.get_records_for_run(result.run_id).records
    events = [record.event_log_entry.dagster_event for record in records]
    [output] = [event for event in events if event is not None and event.is_successful_output]
    return {key: value.value for key, value in output.step_output_data.metadata.items()}


def maintain(project: Project, operation: str, **config: Any) -> dict[str, Any]:
    """Run one operation of a plan's maintenance and return its metadata."""
    return job(project, "demo_maintenance", "demo_maintain", operations=[operation], **config)


@contextmanager
def open_project(folder: Path, *, durable: bool = False, **fields: Any) -> Iterator[Project]:
    """Make a project; `fields` are those of its plan. A durable one has its Dagster instance on disk, which is slow.

    The plan configures its schedule of exports, which it would not have otherwise: its range ended in 2013.
    """
    database = folder / "source.duckdb"
    make_source(database)
    (folder / "dagster").mkdir()
    given = {
        "name": "demo",
        "source": "readings",
        "to": f"file://{folder / 'snapshots'}",
        "start_time": START,
        "end_time": START + len(ROWS) * DAY,
        "chunk_time_window": "1d",
        "parallelism": 2,
        "dagster": {"export_cron": "0 * * * *"},
    }
    if "dagster" in fields and fields.get("kind") != "query":
        fields["dagster"] = {"export_cron": "0 * * * *"} | fields["dagster"]
    on_disk = dg.DagsterInstance.local_temp(str(folder / "dagster")) if durable else None
    with on_disk or dg.DagsterInstance.ephemeral() as instance:
        sources = {"readings": f"duckdb://{database}", "copy": f"duckdb://{folder / 'copy.duckdb'}"}
        plan = Plan(**{name: value for name, value in (given | fields).items() if value is not None})
        yield Project(folder, instance, plan, sources)
