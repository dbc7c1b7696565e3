"""A session of Spark Connect: that of a server which PySpark starts in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

_CLIENT = """
import atexit, json, sys
from snapshot_assets import spark_resource
from snapshot_assets.engine.runner import SparkRunner
from snapshot_assets.engine.session import master_of, parallel_tasks
from snapshot_assets.engine.session_start import running_session, start_session
from snapshot_assets.errors import PlanError

@atexit.register
def last():  # also after PySpark's own, which makes no request of a client that is closed
    print(json.dumps(found | {"closed": spark.client.is_closed}))

resource = spark_resource(**{"spark.remote": "local[3]", "spark.sql.shuffle.partitions": "3"})
spark = resource.spark_session
found = {
    "kind": type(spark).__module__,
    "tasks": parallel_tasks(spark),
    "master": master_of(spark),
    "settings": [spark.conf.get("spark.sql.session.timeZone"), spark.conf.get("spark.sql.shuffle.partitions")],
    "results": sorted(SparkRunner(lambda: spark).map(lambda number: [[number + 1, sys.executable]], [1, 2])),
    "retries": [policy.max_retries for policy in spark.client.get_retry_policies()],
    "same": running_session() is spark and resource.spark_session is spark,
}
try:
    start_session({"spark.master": "yarn"})
except PlanError as error:
    found["refused"] = str(error)
start_session({"spark.remote": "local[3]"})
start_session({"spark.remote": f"sc://{spark.client._builder.endpoint}"})
try:
    start_session({"spark.remote": "sc://localhost:1"})
except PlanError as error:
    found["other"] = str(error)
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_resource_makes_a_session_of_connect_that_runs_tasks(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _CLIENT], cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["kind"] == "pyspark.sql.connect.session"
    assert (found["tasks"], found["master"], found["same"]) == (3, "local[3]", True)
    assert found["settings"] == ["UTC", "3"]
    assert found["results"] == [[2, sys.executable], [3, sys.executable]]
    assert "has a Spark session already" in found["refused"]
    assert "has a Spark session already" in found["other"]
    assert (found["closed"], found["retries"]) == (True, [6])  # a server that is gone is reported in about a minute


_ALL = """
from snapshot_assets.engine import session
from snapshot_assets.engine.session_start import start_session
session._QUIET_SECONDS = 15
cluster = {"spark.master": "local-cluster[3,1,512]", "spark.executor.memory": "512m"}
print(session.parallel_tasks(start_session(cluster)))
"""
"""Executors of `local-cluster` are processes of their own, which register one after the other: seconds apart, if other
work keeps the machine busy."""
_DYNAMIC = """
from snapshot_assets.engine import session
from snapshot_assets.engine.session_start import start_session
settings = {"enabled": "true", "minExecutors": "0", "maxExecutors": "3"}
settings = {f"spark.dynamicAllocation.{name}": value for name, value in settings.items()}
cluster = {"spark.master": "local-cluster[3,2,512]", "spark.executor.memory": "512m", "spark.executor.cores": "2"}
spark = start_session(cluster | settings)
session.executors_of = None  # whoever waits for executors counts them
print(session.parallel_tasks(spark))
"""
"""Dynamic allocation starts without any, as EMR's clusters do by default; they come only with jobs."""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("program", "tasks"), [(_ALL, "3"), (_DYNAMIC, "6")], ids=["all", "dynamic"])
def test_all_executors_of_a_cluster_count_as_soon_as_it_has_started(program: str, tasks: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == tasks
