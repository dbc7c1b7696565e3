from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from snapshot_assets.errors import PlanError
from snapshot_assets.pipeline.resources import Snapshots
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets_tests.cli.helpers import make_plan


def no_session() -> NoReturn:
    raise AssertionError("Spark was started")


def snapshots(source: str, to: str, master: str) -> Snapshots:
    return Snapshots(Configuration(plans=(make_plan(source, to),)), "run", no_session, master=master)


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://host:443"])
def test_local_files_are_refused_on_a_cluster_before_anything_starts(tmp_path: Path, master: str) -> None:
    to = (tmp_path / "location").as_uri()
    with pytest.raises(PlanError) as refused:
        snapshots("postgresql://host/db", to, master).export_run("location")
    assert to in str(refused.value)
    assert master in str(refused.value)
    assert "s3" in str(refused.value)
    with pytest.raises(PlanError, match="source 'a', a DuckDB file"):
        snapshots("duckdb:///data/a.duckdb", "s3://bucket/prefix", master).export_run("location")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("source", "to", "master"),
    [
        ("duckdb:///data/a.duckdb", "file:///srv/a", "local[*,4]"),
        ("duckdb:///data/a.duckdb", "file:///srv/a", "local"),
        ("postgresql://host/db", "s3://bucket/prefix", "spark://host:7077"),
    ],
)
def test_other_plans_get_their_run(source: str, to: str, master: str) -> None:
    assert snapshots(source, to, master).export_run("location").plan.to == to
