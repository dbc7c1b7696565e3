"""A separate project, driven by Dagster's real commands in their own processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import pytest

from snapshot_assets_tests.e2e.graphql import Graphql, ask, backfill_job, listening, run_job
from snapshot_assets_tests.pipeline.project import ROOT, ROWS, write_project
from snapshot_assets_tests.waiting import until

pytestmark = pytest.mark.slow

BIN = Path(sys.executable).parent
KEYS = [f"2013-01-0{day}T00:00" for day in range(1, 7)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_project(tmp_path, days=6)
    return tmp_path


def environment(folder: Path) -> dict[str, str]:
    return os.environ | {
        "DAGSTER_HOME": str(folder / "dagster"),
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "default",
        "NO_COLOR": "1",
    }


def test_the_definitions_load_without_a_warning_and_connect_to_nothing(folder):
    (folder / "source.duckdb").unlink()
    load = "import dagster as dg; from snapshot_assets.definitions import defs; dg.Definitions.validate_loadable(defs)"
    strict = subprocess.run(
        [sys.executable, "-W", "error", "-c", load], cwd=folder, env=environment(folder), capture_output=True, text=True
    )
    assert strict.returncode == 0, strict.stderr
    assert not (folder / "snapshots").exists()


def test_a_range_is_materialised_from_the_command_line(folder):
    command = [
        *(str(BIN / "dagster"), "asset", "materialize", "-m", "snapshot_assets.definitions"),
        *("--select", 'key:"demo/*" and not key:"demo/tag"', "--partition-range", f"{KEYS[0]}...{KEYS[-1]}"),
    ]
    done = subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    # What the virtual machine says is in the log.
    noise = [line for line in done.stderr.splitlines() if " WARN " in line or "log4j" in line or "incubator" in line]
    assert noise == []
    with dg.DagsterInstance.from_config(str(folder / "dagster")) as instance:
        assert instance.get_materialized_partitions(dg.AssetKey(["demo", "chunks"])) == set(KEYS)
        assert instance.get_latest_materialization_event(dg.AssetKey(["demo", "manifest"]))
    sums = subprocess.run(
        ["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=folder / "snapshots", capture_output=True, check=False
    )
    assert sums.returncode == 0, sums


@pytest.mark.timeout(900)
def test_the_documents_recipe_for_the_ui_seals_a_snapshot_and_shows_its_numbers(folder):
    (folder / "dagster" / "dagster.yaml").unlink()  # `make ui` makes the instance
    page = (ROOT / "docs/how-to/export.md").read_text()
    [recipe] = [line for line in page.splitlines() if line.startswith("make ui  ")]
    assert recipe.endswith("# launch the job shop_export, or a backfill of it")
    with make_ui(folder) as graphql:
        until(lambda: listening(graphql) and "the following daemons" in printed(folder))
        assert [line for line in printed(folder).splitlines() if "warn" in line.lower()] == [], printed(folder)
        backfill_job(graphql, "demo_export", KEYS[:2])
        run_job(graphql, "demo_export")
        node = graphql(STATUS, key={"path": ["demo", "chunks"]})["assetNodeOrError"]
    with dg.DagsterInstance.from_config(str(folder / "dagster")) as instance:
        sealed = instance.get_latest_materialization_event(dg.AssetKey(["demo", "manifest"]))
        assert sealed is not None
        assert sealed.asset_materialization.metadata["newly_sealed"].value is True
    assert node["partitionStats"] == {"numMaterialized": 6, "numPartitions": 6, "numFailed": 0}
    found = {event["partition"]: metadata(event) for event in node["assetMaterializations"]}
    assert [found[key]["dagster/partition_row_count"] for key in KEYS] == list(ROWS)
    assert all((found[key]["bytes"] > 0) is bool(rows) for key, rows in zip(KEYS, ROWS, strict=True))


def printed(folder: Path) -> str:
    """Return what `make ui` printed so far."""
    return (folder / "stdout").read_text() + (folder / "stderr").read_text()


STATUS = """
query Status($key: AssetKeyInput!) {
  assetNodeOrError(assetKey: $key) {
    ... on AssetNode {
      partitionStats { numMaterialized numPartitions numFailed }
      assetMaterializations {
        partition
        metadataEntries { label ... on IntMetadataEntry { intValue } }
      }
    }
  }
}
"""


def metadata(event: dict[str, Any]) -> dict[str, int]:
    return {entry["label"]: entry["intValue"] for entry in event["metadataEntries"] if "intValue" in entry}


@contextmanager
def make_ui(folder: Path) -> Iterator[Graphql]:
    """Run `make ui` on the project and end it by an interrupt, as a terminal sends it; yields what asks GraphQL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    kept = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    own = {"DAGSTER_HOME": str(folder / "dagster"), "SNAPSHOTS_CONFIG": str(folder / "snapshots.yaml")}
    command = ["make", "--old-file=install", "ui", f"UI_PORT={port}", f"BIN={BIN}"]
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        process = subprocess.Popen(command, cwd=ROOT, env=kept | own, stdout=out, stderr=err, start_new_session=True)
    try:
        yield lambda query, **variables: ask(port, query, variables)
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(120)
    # The code server ends by itself once nobody asks it any more.
    until(lambda: running(process.pid), lambda left: not left)


def running(group: int) -> list[str]:
    """Return the processes of a group that have not ended."""
    found = psutil.process_iter(["pid", "status", "cmdline"])
    alive = (process for process in found if process.info["status"] != psutil.STATUS_ZOMBIE)
    return [str(process.info) for process in alive if group_of(process.pid) == group]


def group_of(process: int) -> int | None:
    with suppress(ProcessLookupError):  # it ended meanwhile
        return os.getpgid(process)
    return None
