from __future__ import annotations

import subprocess
from datetime import datetime
from pathlib import Path

import dagster as dg
import duckdb
import pytest

from snapshot_assets import build_definitions, demo, spark_resource
from snapshot_assets.format.layout import VERIFICATIONS
from snapshot_assets.plan.read_configuration import load_configuration
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets_tests.cli.helpers import store_of
from snapshot_assets_tests.documents.blocks import blocks


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the repository's configuration with a plan of two weeks."""
    root = tmp_path / "a project"
    root.mkdir()
    plan = (demo.ROOT / "snapshots.yaml").read_text()
    assert "end_time: 2014-01-07T00:00:00Z" in plan
    (root / "snapshots.yaml").write_text(plan.replace("2014-01-07", "2013-01-15"))
    monkeypatch.setenv("DAGSTER_HOME", str(root / "demo" / "dagster"))
    return root


def written(store: ObjectStore) -> dict[str, datetime]:
    """Return when each object was written, but for the records of verifications."""
    return {info.path: info.modified for info in store.list() if not info.path.startswith(VERIFICATIONS)}


def check_of_damage(project: Path) -> None:
    """Check that Dagster has a tag, assets of tables, checks that passed, and a failed one with what repairs it."""
    with dg.DagsterInstance.get() as instance:
        assert instance.get_materialized_partitions(dg.AssetKey(["demo", "tag"]))
        for table in ("airlines", "flights"):
            assert instance.get_latest_materialization_event(dg.AssetKey(["demo", "main", table])) is not None
        intact = dg.AssetCheckKey(dg.AssetKey(["demo", "manifest"]), "files_intact")
        damaged = dg.AssetCheckKey(dg.AssetKey(["damaged", "chunks"]), "file_checksums")
        assert evaluation(instance, intact).passed
        failed = evaluation(instance, damaged)
        assert (failed.passed, failed.partition) == (False, "2013-01-08T00:00")
        assert "Materialise this partition again." in (failed.description or "")
        [run] = instance.get_runs(dg.RunsFilter(job_name="damaged_verify"))  # the second demo did not add one
        assert run.status is dg.DagsterRunStatus.FAILURE
    definitions = build_definitions(
        load_configuration(project / "snapshots.yaml"), resources={"pyspark": spark_resource()}
    )
    assert not [each.name for each in definitions.schedules if "export" in each.name]


def evaluation(instance: dg.DagsterInstance, key: dg.AssetCheckKey) -> dg.AssetCheckEvaluation:
    """Return the newest result of a check."""
    [record] = instance.event_log_storage.get_asset_check_execution_history(key, limit=1)
    assert record.event is not None
    assert record.event.dagster_event is not None
    return record.event.dagster_event.asset_check_evaluation_data


@pytest.mark.slow
def test_the_demo_runs_twice_and_the_second_time_exports_nothing(
    project: Path, spark: object, capfd: pytest.CaptureFixture[str]
) -> None:
    assert demo.main(project) == 0
    first = capfd.readouterr()
    location = project / "demo" / "snapshots" / "flights"
    assert "sealed by run" in first.out
    assert "OK: " in first.out
    assert "1,458 rows, 0 differ" in first.out
    [shown] = [block.text.splitlines() for block in blocks("README.md") if block.language == "text"]
    assert [line for line in shown[4:] if line.split()[0] not in ("flights", "weather") and line not in first.out] == []
    assert "data/2/main.weather-" in first.out
    database, restored = project / "demo" / "nycflights13.duckdb", project / "demo" / "restored.duckdb"
    with duckdb.connect(str(database), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM flights").fetchall() == [(336_776,)]
        [[kind]] = connection.execute("SELECT DISTINCT typeof(time_hour) FROM flights").fetchall()
    assert kind == "TIMESTAMP WITH TIME ZONE"
    before = written(store_of(location))

    assert demo.main(project) == 0
    second = capfd.readouterr()
    assert "complete already; nothing was exported" in second.out
    assert "was restored before; nothing was done" in second.out
    assert written(store_of(location)) == before
    check_of_damage(project)

    done = subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=location, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    with duckdb.connect(str(restored)) as connection:
        connection.execute("UPDATE flights SET arr_delay = 0 WHERE arr_delay = 33")
    assert demo.compare(database, restored, load_configuration(project / "snapshots.yaml").plan("demo")) == 1
