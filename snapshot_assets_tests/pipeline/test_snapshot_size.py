"""What Dagster's processes send each other of many plans' definitions."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster_shared.serdes import serialize_value

from snapshot_assets import Configuration, Plan, build_definitions, spark_resource
from snapshot_assets.databases.source import DatabaseAddress

# Dagster's own call, when it describes a schedule.
pytestmark = pytest.mark.filterwarnings("ignore:Property `ScheduleDefinition.environment_vars`:DeprecationWarning")
START = datetime(2015, 1, 1, tzinfo=UTC)
WINDOWS = 3650
MB = 1_000_000


def snapshot(plans: int, *, jobs: bool) -> str:
    """Return the snapshot of the plans' definitions: as Dagster sends it, or with all its jobs."""
    made = (
        Plan(
            name=f"plan{number:03}",
            source="shop",
            to=f"s3://backups/plan{number:03}",
            start_time=START,
            end_time=START + timedelta(days=WINDOWS),
        )
        for number in range(plans)
    )
    configuration = Configuration({"shop": DatabaseAddress("shop", "postgresql://u:hunter2@h/shop")}, plans=tuple(made))
    resources = {"pyspark": spark_resource()}
    definitions = build_definitions(configuration, executor=dg.in_process_executor, resources=resources)
    return str(serialize_value(RepositorySnap.from_def(definitions.get_repository_def(), defer_snapshots=not jobs)))


def jobs_of(plan: str, tree: dict[str, Any]) -> dict[str, Any]:
    return {job["name"]: job for job in tree["external_pipeline_datas"] if job["name"].startswith(f"{plan}_")}


@pytest.mark.slow
def test_the_snapshot_of_a_hundred_plans_is_small() -> None:
    assert len(snapshot(100, jobs=False)) <= 15 * MB


def test_a_further_plan_adds_only_its_own_assets_checks_and_jobs() -> None:
    few, more = (json.loads(snapshot(plans, jobs=True)) for plans in (2, 6))
    assert jobs_of("plan001", few) == jobs_of("plan001", more) != {}
    names = [[each["name"] for each in tree["external_resource_data"]] for tree in (few, more)]
    assert names[0] == names[1] == ["pyspark", "snapshot_io_manager", "snapshots"]
    counts = {name: (len(few[name]), len(more[name])) for name in few if isinstance(few[name], list)}
    shared = {"external_resource_data": 3, "external_pipeline_datas": 1}  # one job has all assets
    for name, (fewer, greater) in counts.items():
        fixed = shared.get(name, 0)
        assert (greater - fixed) * 2 == (fewer - fixed) * 6, name


def test_no_secret_of_the_configuration_is_in_it() -> None:
    assert "hunter2" not in snapshot(1, jobs=True)
