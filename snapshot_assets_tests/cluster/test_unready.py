"""Clusters that cannot run tasks, or not yet: what is reported, and that nothing was written before."""

from __future__ import annotations

from pathlib import Path

import pytest

from snapshot_assets_tests.cli.helpers import RANGE
from snapshot_assets_tests.cluster.conftest import Driver, finish
from snapshot_assets_tests.cluster.tables import fill, live_ids
from snapshot_assets_tests.servers.postgresql import PostgresqlServer
from snapshot_assets_tests.servers.s3 import S3Server
from snapshot_assets_tests.servers.spark_cluster import SparkCluster
from snapshot_assets_tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
ROWS = 3000


@pytest.fixture
def export(postgresql_server: PostgresqlServer, postgresql_database: str, s3_location: str) -> tuple[str, ...]:
    """The arguments that export a small database."""
    fill(postgresql_server, postgresql_database, rows=ROWS)
    return ("export", "create", "--source", postgresql_database, "--to", s3_location, *RANGE, "--no-progress")


@pytest.mark.parametrize("place", ["master", "remote"])
def test_executors_without_the_packages_are_refused_before_anything_is_written(
    place: str,
    module_cluster: SparkCluster,
    driver: Driver,
    bare_python: Path,
    export: tuple[str, ...],
    s3_server: S3Server,
    s3_location: str,
) -> None:
    if place == "master":
        text = finish(driver.start(module_cluster.settings | {"spark.pyspark.python": str(bare_python)}, export), 1)
    else:
        with module_cluster.connect_server(bare_python) as url:
            text = finish(driver.start({"spark.remote": url}, export), 1)
    assert f"cannot run the tasks of this package: {bare_python} (Python 3." in text
    assert "lacks google.protobuf.message, numpy, pandas, pyarrow, pydantic, obstore, adbc_driver_postgresql" in text
    assert "packages of requirements/run.txt" in text
    assert "Traceback" not in text
    prefix = s3_location.split("/", 3)[3]
    assert s3_server.client().list_objects_v2(Bucket=s3_server.bucket, Prefix=prefix)["KeyCount"] == 0


def test_cores_that_another_application_holds_are_waited_for_and_nothing_but_that_is_reported(
    module_cluster: SparkCluster, driver: Driver, export: tuple[str, ...], s3_server: S3Server, s3_location: str
) -> None:
    with module_cluster.connect_server():
        until(lambda: module_cluster.free_cores() == 0)
        process = driver.start(module_cluster.settings, export)
        assert process.stderr is not None
        waiting = next((line for line in process.stderr if "Runs are recorded in" not in line), "")
    _, err = process.communicate(timeout=900)
    assert process.returncode == 0, err
    ours = ("Runs are recorded in", "Spark waits for a core")  # the others would be Spark's own
    assert [line for line in err.splitlines() if not any(text in line for text in ours)] == []
    assert f"Spark waits for a core of {module_cluster.master}, which has given none for 15 s: " in waiting
    assert "spark.cores.max" in waiting
    assert live_ids(s3_server, s3_location) == list(range(ROWS))
