"""Executors that are processes of their own and cannot import this package: they have what Spark ships to them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest


@pytest.fixture(scope="module")
def found(executors_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a driver found on a cluster; see `on_cluster.main`."""
    folder = tmp_path_factory.mktemp("cluster")
    home = folder / "spark"  # executors work below Spark's home, which must not be this environment
    home.mkdir()
    for entry in Path(pyspark.__path__[0]).iterdir():
        (home / entry.name).symlink_to(entry)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))}
    done = subprocess.run(
        [sys.executable, "-m", "snapshot_assets_tests.pipeline.on_cluster", folder, executors_python],
        cwd=folder,
        env=kept | {"SPARK_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=1100,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_executors_that_lack_the_package_export_read_delete_compact_and_restore(
    found: dict[str, Any], executors_python: Path
) -> None:
    assert found["daemon"] is None
    assert found["before"] == [str(executors_python), "No module named 'snapshot_assets'"]
    assert found["exported"] == ["exported"] * 4
    assert (found["read"], found["part"]) == (72, 36)
    assert found["frames"] == {"main.readings": 72, "main.sensors": 2}
    assert (found["left"], found["compacted"], found["restored"]) == (42, 30, 44)
    package, python = sorted(found["after"], key=lambda text: "/snapshot_assets/" not in text)
    assert ".zip/snapshot_assets/" in package
    assert python == str(executors_python)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_lost_executor_is_told_as_one(found: dict[str, Any]) -> None:
    assert "Job aborted due to stage failure" in found["lost"]
    assert "ExecutorLostFailure" in found["lost"]
    assert ".scala:" not in found["lost"]
