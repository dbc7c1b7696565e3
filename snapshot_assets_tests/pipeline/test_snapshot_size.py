"""What Dagster's processes send each other of many plans' definitions, and what it takes to load them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster_shared.serdes import serialize_value

from snapshot_assets import Configuration, Plan, build_definitions, spark_resource
from snapshot_assets.databases.protocol.source import DatabaseAddress

# Dagster's own call, when it describes a schedule.
pytestmark = pytest.mark.filterwarnings("ignore:Property `ScheduleDefinition.environment_vars`:DeprecationWarning")
START = datetime(2015, 1, 1, tzinfo=UTC)
WINDOWS = 3650
MB = 1_000_000

_VALIDATE = """
import json, re, resource, sys
from pathlib import Path
from dagster._cli import create_dagster_cli
create_dagster_cli()(["definitions", "validate", "-m", "snapshot_assets.definitions"], standalone_mode=False)
peak = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
seconds = sum(each.ru_utime + each.ru_stime for each in used)
print(json.dumps([int(peak[1]), seconds, [name for name in sys.argv[1:] if name in sys.modules]]))
"""
"""Validates definitions as `dagster definitions validate` does; reports memory, processor time and loaded modules."""

_LOAD = """
import sys
import snapshot_assets.definitions
print(*[name for name in sys.argv[1:] if name in sys.modules])
"""

NOT_NEEDED = (
    "adbc_driver_manager",
    "boto3",
    "dagster_aws",
    "duckdb",
    "numpy",
    "obstore",
    "opendal",
    "pandas",
    "pyarrow",
)
"""Modules that load what definitions do not use: drivers, clients of stores, Dagster's AWS resources, Arrow."""

_PLAN = """
  plan{number:03}:
    source: shop
    to: s3://backups/plan{number:03}
    start_time: {start:%Y-%m-%dT%H:%M:%SZ}
    end_time: {end:%Y-%m-%dT%H:%M:%SZ}
"""


def snapshot(plans: int, *, jobs: bool) -> str:
    """Return the snapshot of the plans' definitions: as Dagster sends it, or with all its jobs."""
    made = (
        Plan(
            name=f"plan{number:03}",
            source="shop",
            to=f"s3://backups/plan{number:03}",
            start_time=START,
            end_time=START + timedelta(days=WINDOWS),
            retention={"keep_daily": 7, "tag": {"num_retained_max": 7}},
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
    assert len(snapshot(100, jobs=False)) <= 2.2 * MB  # 2.01
    whole = snapshot(100, jobs=True)
    assert len(whole) <= 25 * MB  # 23.0
    tree = json.loads(whole)
    # A range that ended has no schedule of exports.
    assert (len(tree["external_pipeline_datas"]), len(tree["external_schedule_datas"])) == (501, 200)


def test_definitions_load_no_arrow_driver_or_client(tmp_path: Path) -> None:
    plan = _PLAN.format(number=0, start=START, end=START + timedelta(days=1))
    (tmp_path / "snapshots.yaml").write_text(f"sources:\n  shop: postgresql://u:hunter2@h/shop\nplans:\n{plan}")
    assert run(tmp_path, _LOAD, *NOT_NEEDED).split() == []


@pytest.mark.slow
def test_a_hundred_plans_are_validated_in_little_memory_and_time(tmp_path: Path) -> None:
    end = START + timedelta(days=WINDOWS)
    plans = (_PLAN.format(number=number, start=START, end=end) for number in range(100))
    sources = "sources:\n  shop: postgresql://u:hunter2@h/shop\nplans:\n"
    (tmp_path / "snapshots.yaml").write_text(sources + "".join(plans))
    peak, seconds, loaded = validate(tmp_path, *NOT_NEEDED)
    assert loaded == []
    assert peak * 1024 <= 230 * MB  # 206, of which 146 without plans, most of them Dagster's
    assert seconds <= 30  # 16 on two cores that others use, too


def validate(folder: Path, *modules: str) -> tuple[int, float, list[str]]:
    """Validate a folder's definitions in a fresh process.

    Returns:
        Its greatest memory in KiB, its seconds of processor time, and which of the modules it loaded.
    """
    peak, seconds, loaded = json.loads(run(folder, _VALIDATE, *modules).splitlines()[-1])
    return peak, seconds, loaded


def run(folder: Path, script: str, *arguments: str) -> str:
    """Run a script in a fresh process in a folder; returns what it prints."""
    command = [sys.executable, "-W", "ignore", "-c", script, *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "SNAPSHOTS_CONFIG"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout


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
