"""A standalone cluster of two workers, and Spark Connect over it: every command that uses Spark, and reading."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from snapshot_assets_tests.cli.helpers import RANGE, make_source
from snapshot_assets_tests.cluster.conftest import Driver, finish
from snapshot_assets_tests.cluster.tables import EVENTS, fill, live_ids, sums
from snapshot_assets_tests.servers.postgresql import MakeDatabase, PostgresqlServer
from snapshot_assets_tests.servers.s3 import S3Server
from snapshot_assets_tests.servers.spark_cluster import SparkCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def connect_server(module_cluster: SparkCluster) -> Iterator[str]:
    with module_cluster.connect_server() as url:
        yield url


@pytest.fixture(params=["master", "remote"])
def session(request: pytest.FixtureRequest, module_cluster: SparkCluster) -> dict[str, str]:
    """The settings of a session: of a driver of the cluster, or of a Spark Connect server that is its driver."""
    if request.param == "master":
        return module_cluster.settings
    return {"spark.remote": request.getfixturevalue("connect_server")}


def test_every_command_that_uses_spark_works_with_executors_that_lack_the_package(
    session: dict[str, str],
    driver: Driver,
    s3_server: S3Server,
    s3_location: str,
    postgresql_server: PostgresqlServer,
    make_postgresql_database: MakeDatabase,
    executors_python: Path,
) -> None:
    source, target = make_postgresql_database(), make_postgresql_database()
    fill(postgresql_server, source, rows=3 * 1440)
    at = ("--snapshot", s3_location)
    delete = ("catalog", "tombstone", *at, "--table", f"public.{EVENTS}", "--yes", "--where")
    copied = f"{s3_location}-copy"
    driver.run(
        session,
        ("export", "create", "--source", source, "--to", s3_location, *RANGE),
        ("export", "verify", *at),
        ("import", "--from", s3_location, "--target", target),
        ("copy", f"SELECT id, value FROM {EVENTS}", "--source", source, "--to", copied),
    )
    assert sums(postgresql_server, target) == sums(postgresql_server, source)
    assert live_ids(s3_server, copied) == list(range(3 * 1440))
    expected = {
        "executors": [[str(executors_python), "No module named 'snapshot_assets'"]],
        "rows": 4320,
        "ids": sum(range(4320)),
        "part": 2160,
        "read": [4320, 320, 2],
        "ids of read": sum(range(4320)),
        "part of read": 2160,
    }
    assert driver.read(session, s3_location, f"public.{EVENTS}") == expected

    driver.run(
        session,
        (*delete, "id < 30"),
        ("savepoint", "create", *at),
        (*delete, "id > 4300"),
        ("catalog", "compact", *at),
        ("export", "verify", *at),
    )
    assert live_ids(s3_server, s3_location) == list(range(30, 4301))


@pytest.mark.parametrize(("file", "session"), [("source", "master"), ("location", "remote")], indirect=["session"])
def test_files_of_this_machine_are_refused_before_anything_is_written(
    file: str,
    session: dict[str, str],
    module_cluster: SparkCluster,
    driver: Driver,
    s3_location: str,
    s3_server: S3Server,
    tmp_path: Path,
) -> None:
    source, location = make_source(tmp_path / "source.duckdb"), tmp_path / "location"
    to = s3_location if file == "source" else location.as_uri()
    command = ("export", "create", "--source", source, "--to", to, *RANGE)
    told = finish(driver.start(session, command), 2)
    assert f"Spark's master is '{module_cluster.master}', whose tasks run on others" in told
    assert ("a DuckDB file" in told, f"its location {to}" in told) == (True, file == "location")
    assert not location.exists()
    assert (
        s3_server.client().list_objects_v2(Bucket=s3_server.bucket, Prefix=s3_location.split("/", 3)[3])["KeyCount"]
        == 0
    )
