"""Plans inside a project that has an executor, and a Spark session, of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import SparkSession

from snapshot_assets.databases.source import DatabaseAddress
from snapshot_assets.pipeline.assets import build_definitions
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets_tests.pipeline.project import ROOT, ROWS, write_project

QUIET = {"loggers": {"console": {"config": {"log_level": "ERROR"}}}}


asked: list[str] = []


class OwnSpark(LazyPySparkResource):
    """A project's own resource, which notes that its session was asked for."""

    @property
    def spark_session(self) -> SparkSession:
        asked.append("session")
        return SparkSession.builder.getOrCreate()


@dg.asset
def orders() -> None:
    """An asset of the project."""


def definitions_of(project, **given):
    sources = {alias: DatabaseAddress(alias, uri) for alias, uri in project.sources.items()}
    return build_definitions(Configuration(sources, plans=(project.plan,)), **given)


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
    assert set(executors) >= {"demo_export", "demo_compact", "demo_retention"}
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


@pytest.mark.parametrize(
    ("keyword", "message"),
    [
        ("spark", r"no argument 'spark'; .*resources=\{'pyspark': spark_resource\(\)\}"),
        ("forced", r"no argument 'forced'; it has .*force, "),
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

from snapshot_assets.plan.configuration import load_configuration
from snapshot_assets.pipeline.assets import build_definitions


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
