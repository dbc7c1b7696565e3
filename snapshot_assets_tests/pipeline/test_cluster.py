"""Executors that are processes of their own and cannot import this package: they have what Spark ships to them.

`cluster/` proves that of the commands.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_executors_that_lack_the_package_export_and_load_chunks_and_a_lost_one_is_told_as_one(
    executors_python: Path, tmp_path: Path
) -> None:
    """See `on_cluster.main`."""
    home = tmp_path / "spark"  # executors work below Spark's home, which must not be this environment
    home.mkdir()
    for entry in Path(pyspark.__path__[0]).iterdir():
        (home / entry.name).symlink_to(entry)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))}
    done = subprocess.run(
        [sys.executable, "-m", "snapshot_assets_tests.pipeline.on_cluster", tmp_path, executors_python],
        cwd=tmp_path,
        env=kept | {"SPARK_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=1100,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["daemon"] is None
    assert found["before"] == [str(executors_python), "No module named 'snapshot_assets'"]
    assert found["exported"] == ["exported"] * 4
    assert found["frames"] == {"main.readings": 72, "main.sensors": 2}
    package, python = sorted(found["after"], key=lambda text: "/snapshot_assets/" not in text)
    assert ".zip/snapshot_assets/" in package
    assert python == str(executors_python)
    assert "Job aborted due to stage failure" in found["lost"]
    assert "ExecutorLostFailure" in found["lost"]
    assert ".scala:" not in found["lost"]
