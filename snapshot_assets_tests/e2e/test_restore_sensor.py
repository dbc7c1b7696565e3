"""The sensor of `restore_on: sealed` in Dagster's real daemon: a seal by another process is restored, with its rows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

from snapshot_assets_tests.e2e.graphql import Graphql
from snapshot_assets_tests.pipeline.project import ROWS, write_project
from snapshot_assets_tests.servers.dagster import ROOT, start_dagster
from snapshot_assets_tests.waiting import until

SENSOR = """
query Sensor($selector: SensorSelector!) {
  sensorOrError(sensorSelector: $selector) {
    ... on Sensor { sensorState { ticks(limit: 20) { runs { status } } } }
  }
}
"""


def ticks(graphql: Graphql) -> list[dict[str, Any]]:
    """Return the sensor's ticks."""
    selector = {
        "repositoryLocationName": "snapshot_assets.definitions",
        "repositoryName": "__repository__",
        "sensorName": "demo_restore_sensor",
    }
    return list(graphql(SENSOR, selector=selector)["sensorOrError"]["sensorState"]["ticks"])


@pytest.mark.slow
def test_the_daemon_restores_what_a_command_sealed(tmp_path: Path) -> None:
    write_project(tmp_path, days=len(ROWS))
    configuration, target = tmp_path / "snapshots.yaml", tmp_path / "copy.duckdb"
    fields = "    target: copy\n    dagster: {restore_on: sealed, default_status: running}\n"
    text = configuration.read_text().replace("sources:\n", f"sources:\n  copy: duckdb://{target}\n")
    configuration.write_text(text + fields)
    command = [sys.executable, "-m", "snapshot_assets", "export", "create", "--plan", "demo"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("DAGSTER_HOME", None)  # as on another machine
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    with start_dagster(tmp_path, ["-m", "snapshot_assets.definitions"]) as servers:

        def ended() -> list[dict[str, str]]:
            runs = [run for tick in ticks(servers.graphql) for run in tick["runs"]]
            return runs if runs and runs[0]["status"] in ("SUCCESS", "FAILURE") else []

        runs = until(ended, explain=servers.output.read_text)
        assert runs == [{"status": "SUCCESS"}], servers.output.read_text()
    with duckdb.connect(str(target), read_only=True) as connection:
        assert connection.sql("SELECT count(*) FROM readings").fetchall() == [(sum(ROWS),)]
        assert connection.sql("SELECT name FROM sensors ORDER BY id").fetchall() == [("roof",), ("cellar",)]
