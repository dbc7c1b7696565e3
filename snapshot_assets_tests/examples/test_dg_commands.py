"""The commands of `dg`, on this project and on `examples/warehouse`, whose snapshots are components."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from snapshot_assets_tests.pipeline.project import ROOT

pytestmark = pytest.mark.slow

DG = Path(sys.executable).parent / "dg"
WAREHOUSE = ROOT / "examples" / "warehouse"


def dg(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `dg` in a project's folder, whose own environment is active."""
    own = {
        "VIRTUAL_ENV": sys.prefix,
        "DAGSTER_HOME": "",
        "FLIGHTS_DATABASE": "/srv/flights.duckdb",
        "SNAPSHOTS": "file:///srv/snapshots",
    }
    return subprocess.run([DG, *arguments], cwd=folder, env=os.environ | own, capture_output=True, text=True)


@pytest.mark.parametrize("folder", [ROOT, WAREHOUSE])
def test_dg_finds_the_component_and_no_fault_in_the_project(folder: Path) -> None:
    listed = dg(folder, "list", "components", "--json")
    assert listed.returncode == 0, listed.stderr
    assert "snapshot_assets.SnapshotPlan" in {component["key"] for component in json.loads(listed.stdout)["items"]}
    checked = dg(folder, "check", "defs")  # the YAML first
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "All component YAML validated successfully." in checked.stdout + checked.stderr
    assert "All definitions loaded successfully." in checked.stdout + checked.stderr


def test_dg_names_the_plan_with_a_misspelt_field(tmp_path: Path) -> None:
    project = tmp_path / "warehouse"
    shutil.copytree(WAREHOUSE, project, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(project / "warehouse" / "defs" / "delays")  # of several components of a type, dg checks the last
    component = project / "warehouse" / "defs" / "flights" / "defs.yaml"
    text = component.read_text()
    component.write_text(text.replace("chunk_time_window", "chunk_time_windows"))
    line = text.partition("  plan:")[0].count("\n") + 1
    checked = dg(project, "check", "yaml")
    assert checked.returncode == 1
    assert f"defs.yaml:{line} - snapshot_assets.SnapshotPlan attributes.plan" in checked.stdout
    assert "'chunk_time_windows': '1d'" in checked.stdout
