"""Spark's workers in an environment that is not activated: `python3` on the path is another interpreter."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest

from snapshot_assets_tests.cli.helpers import RANGE, make_source

_COMMANDS = """
import json, sys
from snapshot_assets.cli import main
for arguments in json.loads(sys.argv[1]):
    assert main(arguments) == 0, arguments
"""


@pytest.fixture
def unactivated(bare_python: Path, tmp_path: Path) -> dict[str, str]:
    """The process environment of a service that calls an environment's interpreter by its path."""
    java = Path(shutil.which("java") or "/usr/bin/java").parent
    path = os.pathsep.join(map(str, (bare_python.parent, java, "/usr/bin", "/bin")))
    dropped = ("PYTHON", "PYSPARK", "SPARK", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return kept | {"PATH": path, "DAGSTER_HOME": str(tmp_path / "dagster"), "SPARK_LOCAL_IP": "127.0.0.1"}


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_workers_run_this_interpreter_where_the_command_line_starts_spark(
    unactivated: dict[str, str], tmp_path: Path
) -> None:
    source, location = make_source(tmp_path / "source.duckdb"), (tmp_path / "location").as_uri()
    copy = tmp_path / "copy.duckdb"
    commands = [
        ["export", "create", "--source", source, "--to", location, *RANGE],
        ["import", "--from", location, "--target", f"duckdb://{copy}"],
    ]
    done = subprocess.run(
        [sys.executable, "-c", _COMMANDS, json.dumps(commands)],
        cwd=tmp_path,
        env=unactivated,
        capture_output=True,
        text=True,
        timeout=1100,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
    with duckdb.connect(str(copy), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM readings").fetchall() == [(72,)]


_OWN_ASSET = """
import sys

import dagster as dg
from dagster_pyspark import LazyPySparkResource, PySparkResource
from pyspark.sql import DataFrame, functions

from snapshot_assets import Configuration, Plan, build_definitions, partitions_of

kind, location = sys.argv[1:]
settings = {"spark.sql.session.timeZone": "UTC", "spark.ui.enabled": "false"}
sessions = {
    "lazy": lambda: LazyPySparkResource(spark_config=settings | {"spark.sql.session.timeZone": "Etc/UTC"}),
    "eager": lambda: PySparkResource(spark_config=settings),
}
plan = Plan(
    name="own", source="asset:doubled", to=location, start_time="2025-01-01T00:00:00Z",
    end_time="2025-01-02T00:00:00Z",
)


@dg.asset(
    partitions_def=partitions_of(plan),
    io_manager_key="snapshot_io_manager",
    metadata={"snapshots/plan": "own"},
    required_resource_keys={"pyspark"},
)
def doubled(context) -> DataFrame:
    double = functions.udf(lambda number: f"{2 * number} {sys.executable}")
    numbers = context.resources.pyspark.spark_session.range(3)
    return numbers.select(double("id").alias("value"), functions.expr("timestamp '2025-01-01 06:00'").alias("moment"))


defs = dg.Definitions.merge(
    build_definitions(
        Configuration(plans=(plan,)), executor=dg.in_process_executor, resources={"pyspark": sessions[kind]()}
    ),
    dg.Definitions(assets=[doubled], jobs=[dg.define_asset_job("run", "doubled")]),
)
assert defs.resolve_job_def("run").execute_in_process(partition_key="2025-01-01T00:00").success
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["lazy", "eager"])
def test_workers_of_a_users_own_asset_run_this_interpreter_whatever_resource_starts_the_session(
    kind: str, unactivated: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "dagster").mkdir()
    location = tmp_path / "location"
    (tmp_path / "own.py").write_text(_OWN_ASSET)
    done = subprocess.run(
        [sys.executable, "own.py", kind, location.as_uri()],
        cwd=tmp_path,
        env=unactivated,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
    found = duckdb.sql(f"SELECT value, epoch(moment) FROM '{location}/data/*/own.doubled-*.parquet' ORDER BY value")
    moment = datetime(2025, 1, 1, 6, tzinfo=UTC).timestamp()
    assert found.fetchall() == [(f"{2 * number} {sys.executable}", moment) for number in range(3)]
