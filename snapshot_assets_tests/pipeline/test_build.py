"""Plans inside a project that has an executor, and a Spark session, of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster_pyspark import LazyPySparkResource, PySparkResource
from pyspark.sql import SparkSession

from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.errors import PlanError
from snapshot_assets.pipeline.build import build_definitions
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.plan.plan import Plan
from snapshot_assets.plan.read_configuration import load_configuration
from snapshot_assets_tests.pipeline.project import QUIET, ROOT, ROWS, write_project

asked: list[str] = []


QUERY = {"kind": "query", "query": "SELECT * FROM t WHERE at >= :start AND at < :end"}


class OwnSpark(LazyPySparkResource):
    """A project's own resource, which notes that its session was asked for."""

    @property
    def spark_session(self) -> SparkSession:
        asked.append("session")
        return SparkSession.builder.getOrCreate()


@dg.asset
def orders() -> None:
    """An asset of the project."""


def definitions_of(project, *plans, **given):
    """Build the definitions of plans of a project, by default of its own."""
    sources = {alias: DatabaseAddress(alias, uri) for alias, uri in project.sources.items()}
    return build_definitions(Configuration(sources, plans=plans or (project.plan,)), **given)


def test_plans_join_a_project_with_its_own_executor_and_spark_session(project):
    asked.clear()
    own_spark = OwnSpark(spark_config={})
    own = dg.Definitions(assets=[orders], executor=dg.multiprocess_executor, resources={"pyspark": own_spark})
    merged = dg.Definitions.merge(own, definitions_of(project))
    assert merged.executor is dg.multiprocess_executor
    assert merged.resources["pyspark"] is own_spark
    dg.Definitions.validate_loadable(merged)
    repository = merged.get_repository_def()
    executors = {job.name: job.executor_def for job in repository.get_all_jobs()}
    assert set(executors) >= {"demo_export", "demo_maintenance"}
    assert executors.pop("demo_export") is dg.in_process_executor  # its steps share one state of the source
    assert all(executor is dg.multiprocess_executor for executor in executors.values()), executors

    done = merged.resolve_job_def("demo_export").execute_in_process(
        instance=project.instance, partition_key=project.keys[1], run_config=QUIET
    )
    assert done.success
    assert project.materialized()[project.keys[1]]["dagster/partition_row_count"] == ROWS[1]
    assert project.state().completed(2)
    assert asked


def test_nothing_is_set_that_is_not_asked_for(project):
    alone = definitions_of(project)
    assert alone.executor is None
    assert set(alone.resources) == {"snapshots", "snapshot_io_manager"}
    spark = OwnSpark(spark_config={})
    asked = definitions_of(project, executor=dg.in_process_executor, resources={"pyspark": spark})
    assert asked.executor is dg.in_process_executor
    assert asked.resources["pyspark"] is spark


class EagerSpark(PySparkResource):
    """A project's own resource that starts its session before the first step."""

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        asked.append("session")
        super().setup_for_execution(context)


def test_what_reads_no_rows_never_starts_spark(exported, tmp_path):
    asked.clear()
    maintain = {"ops": {"demo_maintain": {"config": {"operations": ["checkpoint", "gc"]}}}}
    lazy = definitions_of(exported, resources={"pyspark": OwnSpark(spark_config={})})
    maintenance = lazy.resolve_job_def("demo_maintenance")
    assert maintenance.execute_in_process(instance=exported.instance, run_config=QUIET | maintain).success
    defs = definitions_of(exported, resources={"pyspark": EagerSpark(spark_config={})})
    job = defs.resolve_job_def("demo_verify")
    assert job.execute_in_process(instance=exported.instance, run_config=QUIET).success
    schedule = defs.get_repository_def().get_schedule_def("demo_export_schedule")
    snapshots = {"snapshots": defs.resources["snapshots"]}  # alone: it requires no Spark session
    reference = dg.DagsterInstance.local_temp(str(tmp_path)).get_ref()
    with dg.build_schedule_context(instance_ref=reference, resources=snapshots) as context:
        assert schedule.evaluate_tick(context).skip_message == "Every closed window is exported and sealed."
    assert not asked


def test_the_session_may_have_another_key(project):
    asked.clear()
    defs = definitions_of(
        project,
        executor=dg.in_process_executor,
        spark_key="warehouse_spark",
        resources={"warehouse_spark": OwnSpark(spark_config={})},
    )
    dg.Definitions.validate_loadable(defs)
    done = defs.resolve_job_def("demo_export").execute_in_process(
        instance=project.instance, partition_key=project.keys[1], run_config=QUIET
    )
    assert done.success
    assert asked


