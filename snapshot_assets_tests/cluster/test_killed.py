"""`kill -9` of an executor and of a worker in the middle of a chunk: no row is lost, and none is there twice."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable

import pytest

from snapshot_assets_tests.cli.helpers import RANGE
from snapshot_assets_tests.cluster.conftest import Driver, finish
from snapshot_assets_tests.cluster.tables import fill, live_ids, sums
from snapshot_assets_tests.servers.postgresql import MakeDatabase, PostgresqlServer
from snapshot_assets_tests.servers.s3 import S3Server
from snapshot_assets_tests.servers.spark_cluster import SparkCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
ROWS = 900_000
_COPIES = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND query ~* '{}'"
)


def kill_executor(cluster: SparkCluster) -> None:
    cluster.executors()[0].kill()


def kill_worker(cluster: SparkCluster) -> None:
    """Kill a worker that has an executor; this ends with it."""
    [executor, *_] = cluster.executors()
    parent = executor.ppid()
    os.kill(parent, signal.SIGKILL)
    [worker] = [each for each in cluster.workers if each.pid == parent]
    worker.wait(30)


def kill_during(
    copy: str, kill: Callable[[], None], process: subprocess.Popen[str], server: PostgresqlServer, database: str
) -> None:
    """Kill something of a cluster as soon as a task copies rows from or into a database."""
    while process.poll() is None:
        if server.psql(database, _COPIES.format(copy)) != "0":
            kill()
            assert process.poll() is None, "the command ended before"
            return
        time.sleep(0.02)
    pytest.fail(f"No copy was seen: {process.communicate()[1][-3000:]}")


@pytest.mark.parametrize("kill", [kill_executor, kill_worker])
def test_an_export_and_an_import_outlive_what_is_killed_and_every_row_is_there_once(
    kill: Callable[[SparkCluster], None],
    spark_cluster: SparkCluster,
    driver: Driver,
    s3_server: S3Server,
    s3_location: str,
    postgresql_server: PostgresqlServer,
    make_postgresql_database: MakeDatabase,
) -> None:
    source, target = make_postgresql_database(), make_postgresql_database()
    fill(postgresql_server, source, rows=ROWS)
    export = ("export", "create", "--source", source, "--to", s3_location, *RANGE)
    process = driver.start(spark_cluster.settings, export)
    kill_during("^COPY.*TO STDOUT", lambda: kill(spark_cluster), process, postgresql_server, source)
    finish(process)
    assert live_ids(s3_server, s3_location) == list(range(ROWS))

    if kill is kill_worker:
        spark_cluster.add_workers(1)
    process = driver.start(spark_cluster.settings, ("import", "--from", s3_location, "--target", target))
    kill_during("^COPY.*FROM STDIN", lambda: kill(spark_cluster), process, postgresql_server, target)
    assert f" {ROWS + 2:,} rows loaded now" in finish(process)
    assert sums(postgresql_server, target) == sums(postgresql_server, source)


def test_an_export_without_any_worker_left_ends_by_ctrl_c_and_is_resumed_on_new_ones(
    spark_cluster: SparkCluster,
    driver: Driver,
    s3_server: S3Server,
    s3_location: str,
    postgresql_server: PostgresqlServer,
    postgresql_database: str,
) -> None:
    fill(postgresql_server, postgresql_database, rows=ROWS)
    export = ("export", "create", "--source", postgresql_database, "--to", s3_location, *RANGE)

    def kill_all() -> None:
        for worker in spark_cluster.workers:
            worker.kill()
            worker.wait(30)

    process = driver.start(spark_cluster.settings, export)
    kill_during("^COPY.*TO STDOUT", kill_all, process, postgresql_server, postgresql_database)
    process.send_signal(signal.SIGINT)
    assert "Committed chunks stay; run the same command again to resume." in finish(process, 130)
    spark_cluster.add_workers(2)
    driver.run(spark_cluster.settings, export, ("export", "verify", "--snapshot", s3_location))
    assert live_ids(s3_server, s3_location) == list(range(ROWS))