@pytest.mark.parametrize("key_prefix", ["lake", ["lake"]])
def test_a_key_prefix_goes_before_the_plans_that_have_none(project, key_prefix):
    own = project.plan.changed(name="own", to=project.plan.to + "2", dagster={"key_prefix": ["mine"]})
    owned = project.plan.changed(name="owned", to=project.plan.to + "3", dagster={"owners": ["team:data"]})
    resources = {"pyspark": OwnSpark(spark_config={})}
    built = definitions_of(project, project.plan, own, owned, key_prefix=key_prefix, resources=resources)
    graph = built.resolve_asset_graph()
    prefixes = {tuple(key.path[:-1]) for key in graph.get_all_asset_keys()}
    assert prefixes == {("lake", "demo"), ("mine", "own"), ("lake", "owned")}
    assert graph.get(dg.AssetKey(["lake", "owned", "chunks"])).owners == ("team:data",)


def test_assets_have_the_pool_location_and_seal_of_their_plan(project):
    other = project.plan.changed(dagster={"pool": "shop/database"}, seal_verify="full")
    for plan, pool, hashed in (
        (project.plan, "snapshots", "Hashes the files that no seal has verified"),
        (other, "shop/database", "Hashes all files."),
    ):
        built = definitions_of(project, plan, resources={"pyspark": OwnSpark(spark_config={})})
        assets = {each.key.path[-1]: each for each in built.assets if isinstance(each, dg.AssetsDefinition)}
        assert {each.op.pool for each in assets.values()} == {pool}
        specs = [assets[name].get_asset_spec() for name in ("manifest", "chunks", "untimed_tables")]
        assert hashed in specs[0].description
        assert {spec.metadata["dagster/uri"] for spec in specs} == {plan.to}


@pytest.mark.parametrize(
    ("keyword", "message"),
    [
        ("spark", r"no argument 'spark'; .*resources=\{'pyspark': spark_resource\(\)\}"),
        ("forced", r"no argument 'forced'; it has .*master, "),
        ("_runs", "no argument '_runs'"),
        ("session", "no argument 'session'"),
    ],
)
def test_an_unknown_argument_is_refused_by_its_name(keyword, message):
    with pytest.raises(TypeError, match=message):
        build_definitions(Configuration(), **{keyword: None})


USERS_PROJECT = """
import sys

import dagster as dg
from dagster_pyspark import LazyPySparkResource

from snapshot_assets.plan.read_configuration import load_configuration
from snapshot_assets.pipeline.build import build_definitions


@dg.asset
def orders() -> None:
    pass


own_spark = LazyPySparkResource(
    spark_config={
        "spark.master": "local[2]", "spark.sql.session.timeZone": "UTC", "spark.ui.enabled": "false",
        "spark.app.name": "the project's own", "spark.pyspark.python": sys.executable,
    }
)
own_executor = dg.multiprocess_executor.configured({"max_concurrent": 1})
defs = dg.Definitions.merge(
    dg.Definitions(assets=[orders], executor=own_executor, resources={"pyspark": own_spark}),
    build_definitions(load_configuration("snapshots.yaml")),
)
"""


@pytest.mark.slow
def test_a_projects_own_executor_and_session_export_and_seal_a_snapshot(tmp_path):
    """Every step is a process of its own there, which opens location and source for itself."""
    home = write_project(tmp_path, days=2)
    (tmp_path / "users_project.py").write_text(USERS_PROJECT)
    done = subprocess.run(
        [
            *(str(Path(sys.executable).parent / "dagster"), "asset", "materialize", "-m", "users_project"),
            *("--select", 'key:"demo/*" and not key:"demo/tag"'),
            *("--partition-range", "2013-01-01T00:00...2013-01-02T00:00"),
        ],
        cwd=tmp_path,
        env=os.environ | {"DAGSTER_HOME": str(home), "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    with dg.DagsterInstance.from_config(str(home)) as instance:
        [run] = instance.get_runs()
        events = [record.event_log_entry.dagster_event for record in instance.get_records_for_run(run.run_id).records]
        started = [event for event in events if event is not None and "STEP_WORKER_STARTED" in event.event_type_value]
        assert len(started) >= 4  # the user's executor made a process for every step
        assert instance.get_latest_materialization_event(dg.AssetKey(["demo", "manifest"]))


def test_a_variable_that_is_not_set_fails_only_runs_that_need_it(tmp_path, spark):
    write_project(tmp_path, days=1)
    path = tmp_path / "snapshots.yaml"
    shop = "  shop: postgresql://reader:${SNAPSHOTS_TEST_UNSET}@db/shop\nplans:\n"
    plan = (
        "  shop: {source: shop, target: 'duckdb:${SNAPSHOTS_TEST_UNSET}', to: 'file:///srv/shop', schema_only: true}\n"
    )
    path.write_text(path.read_text().replace("plans:\n", shop) + plan)
    built = build_definitions(load_configuration(path), resources={"pyspark": OwnSpark(spark_config={})})
    dg.Definitions.validate_loadable(built)
    graph = built.resolve_asset_graph()
    kinds = [graph.get(dg.AssetKey(["shop", name])).kinds for name in ("source", "target", "restored")]
    assert kinds == [{"postgresql"}, {"duckdb"}, {"pyspark", "duckdb"}]
    with dg.DagsterInstance.ephemeral() as instance:
        job = built.resolve_job_def("demo_export")
        assert job.execute_in_process(instance=instance, run_config=QUIET).success
        job = built.resolve_job_def("shop_export")
        failed = job.execute_in_process(instance=instance, run_config=QUIET, raise_on_error=False)
    [step] = [event for event in failed.all_events if event.is_step_failure]
    description = step.step_failure_data.user_failure_data.description
    assert "plan 'shop' needs variables of the environment to which" in description
    assert "sources.shop: refers to the environment variable SNAPSHOTS_TEST_UNSET, which is not set" in description


def test_definitions_are_the_same_whether_or_not_the_variables_of_a_source_are_set(tmp_path):
    """Names are compared as the kind of database does, so that an untimed table has no partitions."""
    path = tmp_path / "snapshots.yaml"
    text = """
        sources: {{shop: '{}'}}
        plans:
          shop:
            {{source: shop, to: 's3://backups/shop', kind: continuous, start_time: 2025-01-01T00:00:00Z,
             time_columns: {{main.EVENTS: null}}, dagster: {{table_assets: [main.events]}}}}
    """
    path.write_text(text.format("${SHOP}"))
    with pytest.raises(PlanError, match=r"sources\.shop: .* set SHOP where definitions load, or write the kind"):
        build_definitions(load_configuration(path, environment={}))
    for uri, shop in (("${SHOP}", "duckdb:///shop"), ("duckdb:///${SHOP}", "shop"), ("duckdb:///${SHOP}", None)):
        path.write_text(text.format(uri))
        configuration = load_configuration(path, environment={"SHOP": shop} if shop else {})
        built = build_definitions(configuration, resources={"pyspark": OwnSpark(spark_config={})})
        assert built.resolve_asset_graph().get(dg.AssetKey(["shop", "main", "events"])).partitions_def is None


def test_assets_refer_to_their_plan_in_the_file(tmp_path):
    write_project(tmp_path, days=3)
    path = tmp_path / "snapshots.yaml"
    path.write_text(path.read_text().replace("readings", "demo"))  # the source has the plan's name
    built = build_definitions(load_configuration(path), resources={"pyspark": OwnSpark(spark_config={})})
    graph = built.get_repository_def().asset_graph
    begins = path.read_text().splitlines().index("  demo:") + 1  # the source's line says more
    for key in graph.get_all_asset_keys():
        [reference] = graph.get(key).metadata["dagster/code_references"].code_references
        assert (reference.file_path, reference.line_number) == (str(path), begins)


@pytest.mark.parametrize(
    ("days", "fields", "scheduled"),
    [
        (-31, {}, False),
        (-29, {}, True),
        (1, {}, True),
        (-31, {"dagster": {"export_cron": "0 5 * * *"}}, True),
        (-31, {"dagster": {"default_status": "running"}}, True),
        (-31, QUERY, False),
        (-29, QUERY, True),
        (-31, {"schema_only": True, "start_time": None, "chunk_time_window": "1d"}, True),
    ],
)
def test_a_range_that_ended_long_ago_has_no_schedule_of_exports(days, fields, scheduled):
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    end = today + timedelta(days=days)
    given = {"name": "demo", "source": "duckdb:///a.duckdb", "to": "file:///srv/a"}
    given |= {"start_time": end - timedelta(days=5), "end_time": end} | fields
    if given.get("schema_only"):
        del given["end_time"], given["start_time"]
    defs = build_definitions(Configuration(plans=(Plan(**given),)), resources={"pyspark": OwnSpark(spark_config={})})
    names = {schedule.name for schedule in defs.get_repository_def().schedule_defs}
    assert bool(names & {"demo_export_schedule", "demo_copy_schedule"}) is scheduled
